"""Figures 5.4 and 5.5: how far SGD comes in a short training, over momentum and learning rate.

Two curves of the thesis are drawn over the runs, h the curvature and a a coefficient that it read off its figures,

    alpha = (1 - sqrt(mu))^2 / h        the lower end of the robust region (3.2.1)
    alpha = a (1 - mu)                  where the mean update alpha / (1 - mu) is a, an upper bound (3.1.7)

and a is fitted here too: `edge` is the a that parts the runs that succeed from those that do not with fewest mistakes.

>>> edge(np.array([0.1, 0.2, 0.9, 2.0]), np.array([True, True, False, False])).round(3)
np.float64(0.55)
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from credent.cells import Cell
from credent.optim import robust
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import estimate
from credent.papers.tb.panels import BATCH, CIFAR, MNIST, SEEDS, Panel
from credent.papers.tb.ranks import above, resampled
from credent.papers.tb.search import Row, described, finite, known, landscape, succeeded
from credent.papers.tb.settings import NAMES, needs
from credent.papers.tb.training import Training
from credent.papers.verdict import Verdict
from credent.report import Column, Section, Table

_MOMENTA = np.linspace(0, 0.99, 60)


def edge(update: NDArray[np.float64], good: NDArray[np.bool_]) -> np.float64:
    """The threshold below which runs succeed, with the fewest mistakes; between two runs, halfway."""
    order = np.argsort(update)
    x, ok = update[order], good[order]
    failures_below = np.concatenate([[0], np.cumsum(~ok)])
    successes_above = ok.sum() - np.concatenate([[0], np.cumsum(ok)])
    best = int(np.argmin(failures_below + successes_above))
    return np.float64(x[0] if best == 0 else x[-1] if best == len(x) else (x[best - 1] + x[best]) / 2)


class _Momentum(Experiment):
    """One panel."""

    panel: ClassVar[Panel]

    def setting(self, scale: Scale) -> str:
        """Runs and ranges."""
        panel = self.panel
        return (
            f"{described(scale, panel.at(scale), panel.epochs)} SGD, {len(panel.runs(scale))} runs of one seed,"
            f" momentum uniform below 1 and rate uniform below {panel.highest(scale):g}. The curvature is the largest"
            f" eigenvalue of the Hessian of the NLL at the means, on {BATCH} training images, before and after training"
            f" by SGD at rate 0.02 and momentum 0.5; {len(SEEDS[scale])} seed{'s' if len(SEEDS[scale]) > 1 else ''}."
        )

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """What is read."""
        return needs((self.panel.at(scale),))

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """The landscape and the curvatures."""
        return [*self.panel.runs(scale), *self.panel.curvatures(scale)]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """NLL and accuracy over the plane, and the numbers of the lines."""
        panel, rows = self.panel, known(self.panel.runs(scale), results)
        h, a = self._curvature(scale, results, "after"), _edge(rows)
        lines = [
            (f"robust region from, h = {panel.curvature:g}", _MOMENTA, _lower(panel.curvature)),
            (f"a (1 - mu), a = {panel.coefficient:g}", _MOMENTA, panel.coefficient * (1 - _MOMENTA)),
        ]
        if math.isfinite(h) and h > 0:
            lines.append((f"robust region from, h = {h:.3g} as measured", _MOMENTA, _lower(h)))
        if math.isfinite(a):
            lines.append((f"a (1 - mu), a = {a:.2g} as fitted", _MOMENTA, a * (1 - _MOMENTA)))
        where = NAMES[panel.at(scale)]
        figures = tuple(
            landscape(
                f"{label} on {where}",
                rows,
                lambda cell: (cell.momentum, cell.lr),
                value,
                ("momentum", "learning rate", label),
                "A dot is a run; a cross diverged. The thesis's lines, and the same lines as measured and fitted here.",
                lines=lines,
                clip=clip,
                better=better,
            )
            for value, label, clip, better in (
                ("val_nll", "NLL", (0.0, panel.clipped), "lower"),
                ("accuracy", "accuracy", (0.0, 1.0), "higher"),
            )
        )
        return (Section("Landscape", (*figures, self._table(scale, results, a))),)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """The upper bound, that the two belong together, and the lower bound."""
        rows = known(self.panel.runs(scale), results)
        good = [succeeded(result) for _, result in rows]
        update = [_update(cell) for cell, _ in rows]
        table = np.array([[_update(c), c.lr, c.momentum, ok] for (c, _), ok in zip(rows, good, strict=True)])
        found = [
            above(
                "(3.1.7) There is a region of death above a (1 - mu): runs that fail have the larger alpha / (1 - mu)",
                [u for u, ok in zip(update, good, strict=True) if not ok],
                [u for u, ok in zip(update, good, strict=True) if ok],
            ),
            resampled(
                "alpha and mu cannot be tuned independently: alpha / (1 - mu) tells failures better than either alone",
                _together_over_alone,
                table.reshape(-1, 4),
                label="Area under the curve higher by",
            ),
        ]
        measured = self._curvature(scale, results, "after")
        for h, label in ((self.panel.curvature, "the thesis's"), (measured, "measured")):
            if not (math.isfinite(h) and h > 0):
                continue
            stable = [(c, r) for c, r in finite(rows) if succeeded(r)]
            low = [r["val_nll"] for c, r in stable if c.lr < robust.rates(c.momentum, h)[0]]
            within = [r["val_nll"] for c, r in stable if c.lr >= robust.rates(c.momentum, h)[0]]
            claim = f"The NLL is higher below the robust region (h = {h:.3g}, {label}), over successful runs"
            found.append(above(claim, low, within))
        return tuple(found)

    def _curvature(self, scale: Scale, results: Results, when: str) -> float:
        values = [results[cell][when] for cell in self.panel.curvatures(scale) if results[cell]]
        return float(np.mean(values)) if values else math.nan

    def _table(self, scale: Scale, results: Results, a: float) -> Table:
        cells = {cell.seed: results[cell] for cell in self.panel.curvatures(scale)}
        before, after = (estimate({seed: r[when] for seed, r in cells.items() if r}) for when in ("before", "after"))
        columns = (Column("what"), Column("here"), Column("thesis"))
        rows = (
            ("coefficient a of the upper line", a if math.isfinite(a) else None, self.panel.coefficient),
            ("curvature h, before training", before, None),
            ("curvature h, after it", after, self.panel.curvature),
        )
        return Table("The lines; the thesis chose its by eye", columns, rows)


class Figure5_4(_Momentum):
    """MNIST."""

    name = "tb/figure5_4"
    title = "Learning rate and momentum of SGD on MNIST"
    about = (
        "Figure 5.4: in one epoch on MNIST there is a stable region of learning rate and momentum, bounded above by a"
        " line, alpha + 1.9 mu <= 1.9, and not quite by the robust region of curvature 1.5 below. The two cannot be"
        " tuned independently."
    )
    takes: ClassVar = {Scale.SMOKE: "5 s", Scale.CPU: "1 min on 2 cores"}
    panel = MNIST


class Figure5_5(_Momentum):
    """CIFAR-10."""

    name = "tb/figure5_5"
    title = "Learning rate and momentum of SGD on CIFAR-10"
    about = (
        "Figure 5.5: in ten epochs on CIFAR-10 the stable region has the shape of MNIST's and is significantly smaller:"
        " the line's coefficient is 0.45 against 1.9, the curvature 2.0."
    )
    takes: ClassVar = {Scale.SMOKE: "5 s", Scale.CPU: "2 min on 2 cores"}
    panel = CIFAR

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """The other panel too, to compare with."""
        return needs(tuple(dict.fromkeys((CIFAR.at(scale), MNIST.at(scale)))))

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """The other panel's runs are shared."""
        return [*_Momentum.cells(self, scale), *MNIST.runs(scale)]

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """And whether the region is smaller."""
        sets = [
            np.array([[_update(c), succeeded(r)] for c, r in known(panel.runs(scale), results)]).reshape(-1, 2)
            for panel in (MNIST, CIFAR)
        ]
        smaller = resampled(
            "The stable region is smaller than MNIST's: the fitted coefficient a is lower",
            lambda mnist, cifar: float(_fitted(mnist) - _fitted(cifar)),
            *sets,
            label="Lower by",
        )
        return (*_Momentum.verdicts(self, scale, results), smaller)


def _update(cell: Training) -> float:
    return cell.lr / (1 - cell.momentum)


def _edge(rows: Sequence[Row]) -> float:
    return _fitted(np.array([[_update(c), succeeded(r)] for c, r in rows]).reshape(-1, 2))


def _fitted(table: NDArray[np.float64]) -> float:
    good = table[:, 1] > 0
    return float(edge(table[:, 0], good)) if good.any() and not good.all() else math.nan


def _lower(curvature: float) -> NDArray[np.float64]:
    return np.array([robust.rates(mu, curvature)[0] for mu in _MOMENTA])


def _together_over_alone(table: NDArray[np.float64]) -> float:
    """How much better alpha / (1 - mu) tells failures from successes than the better of alpha and mu."""
    bad = table[:, 3] == 0
    if bad.all() or not bad.any():
        return math.nan
    areas = [_area(table[:, k], bad) for k in range(3)]
    return areas[0] - max(areas[1:])


def _area(value: NDArray[np.float64], bad: NDArray[np.bool_]) -> float:
    """Probability that a failing run has the larger value, ties counting half."""
    ranks = stats.rankdata(value)
    n, m = int(bad.sum()), int((~bad).sum())
    return float((ranks[bad].sum() - n * (n + 1) / 2) / (n * m))
