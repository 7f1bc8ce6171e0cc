"""A verdict: a paper's claim, whether it held here, and the numbers that say so.

A claim that a is lower than b, over seeds i = 1 ... n, is tested on the difference d = a - b:

    paired (runs of one seed share what the seed decides):  d = mean of a_i - b_i,  error = stdev(a_i - b_i) / sqrt(n)
    unpaired:                                               d = mean a - mean b,    error^2 = error_a^2 + error_b^2

and has replicated when d < -2 error. A difference within two errors has not: it may be there, but was not seen. With
few seeds two errors are a weak test (three pairs of equals pass it one time in eleven), so evidence counts the seeds.

>>> lower("VI beats MAP", {0: 0.20, 1: 0.22}, {0: 0.30, 1: 0.32}).outcome
'replicated'
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from credent.papers.seeds import estimate
from credent.report import Estimate
from credent.report.numbers import figures

Outcome = Literal["replicated", "not replicated", "not testable at this scale"]
_ERRORS = 2.0


@dataclass(frozen=True)
class Verdict:
    """A claim, what became of it, and the numbers."""

    claim: str
    outcome: Outcome
    evidence: str


def lower(claim: str, ours: Mapping[int, float], others: Mapping[int, float], *, paired: bool = True) -> Verdict:
    """The verdict on "ours is lower than the others'", from numbers by seed. For "higher", swap the two."""
    seeds = sorted(ours.keys() & others.keys())
    a, b = ({seed: each[seed] for seed in seeds} if paired else dict(each) for each in (ours, others))
    if min(len(a), len(b)) < 2:
        return Verdict(claim, "not testable at this scale", f"{_counted(len(a), len(b))}: no standard error.")
    mean, other = estimate(a), estimate(b)
    assert mean is not None
    assert other is not None
    shown = f"{figures(mean)} against {figures(other)}"
    if not (math.isfinite(mean.value) and math.isfinite(other.value)):
        return Verdict(claim, "not testable at this scale", f"{shown}: not every run ended with a number.")
    if paired:
        gap = estimate({seed: a[seed] - b[seed] for seed in seeds})
        assert gap is not None
    else:
        gap = Estimate(mean.value - other.value, math.hypot(mean.error, other.error))
    outcome: Outcome = "replicated" if gap.value < -_ERRORS * gap.error else "not replicated"
    side = "lower" if gap.value < 0 else "higher"
    beyond = "more" if abs(gap.value) > _ERRORS * gap.error else "no more"
    kind = "paired " if paired else ""
    evidence = (
        f"{shown}: {side} by {figures(Estimate(abs(gap.value), gap.error))}, {beyond} than two standard errors of the"
        f" {kind}difference, over {_counted(len(a), len(b))}."
    )
    return Verdict(claim, outcome, evidence)


def together(claim: str, *verdicts: Verdict) -> Verdict:
    """A claim that holds if each of several does; one that failed decides, and else one that could not be tested."""
    outcomes = {each.outcome for each in verdicts}
    order: tuple[Outcome, ...] = ("not replicated", "not testable at this scale", "replicated")
    worst = next(outcome for outcome in order if outcome in outcomes)
    return Verdict(claim, worst, " ".join(f"{each.claim}: {each.outcome}; {each.evidence}" for each in verdicts))


def _counted(ours: int, others: int) -> str:
    said = str(ours) if ours == others else f"{ours} and {others}"
    return f"{said} seed" + ("s" if (ours, others) != (1, 1) else "")
