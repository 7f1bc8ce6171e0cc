"""The squared norm of the weights, which weight decay follows.

    r(q) = sum_l lambda_l ||mu_l||_2^2,         exp(-r) is N(0, 1 / (2 lambda))

There is no half in it: lambda = 1 / (2 s^2) is a Gaussian prior of standard deviation s, and variance 1/P takes P/2.

>>> net = torch.nn.Linear(4, 1)
>>> _ = net.weight.data.fill_(0.5)
>>> L2(factor=3.0).bind(Layout(net))(Dirac().bind(Layout(net))).item()         # 3 * 4 * 0.25
3.0
>>> L2(factor="fan_in").bind(Layout(net)).factor
{'weight': 2.0}
"""

from dataclasses import dataclass

import numpy as np
import torch  # noqa: F401  (the doctest's)
from numpy.typing import NDArray
from torch import Tensor

from credent.families.dirac import Dirac  # noqa: F401  (the doctest's)
from credent.layout import Layout  # noqa: F401  (the doctest's)
from credent.neurons import Neurons
from credent.penalties.weights import Factor, OnWeights, check_factor, number


@dataclass(frozen=True)
class L2(OnWeights):
    """`factor` multiplies the squared norm of each layer's weights: a number, a rule, or one of these per layer."""

    factor: Factor = "fan_in"

    def __post_init__(self) -> None:
        check_factor(self.factor)

    def measure(self, mean: Tensor, neurons: Neurons) -> Tensor:
        """||mu||_2^2."""
        return mean.square().sum()

    def factor_for(self, variance: float, neurons: Neurons) -> float:
        """1 / (2 variance): exp(-lambda w^2) is Gaussian."""
        return 0.5 / variance

    def elementwise(self, mu: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.float64]:
        """lambda mu^2, for every pair of a mean and a scale."""
        return number(self) * np.broadcast_arrays(mu, sigma)[0] ** 2
