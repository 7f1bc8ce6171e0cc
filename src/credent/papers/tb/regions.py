"""Figure 3.1: the robust regions of heavy ball on quadratics, and how it contracts in and out of them.

    m <- mu m + alpha h w,   w <- w - m

contracts by sqrt(mu) a step exactly where (1 - sqrt(mu))^2 <= alpha h <= (1 + sqrt(mu))^2.

>>> round(contraction(momentum=0.25, rate=1.0, curvature=1.0), 3), round(contraction(0.25, 0.125, 1.0), 3)
(0.5, 0.82)
>>> unrolled(0.9, 3)                    # of gradients that are all 1: recursion, (3.1.4) as printed, and put right
(2.71, 2.439, 2.71)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from credent.cells import Cell
from credent.optim import robust
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.verdict import Outcome, Verdict
from credent.report import Column, Figure, Section, Table, plots

CURVATURES = (1.0, 2.0, 4.0)
MOMENTA = tuple(np.linspace(0, 0.95, 20).round(4).tolist())
SIDE = {Scale.SMOKE: 6, Scale.CPU: 16, Scale.PAPER: 24}
STEPS = {Scale.SMOKE: 500, Scale.CPU: 4000, Scale.PAPER: 4000}
_LINE = tuple(k / 10 for k in range(10))  # momenta at which the largest stable rate is sought
_SAME = 0.01  # of a contraction measured over a finite run


def contraction(momentum: float, rate: float, curvature: float, steps: int = 4000) -> float:
    """The factor by which heavy ball's distance to the optimum changes a step, over the last half of a run."""
    w, m, total = 1.0, 0.0, 0.0
    for step in range(steps):
        m = momentum * m + rate * curvature * w
        w -= m
        size = math.hypot(w, m)
        if size == 0:
            return 0.0  # there in one step
        w, m = w / size, m / size  # it would vanish or overflow
        if step >= steps // 2:
            total += math.log(size)
    return math.exp(total / (steps - steps // 2))


def unrolled(momentum: float, steps: int) -> tuple[float, float, float]:
    """m after so many steps, every gradient and rate 1: by recursion, by (3.1.4) as printed, by (3.1.4) put right."""
    m = 0.0
    for _ in range(steps):
        m = momentum * m + 1
    printed = sum(momentum ** (steps - i) for i in range(steps))
    right = sum(momentum ** (steps - 1 - i) for i in range(steps))
    return round(m, 12), round(printed, 12), round(right, 12)


@dataclass(frozen=True)
class Contraction(Cell):
    """Heavy ball on one curvature, over a grid of momenta and of rates in units of 1/h."""

    curvature: float
    side: int
    steps: int

    def run(self) -> dict[str, Any]:
        """Momenta, rates and contractions of the grid; the largest stable rates by momentum, by bisection."""
        momenta = np.linspace(0.02, 0.92, self.side).tolist()
        rates = (np.linspace(0.05, 4.25, self.side) / self.curvature).tolist()
        grid = [(mu, rate) for mu in momenta for rate in rates]
        return {
            "momentum": [mu for mu, _ in grid],
            "rate": [rate for _, rate in grid],
            "contraction": [contraction(mu, rate, self.curvature, self.steps) for mu, rate in grid],
            "largest": [self._largest(mu) for mu in _LINE],
        }

    def _largest(self, momentum: float) -> float:
        low, high = 0.0, 8 / self.curvature
        for _ in range(10):
            middle = (low + high) / 2
            low, high = (middle, high) if contraction(momentum, middle, self.curvature, 500) < 1 else (low, middle)
        return low


class Figure3_1(Experiment):
    """Robust regions."""

    name = "tb/figure3_1"
    title = "Robust regions of momentum and learning rate"
    about = (
        "Figure 3.1 and sections 3.1 and 3.2: gradient descent with momentum converges at the best rate where"
        " (1 - sqrt mu)^2 / h <= alpha <= (1 + sqrt mu)^2 / h, h the curvature (3.2.1). Too large steps are unstable,"
        " which is said to bound the rate by a line, alpha + a mu <= a (3.1.7)."
    )
    takes: ClassVar = {Scale.SMOKE: "2 s", Scale.CPU: "10 s", Scale.PAPER: "20 s"}

    def setting(self, scale: Scale) -> str:
        """Quadratics."""
        listed = ", ".join(f"{h:g}" for h in CURVATURES)
        return (
            f"The regions for curvatures {listed}, which the thesis does not print, and heavy ball run for"
            f" {STEPS[scale]:,} steps on quadratics of these curvatures at {SIDE[scale] ** 2} pairs of momentum and"
            " rate. No noise and no network: what noise and a network make of it is in figures 5.4 and 5.5."
        )

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """One a curvature."""
        return [Contraction(h, SIDE[scale], STEPS[scale]) for h in CURVATURES]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """The regions, what was measured under the first, and the momentum unrolled."""
        found = results[Contraction(CURVATURES[0], SIDE[scale], STEPS[scale])]
        parts = [_regions()] + ([_measured(found)] if found else [])
        columns = tuple(
            Column(name) for name in ("steps", "recursion (3.1.2)", "(3.1.4) as printed", "(3.1.4) put right")
        )
        rows = tuple((t, *unrolled(0.9, t)) for t in (1, 3, 10))
        table = Table(
            "The momentum m under gradients of 1, mu = 0.9; printed exponents are one too large", columns, rows
        )
        return (Section("Regions", tuple(parts)), Section("Momentum, unrolled", (table,)))

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Contraction within, contraction without, and the line."""
        found = {cell.curvature: result for cell, result in results.items() if isinstance(cell, Contraction) and result}
        gaps: dict[bool, list[float]] = {True: [], False: []}
        lines = []
        for h, each in found.items():
            for mu, rate, factor in zip(each["momentum"], each["rate"], each["contraction"], strict=True):
                low, high = robust.rates(mu, h)
                gaps[low <= rate <= high].append(factor - math.sqrt(mu))
            stable = dict(zip(_LINE, each["largest"], strict=True))
            lines += [h * top for mu, top in stable.items() if mu and top > 1.01 * stable[0.0] * (1 - mu)]
        inside = max((abs(gap) for gap in gaps[True]), default=math.nan)
        slower = sum(gap > -_SAME for gap in gaps[False])
        total = len(found) * (len(_LINE) - 1)
        return (
            Verdict(
                "(3.2.1) Within the region heavy ball contracts by sqrt(mu) a step, whatever the curvature",
                _outcome(inside <= _SAME),
                f"Over {len(gaps[True])} pairs it differs from sqrt(mu) by at most {inside:.2g}.",
            ),
            Verdict(
                "(3.2.1) Outside it contracts more slowly, or diverges",
                _outcome(slower == len(gaps[False])),
                f"So do {slower} of {len(gaps[False])} pairs.",
            ),
            Verdict(
                "(3.1.7) Rates above the line a (1 - mu) are unstable, a the largest stable rate without momentum",
                _outcome(not lines),
                f"On quadratics the largest stable rate is above the line at {len(lines)} of {total} momenta and rises"
                f" with them, as 2 (1 + mu) / h does: up to {max(lines, default=math.nan):.2f} / h.",
            ),
        )


def _outcome(held: bool) -> Outcome:
    return "replicated" if held else "not replicated"


def _regions() -> Figure:
    named: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for h in CURVATURES:
        ends = [robust.rates(mu, h) for mu in MOMENTA]
        named |= {f"h = {h:g}, {side}": (MOMENTA, [each[k] for each in ends]) for k, side in enumerate(("from", "to"))}
    caption = "A region lies between its two lines, and narrows to a point where there is no momentum."
    return plots.curves("Robust regions", named, "momentum", "learning rate", caption)


def _measured(found: Any) -> Figure:
    momenta = np.linspace(0.02, 0.92, 40)
    ends = np.array([robust.rates(mu, CURVATURES[0]) for mu in momenta])
    return plots.landscape(
        "Contraction a step, measured",
        found["momentum"],
        found["rate"],
        found["contraction"],
        "momentum",
        "learning rate",
        "factor",
        f"Heavy ball on a quadratic of curvature {CURVATURES[0]:g}. Above 1 it diverges; between the region's lines the"
        " factor is sqrt(mu), above the stability line it is above 1.",
        lines=(
            ("robust region, from", momenta, ends[:, 0]),
            ("robust region, to", momenta, ends[:, 1]),
            ("stability, 2 (1 + mu) / h", momenta, 2 * (1 + momenta) / CURVATURES[0]),
            ("(3.1.7), a (1 - mu)", momenta, 2 * (1 - momenta) / CURVATURES[0]),
        ),
        clip=(0.0, 0.9),
    )
