"""Figure 4: what a small network does not know about two curves, under the Gaussian and the inverse-reference prior."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from credent import models
from credent.cells import Cell
from credent.data import load
from credent.errors import ConvergenceWarning
from credent.families import Radial
from credent.likelihoods import Gaussian
from credent.objectives import VI
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.ir.settings import PRIORS, READ, SEEDS
from credent.papers.ir.table1 import READINGS
from credent.papers.ir.training import prior
from credent.papers.seeds import by_seed, estimate
from credent.papers.verdict import Verdict, lower
from credent.predictive import GaussianPredictive
from credent.report import Column, Section, Table, plots
from credent.report.numbers import Value
from credent.training import fit

CURVES = {"cubic": "A cubic", "sine_gap": "A sine with a gap"}
ROWS = ("gaussian", *READINGS, "none")
STEPS = {Scale.SMOKE: 50, Scale.CPU: 3000, Scale.PAPER: 3000}
BETA = 0.03  # at 1, q under a Gaussian prior returns to it and the curve is not fitted at all
REFRESH = 100  # steps, of the inner reading
_GRID = torch.linspace(-2.5, 2.5, 101)
_HIDDEN = 50
_SPREAD = 1e-9


@dataclass(frozen=True)
class Band(Cell):
    """A network of three layers on one curve."""

    curve: str
    prior: str
    beta: float
    steps: int
    seed: int

    def run(self) -> dict[str, Any]:
        """The band over standardised inputs, and its mean width among the training inputs and away from them."""
        data = load(self.curve, seed=self.seed)
        x, y = data.train[:]
        torch.manual_seed(self.seed)
        net = models.MLP(1, 1, (_HIDDEN, _HIDDEN))
        beta = 0.0 if self.prior == "none" else self.beta
        bnn = VI(net, Gaussian("learnt"), prior(self.prior, REFRESH), num_data=len(x), beta=beta, family=Radial())
        optimizer = torch.optim.Adam(bnn.param_groups(1e-2, 1e-2), fused=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # where the scales go is what is asked
            fit(bnn, optimizer, [(x, y)], steps=self.steps, log_every=10**9, seed=self.seed, progress=False)
        pred = bnn.predict(_GRID[:, None], samples=100)
        assert isinstance(pred, GaussianPredictive)
        doubt = pred.epistemic[:, 0].double()
        near = torch.cdist(_GRID[:, None], x).amin(1) < 0.1  # a training input within a tenth of their spread
        return {
            "mean": pred.mean[:, 0].tolist(),
            "epistemic": doubt.tolist(),
            "total": pred.stddev[:, 0].tolist(),
            "x": x[:, 0].tolist(),
            "y": y[:, 0].tolist(),
            "log_seen": math.log(float(doubt[near].mean()) + _SPREAD),
            "log_unseen": math.log(float(doubt[~near].mean()) + _SPREAD),
        }


class Figure4(Experiment):
    """Epistemic bands."""

    name = "ir/figure4"
    title = "Epistemic uncertainty on two curves"
    about = (
        "Figure 4: a network of three layers under the inverse-reference prior is slightly less certain where there are"
        " no data than one under the Gaussian prior, and both underestimate."
    )
    takes: ClassVar = {Scale.SMOKE: "10 s", Scale.CPU: "3 min on 2 cores"}

    def setting(self, scale: Scale) -> str:
        """Curves, network, training."""
        return (
            f"A cubic (20 points) and a sine with a gap (50 points), in the place of the paper's curves, which it does"
            f" not print; two hidden layers of {_HIDDEN}, radial posteriors, beta {BETA:g}, learnt noise,"
            f" {STEPS[scale]:,} steps of Adam at 0.01; {len(SEEDS[scale])} seed{'s' if len(SEEDS[scale]) > 1 else ''},"
            " each with its own data."
            f" The inner reading is refreshed after {REFRESH} steps. {READ}"
        )

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Two curves under each prior."""
        return [
            Band(curve, name, BETA, STEPS[scale], seed) for seed in SEEDS[scale] for curve in CURVES for name in ROWS
        ]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """A band for each prior, of the first seed, and the widths over all."""
        found = []
        for curve, label in CURVES.items():
            bands = []
            for name in ROWS:
                result = results[Band(curve, name, BETA, STEPS[scale], SEEDS[scale][0])]
                if result:
                    drawn = plots.predictive_band(
                        _GRID.tolist(), *(result[k] for k in ("mean", "epistemic", "total", "x", "y"))
                    )
                    bands.append(replace(drawn, title=PRIORS[name]))
            found.append(Section(label, (*bands, self._widths(scale, curve, results))))
        return tuple(found)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Wider than the Gaussian's where there are no data, but only slightly: less than twice as wide."""
        found = []
        for curve, label in CURVES.items():
            usual = self._numbers(scale, curve, "gaussian", "log_unseen", results)
            twice = {seed: width + math.log(2) for seed, width in usual.items()}
            for reading in READINGS:
                ours = self._numbers(scale, curve, reading, "log_unseen", results)
                where = f"{label}: {PRIORS[reading]} is less certain than Gaussian away from the data"
                found.append(lower(f"{where} (log of the mean width)", usual, ours))
                found.append(lower(f"{where}, by less than twice its width", ours, twice))
        return tuple(found)

    def _widths(self, scale: Scale, curve: str, results: Results) -> Table:
        columns = (Column("prior"), Column("among the data, log"), Column("away from them, log"))
        rows: list[tuple[Value, ...]] = [
            (
                PRIORS[name],
                *(estimate(self._numbers(scale, curve, name, k, results)) for k in ("log_seen", "log_unseen")),
            )
            for name in ROWS
        ]
        return Table("Mean epistemic standard deviation", columns, tuple(rows))

    def _numbers(self, scale: Scale, curve: str, name: str, number: str, results: Results) -> dict[int, float]:
        return by_seed(results, number, curve=curve, prior=name, steps=STEPS[scale])
