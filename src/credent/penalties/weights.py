"""Penalties of a network's weights: the sum over its layers of a factor times a measure of their means.

    r(q) = sum_l lambda_l m(mu_l),          loss = -(1/B) sum_i E_q log p(y_i | x_i, w) + (beta / N) r(q)

mu_l are the means of the weights of layer l; with MAP they are the weights. The factor is a number, a rule, or one of
these per layer, by name patterns of which the first that matches counts:

    3.0                           lambda itself
    "fan_in" "kaiming" "glorot"   the lambda at which exp(-r) is a prior of that variance (`penalties.factor`)
    {"0.*": 3.0, "*": "fan_in"}   layers apart; 0 leaves a layer free

With a rule nothing remains to be searched for: the objective's beta / N at beta = 1 is the overall weight 1 / num_data
that Bayes' rule gives the prior. Where the best beta is smaller, the likelihood is raised to 1 / beta, akin to a cold
posterior, and that is what to report. [Wolinski, Charpiat, Ollivier 2022]

Only weights pay. Biases and the gains and shifts of norm layers have no fan-in that a factor could come from, and
shrinking them prunes nothing.

The scales of q are not looked at. So in VI nothing holds them up: the likelihood alone shrinks them towards zero, and
r(q) is the KL to no prior at all (`penalties.prior_of` says so). MAP has no scales and is at home here; for VI with the
same belief about the weights, take the prior behind the penalty, such as priors.Gaussian for L2.
"""

import fnmatch
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import TypeGuard

import torch
from torch import Tensor

from credent.errors import InputError
from credent.families.posterior import Variational
from credent.layout import Layout
from credent.neurons import Neurons, neurons
from credent.penalty import Penalty
from credent.priors.scales import Rule, scales

Factor = float | Rule | Mapping[str, float | Rule]

RULES: tuple[Rule, ...] = ("fan_in", "kaiming", "glorot")


class OnWeights(ABC):
    """The description of a penalty of the weights' means. `factor` in a subclass is a `Factor`."""

    factor: Factor

    @abstractmethod
    def measure(self, mean: Tensor, neurons: Neurons) -> Tensor:
        """The penalty of one weight at factor one, a scalar."""

    @abstractmethod
    def factor_for(self, variance: float, neurons: Neurons) -> float:
        """The factor at which the density proportional to exp(-r) has this variance for each number of a weight."""

    def bind(self, layout: Layout) -> "WeightPenalty":
        """The penalty for this network's random weights."""
        return WeightPenalty(self, layout)


class WeightPenalty(Penalty):
    """A penalty on a network: its factor for every random weight."""

    def __init__(self, description: OnWeights, layout: Layout) -> None:
        super().__init__()
        self.description = description
        self.neurons = neurons(layout)
        self.factor = _factors(description, layout, self.neurons)

    def forward(self, q: Variational) -> Tensor:
        """r(q), differentiable in the means."""
        means = q.layout.params()
        each = [f * self.description.measure(means[k], self.neurons[k]) for k, f in self.factor.items()]
        return torch.stack(each).sum()


def check_factor(factor: object) -> None:
    """Numbers >= 0 and known rules only."""
    for each in factor.values() if isinstance(factor, Mapping) else [factor]:
        if isinstance(each, str):
            if each == "edge_of_chaos":
                raise InputError(
                    "factor='edge_of_chaos' depends on the activation, which a weight does not know: write"
                    " factor={'0.*': penalties.factor(penalties.L2, net[0], 'edge_of_chaos', activation=torch.tanh)}."
                )
            if each not in RULES:
                raise InputError(f"factor={each!r}: write a number, 'fan_in', 'kaiming' or 'glorot'.")
        elif not (finite(each) and each >= 0):
            raise InputError(
                f"factor={each!r}: a penalty's factor is a number >= 0; a negative one would reward large weights"
                " without bound."
            )


def finite(value: object) -> TypeGuard[float]:
    """A real number that is neither infinite nor NaN."""
    return isinstance(value, Real) and math.isfinite(value)


def number(description: OnWeights) -> float:
    """The factor of a penalty that has one number for all layers."""
    factor = description.factor
    if isinstance(factor, str | Mapping):
        name = type(description).__name__
        raise InputError(
            f"{name}(factor={factor!r}) is another function in every layer; for one weight, write its number, as in"
            f" {name}(factor=penalties.factor(penalties.{name}, net[0]))."
        )
    return float(factor)


def _factors(description: OnWeights, layout: Layout, weights: Mapping[str, Neurons]) -> dict[str, float]:
    factor = description.factor
    rules = factor if isinstance(factor, Mapping) else {"*": factor}
    if not weights:
        raise InputError(
            f"{type(description).__name__} is a penalty of weights, and the random parameters are none:"
            f" {', '.join(layout.names)}. Choose others with random=, or take a prior, which speaks of biases too."
        )
    for pattern in rules:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in weights):
            only = any(fnmatch.fnmatchcase(name, pattern) for name in layout.names)
            why = "matches only biases or norm layers, which are free" if only else "matches no random weight"
            raise InputError(f"factor[{pattern!r}] {why}; the weights are {', '.join(weights)}.")
    deviations = {rule: scales(layout, rule, 1.0) for rule in RULES if rule in rules.values()}
    found = {}
    for name, each in weights.items():
        rule = next((r for pattern, r in rules.items() if fnmatch.fnmatchcase(name, pattern)), None)
        if rule is None:
            raise InputError(f"no pattern of the penalty's factor matches {name!r}: add a last one, as in '*': 0.")
        found[name] = (
            description.factor_for(deviations[rule][name] ** 2, each) if isinstance(rule, str) else float(rule)
        )
    return found
