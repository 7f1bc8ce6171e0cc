"""The Gaussian prior, the density behind weight decay.

    p(w) = prod_i N(w_i; m_i, s_i^2),       -E_q log p = sum_i log s_i + 1/2 log(2 pi) + E_q(w_i - m_i)^2 / (2 s_i^2)

The expectation needs only the mean and variance of q, so it is closed for every family.

>>> prior = Gaussian(scale=1.0).bind(Layout(torch.nn.Linear(2, 1, bias=False)))
>>> prior.log_prob({"weight": torch.zeros(1, 2)})         # -log(2 pi)
tensor(-1.8379)
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from credent.layout import Layout  # noqa: F401  (the doctest's)
from credent.priors.prior import Independent
from credent.priors.scales import Scale

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Gaussian(Independent):
    """Independent Gaussians; `scale` is their standard deviation."""

    scale: Scale = "fan_in"
    gaussian: ClassVar[bool] = True

    @property
    def standard_deviation(self) -> float:
        """One."""
        return 1.0

    def log_density(self, z: Tensor) -> Tensor:
        """log N(z; 0, 1)."""
        return -0.5 * z.square() - _HALF_LOG_2PI

    def draw(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """Standard normal draws."""
        return torch.empty_like(like).normal_(generator=generator)

    def cross_entropy(self, mean: Tensor, stddev: Tensor) -> Tensor:
        """Elementwise -E log N(z; 0, 1)."""
        return 0.5 * (mean.square() + stddev.square()) + _HALF_LOG_2PI
