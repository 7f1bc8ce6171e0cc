"""Figures 5.3 and A.2: five optimisers at jittered settings, how many of the runs succeed, and how far they come.

Tables 5.1 and 5.2 have 45 combinations: Adam 3 rates x with and without AMSGrad, AdaBound 3 x 2 final rates, RAdam 3,
SGD and YellowFin 3 x 5 momenta each. Each value v is drawn from N(v, v/2), again while it is not positive, and momentum
while it is not below 1, where every run diverges.

>>> {name: len(found) for name, found in design(runs=1).items()}
{'Adam': 6, 'AdaBound': 6, 'RAdam': 3, 'SGD': 15, 'YellowFin': 15}
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.tb.ranks import above, best_of, oftener, resampled, wider
from credent.papers.tb.search import THRESHOLD, Row, described, known, run, succeeded
from credent.papers.tb.settings import needs
from credent.papers.tb.training import Training
from credent.papers.verdict import Verdict, together
from credent.report import Column, Figure, Section, Table, plots
from credent.report.numbers import Value
from credent.sweeps.plan import settings
from credent.sweeps.vary import Jitter

RATES = (1e-3, 1e-2, 1e-1)
FINAL_RATES = (1e-2, 1e-1)
MOMENTA = (0.0, 0.1, 0.5, 0.9, 0.95)
RUNS = {Scale.SMOKE: 1, Scale.CPU: 4, Scale.PAPER: 11}
EPOCHS = 50
SGD_LIKE = ("AdaBound", "YellowFin", "SGD")
ADAM_LIKE = ("Adam", "RAdam")
_PUBLISHED = 486

Fields = dict[str, Any]


def design(runs: int) -> dict[str, list[Fields]]:
    """The fields of every run by optimiser, `runs` for each combination of the tables."""
    rates = Jitter(RATES)
    return {
        "Adam": list(settings({"optimizer": ("adam", "amsgrad"), "lr": rates}, runs)),
        "AdaBound": list(settings({"optimizer": ("adabound",), "lr": rates, "final_lr": Jitter(FINAL_RATES)}, runs)),
        "RAdam": list(settings({"optimizer": ("radam",), "lr": rates}, runs)),
        "SGD": list(_with_momentum("sgd", runs)),
        "YellowFin": list(_with_momentum("yellowfin", runs)),
    }


def _with_momentum(name: str, runs: int) -> Iterator[Fields]:
    for lr, momentum in itertools.product(RATES, MOMENTA):
        vary: dict[str, Any] = {"optimizer": (name,), "lr": Jitter((lr,))}
        if momentum == 0:  # N(0, 0)
            yield from ({**found, "momentum": 0.0} for found in settings(vary, runs))
        else:
            drawn = settings({**vary, "momentum": Jitter((momentum,))}, 100 * runs)
            yield from itertools.islice((found for found in drawn if float(found["momentum"] or 0) < 1), runs)


def study(scale: Scale) -> dict[str, list[Training]]:
    """The runs by optimiser; those of one combination differ in their seeds too."""
    data = "digits" if scale is Scale.SMOKE else "cifar10"
    return {
        name: [run(scale, data, EPOCHS, number % RUNS[scale], fields) for number, fields in enumerate(found)]
        for name, found in design(RUNS[scale]).items()
    }


class _Study(Experiment):
    """All runs."""

    takes: ClassVar = {Scale.SMOKE: "10 s", Scale.CPU: "8 min on 2 cores, shared by figures 5.3 and A.2"}

    def setting(self, scale: Scale) -> str:
        """Grids, draws, length of a run."""
        data = "digits" if scale is Scale.SMOKE else "cifar10"
        count = sum(map(len, study(scale).values()))
        return (
            f"{described(scale, data, EPOCHS)} {count} runs: the 45 combinations of tables 5.1 and 5.2, each"
            f" {RUNS[scale]} times, every value drawn from N(v, v/2), again while a rate is not positive or a momentum"
            f" is not between 0 and 1. The thesis has {_PUBLISHED} runs, which is no multiple of 45 (eleven times are"
            " 495, its 'almost 500'), and does not say how many epochs."
        )

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """CIFAR-10."""
        return needs(("digits" if scale is Scale.SMOKE else "cifar10",))

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Optimiser by optimiser."""
        return [cell for cells in study(scale).values() for cell in cells]

    def rows(self, scale: Scale, results: Results) -> dict[str, list[Row]]:
        """The runs that ended with numbers by optimiser."""
        return {name: known(cells, results) for name, cells in study(scale).items()}


class Figure5_3(_Study):
    """Success and spread."""

    name = "tb/figure5_3"
    title = "Five optimisers at jittered settings on CIFAR-10"
    about = (
        "Figure 5.3 and section 5.3: AdaBound, YellowFin and SGD perform best, Adam and RAdam worst, with the highest"
        " spread; AdaBound and YellowFin are robust to misspecified settings, AdaBound the most. Several runs of RAdam"
        " fall back to 10 % all at once. Networks that never pass 15 % are left out of the means."
    )

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """A figure for each optimiser, and the success rates."""
        rows = self.rows(scale, results)
        figures = tuple(_curves(name, found) for name, found in rows.items())
        return (Section("Success", (_table(rows),)), Section("Accuracy by epoch", figures))

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Performance, robustness, spread, and RAdam's falls."""
        rows = self.rows(scale, results)
        good = {name: _accuracies(found, succeeded_only=True) for name, found in rows.items()}
        every = {name: _accuracies(found) for name, found in rows.items()}
        counts = {name: (len(good[name]), len(every[name])) for name in rows}
        pooled = {kind: [a for name in kind for a in good[name]] for kind in (SGD_LIKE, ADAM_LIKE)}
        radam = [(max(result["accuracies"]), result["accuracy"]) for _, result in rows["RAdam"]]
        fell = sum(top >= 0.2 and last <= 0.12 for top, last in radam)
        others = [name for name in rows if name != "AdaBound"]
        return (
            above(
                "SGD-like optimisers (AdaBound, YellowFin, SGD) over Adam: successful runs",
                pooled[SGD_LIKE],
                good["Adam"],
            ),
            together(
                "AdaBound, YellowFin and SGD are each above Adam and RAdam, over successful runs",
                *(above(f"{a} above {b}", good[a], good[b]) for a in SGD_LIKE for b in ADAM_LIKE),
            ),
            together(
                "AdaBound, YellowFin and SGD are each above Adam and RAdam, over all runs",
                *(above(f"{a} above {b}", every[a], every[b]) for a in SGD_LIKE for b in ADAM_LIKE),
            ),
            together(
                "AdaBound and YellowFin succeed most often",
                *(
                    oftener(f"{a} more often than {b}", counts[a], counts[b])
                    for a in ("AdaBound", "YellowFin")
                    for b in ("SGD", *ADAM_LIKE)
                ),
            ),
            together(
                "AdaBound is the most robust: it succeeds more often than each other",
                *(oftener(f"than {b}", counts["AdaBound"], counts[b]) for b in others),
            ),
            together(
                "Adam and RAdam have a higher spread than AdaBound and YellowFin, over successful runs",
                *(wider(f"{a} wider than {b}", good[a], good[b]) for a in ADAM_LIKE for b in ("AdaBound", "YellowFin")),
            ),
            Verdict(
                "Several runs of RAdam reach a good accuracy and fall back to 10 %",
                "replicated" if fell >= 2 else "not replicated",
                f"{fell} of {len(radam)} runs were above 20 % after some epoch and end below 12 %.",
            ),
        )


class FigureA_2(_Study):
    """Best performers."""

    name = "tb/figureA_2"
    title = "The best run of each optimiser on CIFAR-10"
    about = (
        "Figure A.2: the best run of each optimiser. Section 5.3: the top performers are AdaBound, YellowFin and SGD."
    )

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """The best curves together, and their settings."""
        rows = {name: found for name, found in self.rows(scale, results).items() if found}
        best = {name: max(found, key=lambda row: row[1]["accuracy"]) for name, found in rows.items()}
        named = {name: _by_epoch(result["accuracies"]) for name, (_, result) in best.items()}
        caption = (
            "The run of the highest last accuracy: chosen on the images on which it is shown, so a little too high, and"
            " the more so the more runs there are: SGD and YellowFin have five times as many as RAdam."
        )
        figure = plots.curves("Best runs", named, "epoch", "accuracy on held-out images", caption)
        columns = (Column("optimiser"), Column("accuracy", "%", "higher"), Column("NLL", "nats"), Column("settings"))
        table = tuple((name, r["accuracy"], r["val_nll"], _settings(cell)) for name, (cell, r) in best.items())
        return (Section("Best performers", (figure, Table("The best run of each", columns, table))),)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """The best of one optimiser against the best of another, of as many runs each; runs drawn anew."""
        found = {name: np.array(_accuracies(rows)) for name, rows in self.rows(scale, results).items()}

        def gap(ours: Any, others: Any) -> float:
            count = min(len(ours), len(others))
            return best_of(ours, count) - best_of(others, count)

        return tuple(
            together(
                f"The best run of {a} is above the best of {' and of '.join(ADAM_LIKE)}, of as many runs each",
                *(resampled(f"above {b}", gap, found[a], found[b], label="Higher by") for b in ADAM_LIKE),
            )
            for a in SGD_LIKE
        )


def _accuracies(rows: Sequence[Row], succeeded_only: bool = False) -> list[float]:
    return [result["accuracy"] for _, result in rows if succeeded(result) or not succeeded_only]


def _by_epoch(values: Sequence[float]) -> tuple[list[int], list[float]]:
    return list(range(1, len(values) + 1)), list(values)


def _curves(name: str, rows: Sequence[Row]) -> Figure:
    good = [result["accuracies"] for _, result in rows if succeeded(result)]
    named, errors = {}, {}
    if good:
        named["mean of the successful"] = _by_epoch(np.mean(good, axis=0).tolist())
        errors["mean of the successful"] = (
            np.std(good, axis=0, ddof=1).tolist() if len(good) > 1 else [0.0] * len(good[0])
        )
        named["best"] = _by_epoch(max(good, key=lambda curve: curve[-1]))
    caption = f"{len(good)} of {len(rows)} runs passed {THRESHOLD:.0%}; the band is one standard deviation over them."
    return plots.curves(name, named, "epoch", "accuracy on held-out images", caption, errors=errors)


def _table(rows: dict[str, list[Row]]) -> Table:
    labels = (("runs", ""), ("succeeded", "%"), ("diverged", "%"), ("mean", "%"), ("sd", "%"), ("best", "%"))
    columns = (Column("optimiser"), *(Column(*each) for each in labels))
    found: list[tuple[Value, ...]] = []
    for name, each in rows.items():
        good, count = _accuracies(each, succeeded_only=True), max(1, len(each))
        broken = sum(result["diverged"] for _, result in each)
        spread = float(np.std(good, ddof=1)) if len(good) > 1 else None
        numbers = (float(np.mean(good)), spread, max(good)) if good else (None, None, None)
        found.append((name, len(each), len(good) / count, broken / count, *numbers))
    return Table("Last accuracy on held-out images of the runs that ever passed 15 %", columns, tuple(found))


def _settings(cell: Training) -> str:
    used = {"lr": cell.lr}
    if cell.optimizer == "adabound":
        used["final lr"] = cell.final_lr
    if cell.optimizer in ("sgd", "yellowfin"):
        used["momentum"] = cell.momentum
    return f"{cell.optimizer}, " + ", ".join(f"{name} {value:.2g}" for name, value in used.items())
