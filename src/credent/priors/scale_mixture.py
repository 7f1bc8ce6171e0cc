"""A mixture of a wide and a narrow Gaussian: most weights near zero, some free.

    p(w) = prod_i  pi N(w_i; m_i, (wide s_i)^2) + (1 - pi) N(w_i; m_i, (narrow s_i)^2)

Computed in log-space, so that a narrow component of exp(-8) neither underflows nor hides the wide one. There is no
closed-form KL; objectives estimate it from their weight samples. [Blundell et al. 2015]

>>> prior = ScaleMixture().bind(Layout(torch.nn.Linear(1, 1, bias=False)))
>>> prior.log_prob({"weight": torch.zeros(1, 1)})
tensor(4.3904)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from credent.errors import InputError
from credent.layout import Layout  # noqa: F401  (the doctest's)
from credent.priors.prior import Independent
from credent.priors.scales import Scale

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class ScaleMixture(Independent):
    """`weight` is pi, the share of the wide component; `wide` and `narrow` are standard deviations at scale one."""

    weight: float = 0.5
    wide: float = 1.0
    narrow: float = math.exp(-6)
    scale: Scale = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < 1:
            raise InputError(
                f"ScaleMixture(weight={self.weight}): a share between 0 and 1; one component is Gaussian()."
            )
        if not self.wide > self.narrow > 0:
            raise InputError(f"ScaleMixture(wide={self.wide}, narrow={self.narrow}): needs wide > narrow > 0.")

    @property
    def standard_deviation(self) -> float:
        """Of the mixture at scale one."""
        return math.sqrt(self.weight * self.wide**2 + (1 - self.weight) * self.narrow**2)

    def log_density(self, z: Tensor) -> Tensor:
        """Elementwise log density at scale one."""
        wide = math.log(self.weight / self.wide) - 0.5 * (z / self.wide).square()
        narrow = math.log((1 - self.weight) / self.narrow) - 0.5 * (z / self.narrow).square()
        return torch.logaddexp(wide, narrow) - _HALF_LOG_2PI

    def draw(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """Draws: a component for each weight, then its Gaussian."""
        wide = torch.empty_like(like).uniform_(generator=generator) < self.weight
        return torch.empty_like(like).normal_(generator=generator) * torch.where(wide, self.wide, self.narrow)
