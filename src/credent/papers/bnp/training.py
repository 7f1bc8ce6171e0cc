"""One ResNet-20 of the paper: a chain by SGD, SGLD, pSGLD or BNP, looked at after every epoch.

Drift and noise of a step are (eps/2) N grad and sqrt(eps (1 - m) T) xi. With N examples in the place of the paper's
PAPER_DATA the rate is eps = lr PAPER_DATA / N and the temperature T = N / PAPER_DATA, so that both are the paper's at
lr and T = 1. SGD is SGLD without the noise. The Bayesian model average is over the network at the end of each epoch
from `drop` on, where the rate falls by 10 and then by 1.5 % an epoch.

The paper does not say whether its network has BatchNorm; its Fisher matrices have a bias for each channel. "batch" is
ResNet-20 as it is, whose convolutions have no bias: BNP then scales, and cannot centre. "none" has biases in the place
of BatchNorm, and starts with residual branches a tenth as large, or nine of them in a row would explode.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import TensorDataset

from credent import metrics, models
from credent.cells import Cell
from credent.data import batches
from credent.fisher import Condition
from credent.likelihoods import Categorical
from credent.objectives import MAP, Objective
from credent.papers.images import Size, images
from credent.predictive import ClassPredictive
from credent.samplers import BNPSGLD, PSGLD, SGLD, Langevin
from credent.training import fit

Method = Literal["sgd", "sgld", "psgld", "psgld_fast", "bnp"]
Norm = Literal["batch", "none"]
NAMES: dict[Method, str] = {
    "bnp": "BNP",
    "sgld": "SGLD",
    "psgld": "pSGLD at 1e-6",
    "psgld_fast": "pSGLD at 5e-6",
    "sgd": "SGD",
}
PAPER_DATA = 50_000
BINS = 10
LOOKS = 5
"""How often condition numbers are taken."""
MOMENTUM = 0.9
DAMPING = 1.0
_BRANCH = 0.1


@dataclass(frozen=True)
class Training(Cell):
    """One chain."""

    data: str
    method: Method
    norm: Norm
    size: Size
    drop: int
    """Epochs before the rate falls."""
    seed: int

    def run(self) -> dict[str, Any]:
        """Accuracy and loss by epoch, scores and reliability of the model average, condition numbers by epoch."""
        train, val, test, *_ = images(self.data, self.size)
        torch.manual_seed(self.seed)
        net = build(self.norm, 100 if self.data == "cifar100" else 10, self.size.width, train.tensors[0].shape[1])
        sampler = self._sampler(net, len(train))
        loader = batches(train, self.size.batch, shuffle=True, seed=self.seed)
        look = _Look(len(loader), self.drop, val, test)
        fisher = Condition(
            net,
            "body.*",  # the convolutions
            units=1,
            precondition=sampler.precondition,
            report=len(loader) * max(1, self.size.epochs // LOOKS),
        )
        done = fit(
            MAP(net, Categorical(), num_data=len(train)),
            sampler,
            loader,
            epochs=self.size.epochs,
            scheduler=LambdaLR(sampler, lambda e: 1.0 if e < self.drop else 0.1 * 0.985 ** (e - self.drop)),
            monitors=[look, fisher],
            log_every=10**9,
            seed=self.seed,
            progress=False,
        )
        losses = [float(row["nll"]) for row in done.history if "nll" in row]  # others are the condition's
        return {"images": len(train), "losses": losses, **look.found(), "conditions": conditions(done.history)}

    def _sampler(self, net: nn.Module, count: int) -> Langevin:
        rate = self.size.lr * PAPER_DATA / count * (5 if self.method == "psgld_fast" else 1)
        common: dict[str, Any] = {"num_data": count, "momentum": MOMENTUM, "seed": self.seed}
        common["temperature"] = 0.0 if self.method == "sgd" else count / PAPER_DATA
        if self.method in ("sgd", "sgld"):
            return SGLD(net.parameters(), rate, **common)
        if self.method == "bnp":
            return BNPSGLD(net, rate, burn_in=None, **common)
        return PSGLD(net.parameters(), rate, burn_in=None, damping=DAMPING, **common)


def build(norm: Norm, classes: int, width: int, channels: int) -> nn.Module:
    """ResNet-20, with BatchNorm or with biases in its place."""
    net = models.ResNet20(classes, width, channels)
    if norm == "batch":
        return net
    for module in net.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.Identity())
            elif isinstance(child, nn.Conv2d):
                child.bias = nn.Parameter(torch.zeros(child.out_channels))
    for name, module in net.named_modules():
        if name.endswith("residual.3"):  # the second convolution of a branch
            module.weight.data.mul_(_BRANCH)
    return net


def conditions(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Condition numbers by layer, in the network's order, and kind; NaN for those that are infinite."""
    rows = [row for row in history if any(name.startswith("condition/") for name in row)]
    found: dict[str, Any] = {"epochs": [row["epoch"] for row in rows], "layers": {}}
    for row in rows:
        for key, value in row.items():
            if key.startswith("condition/"):
                _, layer, kind = key.split("/")
                kinds = found["layers"].setdefault(layer, {})
                kinds.setdefault(kind, []).append(math.nan if value is None else float(value))
    return found


class _Look:
    """A monitor: scores after every epoch, and the model average from `drop` on."""

    def __init__(self, every: int, drop: int, val: TensorDataset, test: TensorDataset) -> None:
        self.every, self._drop, self._parts = every, drop, {"val": val, "test": test}
        self._accuracies: dict[str, list[float]] = {name: [] for name in self._parts}
        self._drawn: dict[str, list[Tensor]] = {name: [] for name in self._parts}

    @torch.no_grad()
    def __call__(self, objective: Objective) -> dict[str, float]:
        objective.eval()
        for name, part in self._parts.items():
            x, y = part.tensors
            probs = torch.cat([objective.network.mean(chunk) for chunk in x.chunk(-(-len(x) // 1000))]).log_softmax(1)
            self._accuracies[name].append(metrics.accuracy(probs.exp(), y))
            if len(self._accuracies[name]) > self._drop:
                self._drawn[name].append(probs)
        objective.train()
        return {}

    def found(self) -> dict[str, Any]:
        """Numbers for the cell."""
        numbers: dict[str, Any] = {"draws": len(self._drawn["test"])}
        for name, part in self._parts.items():
            y = part.tensors[1]
            pred = ClassPredictive.average(self._drawn[name])
            numbers |= {
                f"{name}_accuracies": self._accuracies[name],
                f"{name}_last": self._accuracies[name][-1],
                f"{name}_accuracy": metrics.accuracy(pred.probs, y),
                f"{name}_nll": -pred.log_prob(y).double().mean().item(),
                f"{name}_ece": metrics.ece(pred.probs, y, bins=BINS),
                f"{name}_mce": metrics.mce(pred.probs, y, bins=BINS),
            }
        average = ClassPredictive.average(self._drawn["test"])
        diagram = metrics.reliability(average.probs, self._parts["test"].tensors[1], BINS)
        return numbers | {
            "count": diagram.count.tolist(),
            "confidence": diagram.confidence.tolist(),
            "correct": diagram.accuracy.tolist(),
        }
