"""What figures 5.4 and 5.5 run: SGD over a plane of momenta and rates, and the curvature that it meets."""

import warnings
from dataclasses import dataclass
from typing import Any

from torch.utils.data import TensorDataset

from credent.cells import Cell
from credent.data import batches
from credent.errors import ConvergenceWarning
from credent.optim import robust
from credent.papers.experiment import Scale
from credent.papers.tb.search import run
from credent.papers.tb.training import Training
from credent.sweeps.plan import settings
from credent.sweeps.vary import Uniform
from credent.training import fit

POINTS = {
    Scale.SMOKE: {"digits": 6},
    Scale.CPU: {"mnist": 80, "cifar10": 60},
    Scale.PAPER: {"mnist": 1000, "cifar10": 300},
}
SEEDS = {Scale.SMOKE: (0,), Scale.CPU: (0, 1, 2), Scale.PAPER: (0, 1, 2)}
BATCH = 200  # images on which the curvature is taken


@dataclass(frozen=True)
class Sharpness(Cell):
    """The curvature of the NLL at the means, before and after a training."""

    training: Training

    @property
    def seed(self) -> int:
        """That of the training."""
        return self.training.seed

    def run(self) -> dict[str, Any]:
        """The largest eigenvalue of the Hessian on some training images."""
        (x, y), _ = self.training.images()
        objective = self.training.objective(x.shape[1], len(x))
        size = self.training.size
        loader = batches(TensorDataset(x, y), size.batch, shuffle=True, seed=self.seed)
        optimizer = self.training.optimiser(objective, len(loader))
        batch = x[:BATCH], y[:BATCH]
        before = robust.curvature(objective, batch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # how far the scales come is not asked
            fit(objective, optimizer, loader, epochs=size.epochs, log_every=10**9, seed=self.seed, progress=False)
        return {"before": before, "after": robust.curvature(objective, batch)}


@dataclass(frozen=True)
class Panel:
    """One data set of the two figures, as the thesis has it."""

    data: str
    epochs: int
    largest: float
    """Learning rates are drawn up to here, and at smaller scales up to half of it: with less data fewer are stable."""
    curvature: float
    coefficient: float
    clipped: float
    """The quantile of the NLL above which colours are the same."""

    def at(self, scale: Scale) -> str:
        """The data set, or the built-in digits for a smoke run."""
        return "digits" if scale is Scale.SMOKE else self.data

    def highest(self, scale: Scale) -> float:
        """The end of the learning rates at this scale."""
        return self.largest if scale is Scale.PAPER else self.largest / 2

    def runs(self, scale: Scale) -> list[Training]:
        """SGD at uniform momenta and rates."""
        data = self.at(scale)
        vary = {"lr": Uniform(0.0, self.highest(scale)), "momentum": Uniform(0.0, 1.0)}
        drawn = settings(vary, POINTS[scale][data])
        return [run(scale, data, self.epochs, 0, {"optimizer": "sgd", **found}) for found in drawn]

    def curvatures(self, scale: Scale) -> list[Sharpness]:
        """Along a slow and stable training."""
        fields = {"optimizer": "sgd", "lr": 0.02, "momentum": 0.5}
        return [Sharpness(run(scale, self.at(scale), self.epochs, seed, fields)) for seed in SEEDS[scale]]


MNIST = Panel("mnist", epochs=1, largest=2.0, curvature=1.5, coefficient=1.9, clipped=0.75)
CIFAR = Panel("cifar10", epochs=10, largest=1.0, curvature=2.0, coefficient=0.45, clipped=0.5)
