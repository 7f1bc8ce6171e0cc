"""The page of the race and its table for machines: who is best at what, what it costs, and where others win."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.quality import uci
from bench.quality.front import front, picture
from bench.quality.methods import METHODS
from bench.quality.race import Final, Trial
from bench.quality.settings import NAMES, STRANGERS, TRIALS, Scale
from credent.cells import Cell
from credent.papers.seeds import by_seed, estimate
from credent.papers.verdict import lower
from credent.report import Card, Column, Note, Page, Section, Table
from credent.report.numbers import Value, figures

Results = Mapping[Cell, Mapping[str, Any]]

HOW = (
    "Everyone trains the same LeNet-5 on the same batches for the same number of passes over the data, each"
    " member where there are several, unless the row says otherwise; Laplace's curvature and Variational"
    " Laplace's other passes come on top, and all of it is in the cost."
    f" Everyone has {TRIALS} trials of (rate, knob), each rate and each knob once,"
    " and as many again, with the range moved by one place, where the best on Fashion-MNIST was at an end of a"
    " range that is not one of temperatures; they are judged by NLL on validation images. The best is run again"
    " under new seeds, and only these runs see a test image. Ensembles take the trials of their member. The"
    " recipe's row has no trial here: its settings were chosen before, on validation images of Fashion-MNIST and"
    " with more trials, and so were those of several averaged networks. Averaged rows train at a constant rate and"
    " predict with the average of the weights; calibrated ones predict at the temperature that the validation"
    " images choose, which no other library's row does. credent has more rows than any other library; verdicts"
    " take the best of them after the"
    " fact. Mean ± standard error over seeds. Costs are CPU time: of training over a plain PyTorch loop with"
    " fused Adam, of prediction in forward passes. Deep ensembles are trained by credent's MAP, whose steps cost"
    " up to 5 % more than plain ones."
)
SHIFTS = "Shifted images: turned by 20 degrees, noise of 0.15 of the grey scale, blurred by one pixel."
DOUBT = "AUROC is that of the entropy of the averaged prediction, test images against others."


@dataclass(frozen=True)
class Score:
    """A column: the number's name in a cell, its label, unit and better side (+1 where higher is)."""

    name: str
    label: str
    unit: str = ""
    higher: bool = False

    def column(self) -> Column:
        """Of a table."""
        return Column(self.label, self.unit, "higher" if self.higher else "lower")


MAIN = (
    Score("accuracy", "accuracy", "%", True),
    Score("nll", "NLL"),
    Score("ece", "ECE, 15 bins", "%"),
    Score("brier", "Brier"),
    Score("cost", "training cost"),
    Score("predicting", "prediction, forwards"),
)


def _others(data: str) -> tuple[Score, ...]:
    shifts = tuple(
        Score(f"{shift}_{name}", f"{shift}: {label}", unit, higher)
        for shift in ("rotation", "noise", "blur")
        for name, label, unit, higher in (("nll", "NLL", "", False), ("accuracy", "accuracy", "%", True))
    )
    strangers = {STRANGERS[data]: NAMES.get(STRANGERS[data], "SVHN"), "noise": "noise"}
    return (*(Score(f"auroc_{name}", f"AUROC, {label}", "%", True) for name, label in strangers.items()), *shifts)


def scores(results: Results, data: str) -> dict[str, dict[str, dict[int, float]]]:
    """Numbers by method, by name, by seed, of the finished finals of a data set."""
    methods = dict.fromkeys(cell.method for cell in results if isinstance(cell, Final) and cell.data == data)
    finals = {cell: result for cell, result in results.items() if isinstance(cell, Final) and cell.data == data}
    return {
        method: {
            score.name: found
            for score in (*MAIN, *_others(data))
            if (found := by_seed(finals, score.name, method=method))
        }
        for method in methods
    }


def _table(caption: str, columns: Sequence[Score], found: Mapping[str, Mapping[str, dict[int, float]]]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for method in sorted(found, key=lambda name: _mean(found[name], "nll")):
        values = (estimate(found[method].get(score.name, {})) for score in columns)
        rows.append((METHODS[method].label, METHODS[method].library, *values))
    return Table(caption, (Column("method"), Column("library"), *(score.column() for score in columns)), tuple(rows))


def _mean(found: Mapping[str, dict[int, float]], name: str) -> float:
    value = estimate(found.get(name, {}))
    return value.value if value is not None else float("inf")


def whole(found: Mapping[str, Mapping[str, dict[int, float]]]) -> Mapping[str, Mapping[str, dict[int, float]]]:
    """The rows that were scored on all test images: others are shown, and not compared with them."""
    return {method: numbers for method, numbers in found.items() if METHODS[method].limit is None}


def own(method: str) -> bool:
    """Whether a row is credent's; ensembles and dropout are anybody's."""
    return METHODS[method].library == "credent"


def verdicts(data: str, found: Mapping[str, Mapping[str, dict[int, float]]]) -> list[tuple[str, str, str]]:
    """(claim, verdict, evidence), the ones that must hold first, then every score at which somebody else is best."""
    found = whole(found)
    rows = [*_beats_all(found), *_default_on_front(found)]
    for score in (*MAIN[:4], *_others(data)):
        sign = -1 if score.higher else 1
        there = {method: numbers[score.name] for method, numbers in found.items() if score.name in numbers}
        order = sorted(there, key=lambda method: sign * _mean(found[method], score.name))
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


def _ahead(first: Mapping[str, dict[int, float]], second: Mapping[str, dict[int, float]]) -> bool:
    """Whether the first has the lower NLL and the lower ECE, and its training costs no more."""
    better = all(_mean(first, name) < _mean(second, name) for name in ("nll", "ece"))
    return better and _mean(first, "cost") <= 1.05 * _mean(second, "cost")


def _comparable(found: Mapping[str, Mapping[str, dict[int, float]]]) -> list[str]:
    """Rows with finite scores."""
    return [
        method
        for method, numbers in found.items()
        if all(math.isfinite(_mean(numbers, name)) for name in ("nll", "ece", "cost"))
    ]


def _beats_all(found: Mapping[str, Mapping[str, dict[int, float]]]) -> list[tuple[str, str, str]]:
    """By one row of credent alone, and by all of them together: each other one by the one that suits its cost."""
    alone = "One credent method has lower NLL and lower ECE than every other library's, at no more cost of training"
    together = "Each other library's row has a credent one of lower NLL and lower ECE, at no more cost of training"
    rows = _comparable(found)
    ours, others = ([method for method in rows if own(method) is mine] for mine in (True, False))
    if not ours or not others:
        return [
            (claim, "not testable", "No row of another library, or none of credent's.") for claim in (alone, together)
        ]
    beaten = {method: [other for other in others if _ahead(found[method], found[other])] for method in ours}
    best = max(ours, key=lambda method: len(beaten[method]))
    told = f"{METHODS[best].label} does so against {len(beaten[best])} of {len(others)}"
    return [
        _claimed(alone, others, beaten[best], told),
        _claimed(
            together, others, [other for each in beaten.values() for other in each], "There is one for the others"
        ),
    ]


def _claimed(claim: str, others: list[str], beaten: list[str], told: str) -> tuple[str, str, str]:
    left = [METHODS[other].label for other in others if other not in beaten]
    evidence = f"{told}; not against {', '.join(left)}" if left else "Against all of them"
    return claim, "no" if left else "yes", f"{evidence} (5 % of cost is taken for noise)."


def _default_on_front(found: Mapping[str, Mapping[str, dict[int, float]]]) -> list[tuple[str, str, str]]:
    """Among all rows, and beside other libraries alone: the same method may be better when it is tuned."""
    points = {method: (_mean(found[method], "cost"), _mean(found[method], "nll")) for method in _comparable(found)}
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


def page(scale: str, settings: Scale, results: Results, failures: Mapping[Cell, str], version: str) -> Page:
    """Everything that has ended."""
    raced = {data: found for data in settings.sizes if (found := scores(results, data))}
    sections: list[Section] = []
    cards: list[Card] = []
    if raced:
        sections.append(Section("How it was run", (Note(HOW), *(_sized(settings, data) for data in raced))))
    reached = 0
    for data, everyone in raced.items():
        found = whole(everyone)
        few = {method: numbers for method, numbers in everyone.items() if method not in found}
        said = verdicts(data, found)
        reached += sum(verdict == "yes" for _, verdict, _ in said)
        points = {
            METHODS[method].label: (_mean(numbers, "cost"), _mean(numbers, "nll")) for method, numbers in found.items()
        }
        ours = frozenset(METHODS[method].label for method in found if own(method))
        columns = tuple(Column(label) for label in ("claim", "verdict", "evidence"))
        sections += [
            Section(f"{NAMES[data]}: verdicts", (Table("Where others win, it is said here", columns, tuple(said)),)),
            Section(
                NAMES[data],
                (
                    _table("Test images, least NLL first", MAIN, found),
                    *(
                        [_table("A few test images alone, not to be compared with the others", MAIN, few)]
                        if few
                        else []
                    ),
                    picture("NLL against cost", points, ours, "training cost over plain PyTorch", "test NLL"),
                    _table(f"Other images. {DOUBT} {SHIFTS}", _others(data), found),
                    _settings(results, data),
                ),
            ),
        ]
    if raced:
        told = f"of {4 * len(raced)}: four for each data set"
        cards.append(Card("Claims that held", f"{reached}", meaning=f"{told}; the verdicts say which."))
    if beside := uci.table(results):
        held, tested = max(uci.held(results, method) for method in uci.METHODS)
        meaning = f"of {tested}: test log-likelihood of the best row at least the published one of Monte-Carlo VI."
        cards.append(Card("UCI sets", f"{held}", meaning=meaning))
        sections.append(Section("UCI regression", (Note(uci.READ), beside, Note(uci.verdict(results)))))
    if failures:
        rows = tuple((str(cell), why) for cell, why in failures.items())
        sections.append(Section("Did not run", (Table("Failures", (Column("run"), Column("why")), rows),)))
    return Page(
        "Quality beside other libraries", f"Scale: {scale}.", tuple(cards), tuple(sections), f"credent {version}"
    )


def _sized(settings: Scale, data: str) -> Note:
    size = settings.sizes[data]
    return Note(
        f"{NAMES[data]}: {size.train or 'all'} training images, {size.val} for validation, {size.test or 'all'} test"
        f" images, {size.strange} of each shift and of each kind of stranger, {size.epochs} epochs in batches of"
        f" {size.batch}, {size.draws} draws of each member in a prediction; {len(settings.seeds)} seeds of the chosen"
        f" setting.{_close(settings, data)}"
    )


def _close(settings: Scale, data: str) -> str:
    labels = [METHODS[method].label for method in settings.close.get(data, ())]
    count = len(settings.seeds) + len(settings.more)
    return f" Rows whose order these left open have {count}: {', '.join(labels)}." if labels else ""


def _settings(results: Results, data: str) -> Table:
    """What was chosen of what was tried, so that a choice at the end of a range can be seen."""
    picked = {cell.method: cell for cell in results if isinstance(cell, Final) and cell.data == data}
    rows = []
    for method, cell in picked.items():
        of = (data, METHODS[method].tuned_as or method)
        tried = [c for c in results if isinstance(c, Trial) and (c.data, c.method) == of]
        nlls = "; ".join(f"({c.lr:g}, {c.knob:g}): {results[c].get('nll', float('nan')):.3f}" for c in tried)
        rows.append((METHODS[method].label, METHODS[method].knob, f"{cell.lr:g}", f"{cell.knob:g}", nlls))
    columns = ("method", "knob", "chosen rate", "chosen knob", "validation NLL of all trials (rate, knob)")
    return Table("Chosen on validation images", tuple(map(Column, columns)), tuple(rows))


def table(results: Results) -> str:
    """All means and standard errors as CSV: data, method, library, score, mean, error, runs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("data", "method", "library", "score", "mean", "error", "runs"))
    for data in NAMES:
        for method, numbers in scores(results, data).items():
            for name, values in numbers.items():
                writer.writerow((data, METHODS[method].label, METHODS[method].library, name, *_summary(values)))
    for (name, method), values in uci.scores(results).items():
        row = (f"uci/{name}", uci.METHODS[method], "credent", "log_likelihood", *_summary(dict(enumerate(values))))
        writer.writerow(row)
    return out.getvalue()


def _summary(values: Mapping[int, float]) -> tuple[str, str, int]:
    found = estimate(values)
    assert found is not None
    return f"{found.value:.6g}", f"{found.error:.3g}", len(values)
