"""Figure 5.9: a random search over the rates of the means and of the scales, for AdaBound and Adam."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.tb.ranks import above, oftener, resampled, rises, unrelated
from credent.papers.tb.search import Row, described, finite, known, landscape, run, succeeded
from credent.papers.tb.settings import needs
from credent.papers.tb.training import Training
from credent.papers.verdict import Verdict
from credent.report import Column, Section, Table
from credent.sweeps.plan import settings
from credent.sweeps.vary import LogUniform

OPTIMISERS = {"adabound": "AdaBound", "adam": "Adam"}
POINTS = {Scale.SMOKE: 6, Scale.CPU: 45, Scale.PAPER: 200}
LOWEST, HIGHEST = 1e-4, 1.0
EPOCHS = 50
UNSTABLE = 0.1  # the rate of the means beyond which the thesis's AdaBound breaks


class Figure5_9(Experiment):
    """Two rates."""

    name = "tb/figure5_9"
    title = "Own learning rates for means and scales"
    about = (
        "Figure 5.9 and section 5.4: AdaBound has an optimal rate of the means, breaks above 0.1, and does not care"
        " about the rate of the scales. Adam has optimal values of both, the region of the means' narrower; its"
        " divergence falls with the rate of the scales. Scales should learn more slowly than means."
    )
    takes: ClassVar = {Scale.SMOKE: "5 s", Scale.CPU: "3 min on 2 cores"}

    def setting(self, scale: Scale) -> str:
        """Runs and ranges."""
        return (
            f"{described(scale, _data(scale), EPOCHS)} {POINTS[scale]} runs of one seed for each optimiser, both rates"
            f" log-uniform from {LOWEST:g} to {HIGHEST:g}, the same for both; AdaBound's final rate is 0.1 for both"
            " groups."
        )

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """CIFAR-10."""
        return needs((_data(scale),))

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Both optimisers at the same rates."""
        return [cell for name in OPTIMISERS for cell in _runs(scale, name)]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Accuracy and divergence of each, and the best runs."""
        sections = []
        for name, label in OPTIMISERS.items():
            rows = known(_runs(scale, name), results)
            figures = tuple(
                landscape(
                    f"{label}: {what}",
                    rows,
                    lambda cell: (cell.lr, _scale_rate(cell)),
                    value,
                    ("rate of the means", "rate of the scales", what),
                    "A dot is a run; a cross diverged." + extra,
                    log_x=True,
                    log_y=True,
                    clip=(0.0, upper),
                    better=better,
                )
                for value, what, extra, upper, better in (
                    ("accuracy", "accuracy", "", 1.0, "higher"),
                    ("kl", "KL in nats", " The upper tenth has one colour.", 0.9, "lower"),
                )
            )
            sections.append(Section(label, (*figures, _best(rows))))
        return tuple(sections)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Claim by claim, for each optimiser."""
        bound, adam = (known(_runs(scale, name), results) for name in OPTIMISERS)
        calm = [row for row in bound if row[0].lr < UNSTABLE]
        wild = [row for row in bound if row[0].lr >= UNSTABLE]
        steady = finite(adam)
        return (
            oftener("AdaBound becomes unstable at rates of the means above 0.1", _counts(calm), _counts(wild)),
            unrelated(
                "AdaBound's accuracy does not depend on the rate of the scales (means' below 0.1)", *_against(calm)
            ),
            above(
                "AdaBound's divergence is worse at rates of the means above 0.1",
                [r["kl"] for _, r in finite(wild)],
                [r["kl"] for _, r in finite(calm)],
            ),
            resampled(
                "Adam: the best quarter of runs is narrower in the means' rate than in the scales'",
                _narrower,
                np.array([[cell.lr, _scale_rate(cell), r["accuracy"]] for cell, r in adam]).reshape(-1, 3),
                label="Standard deviations of log10 differ by",
            ),
            rises(
                "Adam: the larger the rate of the scales, the lower the divergence",
                [_scale_rate(cell) for cell, _ in steady],
                [-r["kl"] for _, r in steady],
            ),
            above(
                "Adam is more accurate where scales learn more slowly than means",
                [r["accuracy"] for cell, r in adam if _scale_rate(cell) < cell.lr],
                [r["accuracy"] for cell, r in adam if _scale_rate(cell) >= cell.lr],
            ),
        )


def _data(scale: Scale) -> str:
    return "digits" if scale is Scale.SMOKE else "cifar10"


def _runs(scale: Scale, optimizer: str) -> list[Training]:
    rates = LogUniform(LOWEST, HIGHEST)
    drawn = settings({"lr": rates, "scale_lr": rates}, POINTS[scale])
    return [run(scale, _data(scale), EPOCHS, 0, {"optimizer": optimizer, **each}) for each in drawn]


def _scale_rate(cell: Training) -> float:
    assert cell.scale_lr is not None
    return cell.scale_lr


def _counts(rows: Sequence[Row]) -> tuple[int, int]:
    return sum(succeeded(result) for _, result in rows), len(rows)


def _against(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [_scale_rate(cell) for cell, _ in rows], [result["accuracy"] for _, result in rows]


def _narrower(table: NDArray[np.float64]) -> float:
    """By how much log10 of the means' rate is spread less than that of the scales', in the most accurate quarter."""
    best = table[np.argsort(-table[:, 2])[: max(2, len(table) // 4)]]
    spread: Any = np.log10(best[:, :2]).std(0, ddof=1)
    return float(spread[1] - spread[0]) if np.isfinite(spread).all() else math.nan


def _best(rows: Sequence[Row]) -> Table:
    columns = (
        *(Column(f"rate of the {which}, log10") for which in ("means", "scales")),
        Column("accuracy", "%"),
        Column("KL", "nats"),
    )
    top = sorted(finite(rows), key=lambda row: -row[1]["accuracy"])[:5]
    found = tuple((math.log10(c.lr), math.log10(_scale_rate(c)), r["accuracy"], r["kl"]) for c, r in top)
    return Table("The five most accurate runs", columns, found)
