"""The Laplace prior, the density behind an L1 penalty.

    p(w) = prod_i exp(-|w_i - m_i| / b_i) / (2 b_i),        Var(w_i) = 2 b_i^2

Its cross-entropy with a Gaussian q is closed form, by the mean of a folded normal,

    E_q|z| = sigma sqrt(2/pi) exp(-mu^2 / (2 sigma^2)) + mu erf(mu / (sigma sqrt 2)).

>>> prior = Laplace(scale=1.0).bind(Layout(torch.nn.Linear(2, 1, bias=False)))
>>> prior.log_prob({"weight": torch.zeros(1, 2)})         # -2 log 2
tensor(-1.3863)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from credent.layout import Layout  # noqa: F401  (the doctest's)
from credent.priors.prior import Independent
from credent.priors.scales import Scale


@dataclass(frozen=True)
class Laplace(Independent):
    """Independent Laplace densities; a number for `scale` is b, so the standard deviation is b sqrt 2."""

    scale: Scale = "fan_in"

    @property
    def standard_deviation(self) -> float:
        """sqrt 2."""
        return math.sqrt(2)

    def log_density(self, z: Tensor) -> Tensor:
        """-|z| - log 2."""
        return -z.abs() - math.log(2)

    def draw(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """The difference of two exponentials is Laplace."""
        first = torch.empty_like(like).exponential_(generator=generator)
        return first - torch.empty_like(like).exponential_(generator=generator)

    def cross_entropy(self, mean: Tensor, stddev: Tensor) -> Tensor:
        """Elementwise log 2 + E|z|."""
        t = mean / (stddev * math.sqrt(2))
        return stddev * math.sqrt(2 / math.pi) * torch.exp(-t * t) + mean * torch.erf(t) + math.log(2)
