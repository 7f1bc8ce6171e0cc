"""What the numbers say: whether credent is ahead, and every score at which somebody else is."""

import math
from collections.abc import Mapping

from bench.quality.front import front
from bench.quality.methods import METHODS
from bench.quality.scores import JUDGED, MAIN, Found, mean, others
from credent.papers.seeds import estimate
from credent.papers.verdict import lower
from credent.report import Column
from credent.report.numbers import figures

SLACK = 1.05
"""Of costs: less is noise."""
LEARNT = 0.99 * math.log(10)
"""An NLL above it knows no more than that there are ten classes."""
CLAIM = (Column("claim"), Column("verdict"), Column("evidence"))


def whole(found: Found) -> Found:
    """The rows that were scored on all test images: others are shown, and not compared with them."""
    return {method: numbers for method, numbers in found.items() if METHODS[method].limit is None}


def own(method: str) -> bool:
    """Whether a row is credent's; ensembles and dropout are anybody's."""
    return METHODS[method].library == "credent"


def verdicts(data: str, found: Found) -> list[tuple[str, str, str]]:
    """(claim, verdict, evidence), the ones that must hold first, then every score at which somebody else is best."""
    found = whole(found)
    rows = [*beats_all(found), *_default_on_front(found)]
    for score in (*(score for score in MAIN if score.name in JUDGED), *others(data)):
        sign = -1 if score.better == "higher" else 1
        there = {method: numbers[score.name] for method, numbers in found.items() if score.name in numbers}
        order = sorted(there, key=lambda method: sign * mean(found[method], score.name))
        if not order or own(order[0]):
            continue
        ours = next((method for method in order if own(method)), None)
        if ours is None:
            continue
        first, second = ({seed: sign * value for seed, value in there[method].items()} for method in (order[0], ours))
        tested = lower("", first, second, paired=False)
        beyond = "beyond two standard errors" if tested.outcome == "replicated" else "within two standard errors"
        shown = " against ".join(
            f"{figures(estimate(there[method]), score.unit)} ({METHODS[method].label})" for method in (order[0], ours)
        )
        rows.append((f"{score.label}: a credent method is best", "another wins", f"{shown}, {beyond}"))
    return rows


def ahead(first: Mapping[str, dict[int, float]], second: Mapping[str, dict[int, float]]) -> bool:
    """Whether the first has the lower NLL and the lower ECE, and its training costs no more."""
    better = all(mean(first, name) < mean(second, name) for name in ("nll", "ece"))
    return better and mean(first, "cost") <= SLACK * mean(second, "cost")


def comparable(found: Found) -> list[str]:
    """Rows with finite scores that have learnt: who says one in ten of everything is calibrated for nothing."""
    return [
        method
        for method, numbers in found.items()
        if all(math.isfinite(mean(numbers, name)) for name in ("nll", "ece", "cost")) and mean(numbers, "nll") < LEARNT
    ]


def beats_all(found: Found) -> list[tuple[str, str, str]]:
    """By one row of credent alone, and by all of them together: each other one by the one that suits its cost."""
    alone = "One credent method has lower NLL and lower ECE than every other library's, at no more cost of training"
    together = "Each other library's row has a credent one of lower NLL and lower ECE, at no more cost of training"
    rows = comparable(found)
    ours, others = ([method for method in rows if own(method) is mine] for mine in (True, False))
    if not ours or not others:
        return [
            (claim, "not testable", "No row of another library, or none of credent's.") for claim in (alone, together)
        ]
    unlearnt = [METHODS[method].label for method in found if method not in rows]
    beaten = {method: [other for other in others if ahead(found[method], found[other])] for method in ours}
    best = max(ours, key=lambda method: len(beaten[method]))
    told = f"{METHODS[best].label} does so against {len(beaten[best])} of {len(others)}"
    every = [other for each in beaten.values() for other in each]
    return [
        _claimed(alone, others, beaten[best], told, unlearnt),
        _claimed(together, others, every, "There is one for the others", unlearnt),
    ]


def _claimed(claim: str, others: list[str], beaten: list[str], told: str, unlearnt: list[str]) -> tuple[str, str, str]:
    left = [METHODS[other].label for other in others if other not in beaten]
    evidence = f"{told}; not against {', '.join(left)}" if left else "Against all of them"
    without = f" Not compared, having learnt nothing or diverged: {', '.join(unlearnt)}." if unlearnt else ""
    return claim, "no" if left else "yes", f"{evidence} (5 % of cost is taken for noise).{without}"


def _default_on_front(found: Found) -> list[tuple[str, str, str]]:
    """Among all rows, and beside other libraries alone: the same method may be better when it is tuned."""
    points = {method: (mean(found[method], "cost"), mean(found[method], "nll")) for method in comparable(found)}
    rivals = {method: at for method, at in points.items() if method == "vi_default" or not own(method)}
    rows = []
    for claim, among in (
        ("credent's default, VI with the recipe's settings, is on the front of NLL against cost", points),
        ("The default is on the front of itself and other libraries", rivals),
    ):
        leading = front(among)
        testable = "vi_default" in among and len(rivals) > 1
        verdict = ("yes" if "vi_default" in leading else "no") if testable else "not testable"
        rows.append((claim, verdict, "On it: " + ", ".join(METHODS[method].label for method in leading)))
    return rows
