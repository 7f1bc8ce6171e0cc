"""One chain of Figure 3.1: the noisy Griewank function on badly scaled inputs, learnt by SGLD, pSGLD or BNP.

    y = 1 + (x1^2 + x2^2) / 4000 - cos(x1) cos(x2 sqrt(2) / 2) + noise,        x in [-7.5, -5] x [-2.5, 15]

The paper writes noise N(0, 0.1) and means, or so its rates say, the variance: at a standard deviation of 0.1 the
gradient is ten times as large, and SGLD at 1e-5 diverges. `griewank.json` keeps the mean and standard deviation of the
posterior's curve at POINTS test inputs by NUTS, which tests/papers/reference/make_griewank.py made.

>>> x, y = data()
>>> x.shape, y.shape, inputs(5, seed=1).amin(0) > torch.tensor([-7.5, -2.5])
(torch.Size([1000, 2]), torch.Size([1000, 1]), tensor([True, True]))
"""

import json
import math
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from credent.cells import Cell
from credent.data import batches
from credent.families import Draws
from credent.likelihoods import Gaussian
from credent.objectives import MAP
from credent.predict import predict
from credent.predictive import Predictive
from credent.samplers import BNPSGLD, PSGLD, SGLD, Langevin
from credent.training import Thin, fit

ROWS, TESTS, POINTS, BATCH, VARIANCE = 1000, 40_000, 200, 100, 0.1
Method = Literal["sgld", "psgld", "bnp"]
NAMES: dict[Method, str] = {"bnp": "BNP", "sgld": "SGLD", "psgld": "pSGLD"}
RATES: dict[Method, float] = {"bnp": 1e-5, "sgld": 1e-5, "psgld": 5e-5}
NUTS = "griewank.json"


def curve(x: Tensor) -> Tensor:
    """The Griewank function without noise, (n, 2) to (n, 1)."""
    return 1 + x.square().sum(1, keepdim=True) / 4000 - (x[:, :1].cos() * (x[:, 1:] * math.sqrt(2) / 2).cos())


def inputs(rows: int, seed: int | torch.Generator) -> Tensor:
    """Uniform on the paper's rectangle, 2.5 wide and 17.5 high."""
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    return torch.rand(rows, 2, generator=generator) * torch.tensor([2.5, 17.5]) + torch.tensor([-7.5, -2.5])


def data() -> tuple[Tensor, Tensor]:
    """The noisy examples, the same for every run."""
    generator = torch.Generator().manual_seed(0)
    x = inputs(ROWS, generator)
    return x, curve(x) + math.sqrt(VARIANCE) * torch.randn(ROWS, generator=generator)[:, None]


@dataclass(frozen=True)
class Chain(Cell):
    """One chain, whose draws after each of the last `average` epochs are what it says."""

    method: Method
    lr: float
    epochs: int
    average: int
    seed: int

    def run(self) -> dict[str, Any]:
        """Mean and standard deviation of the curve at POINTS inputs, its error on all, and on each epoch's batches."""
        x, y = data()
        torch.manual_seed(self.seed)
        net = nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
        likelihood = Gaussian(scale=math.sqrt(VARIANCE))
        done = fit(
            MAP(net, likelihood, num_data=ROWS),
            self._sampler(net),
            batches(TensorDataset(x, y), BATCH, shuffle=True, seed=self.seed),
            epochs=self.epochs,
            keep=Thin(after=(self.epochs - self.average) / self.epochs, every=ROWS // BATCH),
            log_every=10**9,
            seed=self.seed,
            progress=False,
        )
        assert isinstance(done.posterior, Draws)

        def ask(at: Tensor) -> Predictive:
            return predict(net, done.posterior, likelihood, at, samples=None, batch_size=4000)

        tests = inputs(TESTS, seed=1)
        pred = ask(tests[:POINTS])
        mean = torch.cat([ask(part).mean for part in tests.chunk(10)])  # regression holds the outputs of all draws
        return {
            "mean": pred.mean[:, 0].tolist(),
            "sd": pred.epistemic[:, 0].tolist(),
            "rmse": float((mean - curve(tests)).double().square().mean().sqrt()),
            "draws": len(done.posterior),
            "errors": [_rmse(float(row["nll"])) for row in done.history][:: max(1, self.epochs // 100)],
        }

    def _sampler(self, net: nn.Module) -> Langevin:
        common: dict[str, Any] = {"num_data": ROWS, "seed": self.seed}
        if self.method == "sgld":
            return SGLD(net.parameters(), self.lr, **common)
        if self.method == "psgld":
            return PSGLD(net.parameters(), self.lr, burn_in=None, **common)
        return BNPSGLD(net, self.lr, burn_in=None, decay=0.985, floor=(1e-3, 1e-3), **common)


def _rmse(nll: float) -> float:
    """Root mean squared error of the outputs, from nll = mse / (2 v) + log(2 pi v) / 2."""
    return math.sqrt(2 * VARIANCE * (nll - math.log(2 * math.pi * VARIANCE) / 2))


def nuts() -> dict[str, Any]:
    """Moments at the first POINTS test inputs, by NUTS."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath(NUTS).read_text())
    return found
