"""What the numbers say: whether credent is ahead, and every score at which somebody else is."""

import math
from collections.abc import Mapping

from bench.quality.front import front
from bench.quality.methods import METHODS, PLAIN
from bench.quality.scores import JUDGED, MAIN, Found, mean, others
from credent.papers.seeds import estimate
from credent.papers.verdict import lower
from credent.report import Column
from credent.report.numbers import figures

SLACK = 1.05
"""Of costs: less is noise."""
GREY = ("fashion_mnist", "mnist")
"""Data sets whose recipe is the race's row of it."""
LEARNT = 0.99 * math.log(10)
"""An NLL above it knows no more than that there are ten classes."""
BOTH = {"nll": "NLL", "ece": "ECE"}
CHEAPLY = "and trains at no more cost"
CLAIM = (Column("claim"), Column("verdict"), Column("evidence"))


def own(method: str) -> bool:
    """Whether a row is credent's; ensembles and dropout are anybody's."""
    return METHODS[method].library == "credent"


def verdicts(data: str, found: Found) -> list[tuple[str, str, str]]:
    """(claim, verdict, evidence), the ones that must hold first, then every score at which somebody else is best."""
    rows = [*beats_all(found), *_default_on_front(data, found)]
    for score in (*(score for score in MAIN if score.name in JUDGED), *others(data)):
        sign = -1 if score.better == "higher" else 1
        there = {method: found[method][score.name] for method in comparable(found) if score.name in found[method]}
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
    better = all(mean(first, name) < mean(second, name) for name in BOTH)
    return better and mean(first, "cost") <= SLACK * mean(second, "cost")


def comparable(found: Found) -> list[str]:
    """Rows with finite scores that have learnt: who says one in ten of everything is calibrated for nothing."""
    return [
        method
        for method, numbers in found.items()
        if all(math.isfinite(mean(numbers, name)) for name in ("nll", "ece", "cost")) and mean(numbers, "nll") < LEARNT
    ]


def tied(first: Mapping[str, dict[int, float]], second: Mapping[str, dict[int, float]], paired: bool) -> list[str]:
    """Of NLL and ECE, those whose difference is within two standard errors, or has none, being of one run."""
    judged = {label: lower("", first[name], second[name], paired=paired) for name, label in BOTH.items()}
    return [label for label, verdict in judged.items() if verdict.outcome != "replicated"]


def beats_all(found: Found, paired: bool = False) -> list[tuple[str, str, str]]:
    """By one row of credent the libraries, and everybody; by all of them together everybody, each at its cost.

    Paired is what was scored on the same parts, one by one, where a part is harder than another for everybody.
    """
    lower_both = "lower NLL and lower ECE"
    rows = comparable(found)
    ours, others = ([method for method in rows if own(method) is mine] for mine in (True, False))
    libraries = [method for method in others if METHODS[method].library != PLAIN]
    beaten = {method: {other for other in others if ahead(found[method], found[other])} for method in ours}
    unlearnt = [METHODS[method].label for method in found if method not in rows]
    without = f" Not compared, having learnt nothing or diverged: {', '.join(unlearnt)}." if unlearnt else ""

    def led(method: str, rivals: list[str]) -> tuple[int, int, float]:
        """How many it beats, how many of them clearly, and how cheaply: the more the better."""
        over = beaten[method].intersection(rivals)
        clear = [other for other in over if not tied(found[method], found[other], paired)]
        return len(over), len(clear), -mean(found[method], "cost")

    def claimed(claim: str, rivals: list[str], alone: bool) -> tuple[str, str, str]:
        if not ours or not rivals:
            return claim, "not testable", "No row is another's, or none is credent's."
        best = max(ours, key=lambda method: led(method, rivals))
        by = {other: [each for each in ([best] if alone else ours) if other in beaten[each]] for other in rivals}
        left = [METHODS[other].label for other, winners in by.items() if not winners]
        ties = []
        for other, winners in by.items():
            open_scores = min((tied(found[each], found[other], paired) for each in winners), key=len, default=[])
            ties += [f"{' and '.join(open_scores)} of {METHODS[other].label}"] if open_scores else []
        who = f"{METHODS[best].label} does so" if alone else "There is one"
        evidence = f"{who} against {len(rivals) - len(left)} of {len(rivals)}"
        evidence += f"; not against {', '.join(left)}" if left else ""
        evidence += f"; not beyond two standard errors: {', '.join(ties)}" if ties else ""
        verdict = "no" if left else "in the mean" if ties else "yes"
        return claim, verdict, f"{evidence} (5 % of cost is taken for noise).{without}"

    return [
        claimed(f"One credent method has {lower_both} than every other library's, {CHEAPLY}", libraries, True),
        claimed(
            f"One credent method has {lower_both} than everybody's, deep ensembles and MC dropout too, {CHEAPLY}",
            others,
            True,
        ),
        claimed(f"Each row that is not credent's has a credent one of {lower_both}, {CHEAPLY}", others, False),
    ]


def _default_on_front(data: str, found: Found) -> list[tuple[str, str, str]]:
    """Among all rows, and beside other libraries alone: the same method may be better when it is tuned."""
    recipe = "credent's default" if data in GREY else "Fashion-MNIST's recipe"
    points = {method: (mean(found[method], "cost"), mean(found[method], "nll")) for method in comparable(found)}
    rivals = {method: at for method, at in points.items() if method == "vi_default" or not own(method)}
    rows = []
    for claim, among in (
        (f"{recipe} is on the front of NLL against training cost", points),
        (f"{recipe} is on the front of itself and other libraries", rivals),
    ):
        leading = front(among)
        testable = "vi_default" in among and len(rivals) > 1
        verdict = ("yes" if "vi_default" in leading else "no") if testable else "not testable"
        rows.append((claim, verdict, "On it: " + ", ".join(METHODS[method].label for method in leading)))
    return rows
