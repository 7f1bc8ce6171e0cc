"""The sum of the weights' absolute values, which makes many of them small and a few large.

    r(q) = sum_l lambda_l ||mu_l||_1,           exp(-r) is Laplace(scale 1 / lambda), of variance 2 / lambda^2

Variance 1/P takes lambda = sqrt(2 P). At zero the gradient is zero, one of the subgradients; plain gradient steps come
near zero and swing about it, so count small weights, not zeros.

>>> net = torch.nn.Linear(2, 1)
>>> _ = net.weight.data.copy_(torch.tensor([[1.0, -2.0]]))
>>> L1(factor=3.0).bind(Layout(net))(Dirac().bind(Layout(net))).item()         # 3 (1 + 2)
9.0
>>> round(L1(factor="fan_in").bind(Layout(net)).factor["weight"], 6)           # sqrt(2 * 2)
2.0
"""

import math
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
class L1(OnWeights):
    """`factor` multiplies the sum of absolute weights of each layer: a number, a rule, or one of these per layer."""

    factor: Factor = "fan_in"

    def __post_init__(self) -> None:
        check_factor(self.factor)

    def measure(self, mean: Tensor, neurons: Neurons) -> Tensor:
        """||mu||_1."""
        return mean.abs().sum()

    def factor_for(self, variance: float, neurons: Neurons) -> float:
        """sqrt(2 / variance): exp(-lambda |w|) is Laplace."""
        return math.sqrt(2 / variance)

    def elementwise(self, mu: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.float64]:
        """lambda |mu|, for every pair of a mean and a scale."""
        return np.abs(number(self) * np.broadcast_arrays(mu, sigma)[0])
