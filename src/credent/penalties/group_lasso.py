"""The sum over neurons of the norms of their weights, which makes whole neurons small.

    r(q) = sum_l lambda_l sum_g ||mu_g||_2,     g the rows (a neuron's inputs) or columns (its outputs) of layer l

exp(-lambda ||w_g||) for a group of n numbers has a Gamma(n) radius and a uniform direction, so that
E ||w_g||^2 = n (n + 1) / lambda^2 and each number has variance (n + 1) / lambda^2: variance 1/P takes
lambda = sqrt((n + 1) P), with n = P for rows and n = fan_out for columns. [Yuan, Lin 2006; Alvarez, Salzmann 2016]

What rows and columns are in convolutions, and how many neurons are gone after training, is in `credent.neurons`.

>>> net = torch.nn.Linear(2, 3)
>>> _ = net.weight.data.copy_(torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 12.0]]))
>>> GroupLasso(factor=2.0).bind(Layout(net))(Dirac().bind(Layout(net))).item()         # 2 (5 + 0 + 12)
34.0
>>> GroupLasso(factor="fan_in", over="columns").bind(Layout(net)).factor               # sqrt((3 + 1) 2)
{'weight': 2.828...}
"""

import math
from dataclasses import dataclass

import torch  # noqa: F401  (the doctest's)
from torch import Tensor

from credent.families.dirac import Dirac  # noqa: F401  (the doctest's)
from credent.layout import Layout  # noqa: F401  (the doctest's)
from credent.neurons import Neurons, Over, check_over
from credent.penalties.weights import Factor, OnWeights, check_factor


@dataclass(frozen=True)
class GroupLasso(OnWeights):
    """`factor` multiplies the sum of norms of each layer: a number, a rule, or one of these per layer."""

    factor: Factor = "fan_in"
    over: Over = "rows"

    def __post_init__(self) -> None:
        check_factor(self.factor)
        check_over(self.over)

    def measure(self, mean: Tensor, neurons: Neurons) -> Tensor:
        """sum_g ||mu_g||_2."""
        return neurons.norms(mean, self.over).sum()

    def factor_for(self, variance: float, neurons: Neurons) -> float:
        """sqrt((n + 1) / variance) for groups of n numbers."""
        return math.sqrt((neurons.size(self.over) + 1) / variance)
