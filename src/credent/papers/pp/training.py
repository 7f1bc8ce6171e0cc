"""One network of the paper: trained with one penalty at one weight, scored, and searched for neurons that are gone.

    loss = -(1/B) sum_i log p(y_i | x_i, w) + lambda sum_l lambda_l r(w_l),         lambda = beta / N

beta is lambda in units of lambda_Th = 1 / N, the weight that Bayes' rule gives a prior. The factors of the layers are

    "bayesian"   exp(-lambda_l r) is a prior of variance 1 / fan_in                  `penalties.factor`
    "usual"      1 for L2 and L1, sqrt(size of a group) for groups                   [Alvarez, Salzmann 2016]

The paper does not print its usual ones. Biases and norm layers pay nothing.

A neuron counts as gone if its norm is at most TOLERANCE of the largest in its layer. Whether the network really does
without it is measured, by setting its weights to zero: behind a norm layer, which undoes a neuron's size, small
incoming weights may still matter. Classes are no neurons for rows, and the images' channels none for columns.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from credent import metrics, models
from credent.cells import Cell
from credent.families import Dirac
from credent.layout import Layout
from credent.likelihoods import Categorical
from credent.neurons import Over, neurons
from credent.objectives import MAP
from credent.papers.images import Size, images
from credent.papers.images import train as trained
from credent.penalties import L1, L2, GroupLasso, dead
from credent.penalties.weights import OnWeights
from credent.predict import predict
from credent.predictive import ClassPredictive

Net = Literal["cvnn", "vgg19"]
Which = Literal["none", "l2", "l1", "rows", "columns"]
Factors = Literal["usual", "bayesian"]
SIDES: tuple[Over, ...] = ("rows", "columns")
TOLERANCE = 0.05


@dataclass(frozen=True)
class Training(Cell):
    """One run. Without a penalty, beta is 0."""

    data: str
    net: Net
    penalty: Which
    factors: Factors
    beta: float
    size: Size
    seed: int

    def run(self) -> dict[str, Any]:
        """Scores on test and validation images; neurons, those gone, and the test accuracy without them, by side."""
        train, val, test, *_ = images(self.data, self.size)
        torch.manual_seed(self.seed)
        pixels = train.tensors[0]
        net = build(self.net, self.size.width, pixels.shape[1], pixels.shape[2])
        objective = MAP(
            net, Categorical(), description(self.penalty, self.factors, net), num_data=len(train), beta=self.beta
        )
        done, _ = trained(objective, train, self.size, self.seed)
        found: dict[str, Any] = {"images": len(train), "loss": float(done.history[-1]["loss"])}
        for name, part in {"val": val, "test": test}.items():
            x, y = part.tensors
            pred = _predicted(net, x)
            found[f"{name}_accuracy"] = metrics.accuracy(pred.probs, y)
            found[f"{name}_nll"] = -pred.log_prob(y).double().mean().item()
        for over in SIDES:
            small = gone(net, over)
            found[f"neurons_{over}"] = sum(len(each) for each in small.values())
            found[f"gone_{over}"] = sum(int(each.sum()) for each in small.values())
            x, y = test.tensors
            left = metrics.accuracy(_predicted(without(net, over, small), x).probs, y)
            found[f"test_accuracy_without_{over}"] = left
        return found


def build(net: Net, width: int, channels: int, pixels: int) -> nn.Module:
    """The network for ten classes."""
    if net == "cvnn":
        return models.CVNN(10, width, channels, pixels)
    return models.VGG19(10, width, channels)


def description(penalty: Which, factors: Factors, net: nn.Module) -> OnWeights:
    """The penalty with this kind of factors; none is any at beta 0."""
    usual = factors == "usual"
    if penalty in ("none", "l2"):
        return L2(1.0 if usual else "fan_in")
    if penalty == "l1":
        return L1(1.0 if usual else "fan_in")
    over: Over = "rows" if penalty == "rows" else "columns"
    sizes = {name: math.sqrt(each.size(over)) for name, each in neurons(Layout(net)).items()}
    return GroupLasso(sizes if usual else "fan_in", over)


def gone(net: nn.Module, over: Over) -> dict[str, Tensor]:
    """Which neurons are gone, by the weight's name."""
    small = dead(net, over, TOLERANCE)
    names = list(small)[:-1] if over == "rows" else list(small)[1:]
    return {name: small[name] for name in names}


def without(net: nn.Module, over: Over, small: dict[str, Tensor]) -> nn.Module:
    """A copy in which the weights of these neurons are zero; for linear layers and convolutions of one group."""
    pruned = copy.deepcopy(net)
    for name, each in small.items():
        weight = pruned.get_parameter(name).data
        (weight if over == "rows" else weight.transpose(0, 1))[each] = 0
    return pruned


def _predicted(net: nn.Module, x: Tensor) -> ClassPredictive:
    pred = predict(net, Dirac().bind(Layout(net)), Categorical(), x, how="mean")
    assert isinstance(pred, ClassPredictive)
    return pred
