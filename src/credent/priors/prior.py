"""Priors: penalties with a density, and the shape that most of them share.

    KL(q || p) = -E_q log p - H[q]                                              cross-entropy less entropy
    p(w) = prod_i f((w_i - m_i) / s_i) / s_i                                    independent, of one shape f

For a prior of the second kind a description gives f; `IndependentPrior` does the rest. Weights rest at 0, the gains of
norm layers at 1.

Shapes: `params`, `mean` and `stddev` map names to tensors of the parameters' shapes; results are scalars in nats.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from credent.families.diagonal_gaussian import DiagonalGaussian
from credent.families.posterior import Variational
from credent.layout import Layout
from credent.network import Params
from credent.penalty import Penalty
from credent.priors.scales import Scale, scales


class Prior(Penalty):
    """p(w) over a network's random parameters."""

    gaussian: DiagonalGaussian | None
    """The Gaussian that this prior is, if it is one: every family then has its KL in closed form."""

    @abstractmethod
    def log_prob(self, params: Params) -> Tensor:
        """log p(w) in nats."""

    @abstractmethod
    def sample(self, n: int, seed: int) -> Params:
        """n draws, stacked in front."""

    @abstractmethod
    def cross_entropy(self, mean: Params, stddev: Params) -> Tensor | None:
        """-E log p under independent Gaussians, or None where there is no closed form."""

    def stddev(self) -> Mapping[str, float] | None:
        """Standard deviation of each parameter tensor's entries where it is known, infinite where there is none."""
        return None

    @property
    def quadratic(self) -> bool:
        """Whether log p is quadratic: `cross_entropy` then holds for every q with these means and deviations."""
        return self.gaussian is not None

    def forward(self, q: Variational) -> Tensor:
        """KL(q || p): in closed form, or else by q's entropy and log p at one draw."""
        closed = q.kl(self)
        if closed is not None:
            return closed
        return -q.entropy() - self.log_prob(q.rsample())


class Independent(ABC):
    """The description of a prior with one shape f for all weights. `scale` in a subclass is a `Scale`."""

    scale: Scale
    gaussian: ClassVar[bool] = False

    @property
    @abstractmethod
    def standard_deviation(self) -> float:
        """Standard deviation of f: a rule for the scale, such as "fan_in", sets the standard deviation of p."""

    @property
    def width(self) -> float:
        """What a rule for the scale sets: the standard deviation, unless there is none."""
        return self.standard_deviation

    @abstractmethod
    def log_density(self, z: Tensor) -> Tensor:
        """log f(z), elementwise."""

    @abstractmethod
    def draw(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """Draws from f, shaped as `like`."""

    def cross_entropy(self, mean: Tensor, stddev: Tensor) -> Tensor | None:
        """-E log f(z) for z ~ N(mean, stddev^2), elementwise, or None where there is no closed form."""
        return None

    def bind(self, layout: Layout) -> Prior:
        """The prior for this network's random parameters."""
        return IndependentPrior(self, layout)


class IndependentPrior(Prior):
    """A prior of one shape on a network: where each parameter rests, and how far it may go."""

    def __init__(self, density: Independent, layout: Layout) -> None:
        super().__init__()
        self.density = density
        self.layout = layout
        self.loc = {k: 1.0 if role.kind == "gain" else 0.0 for k, role in layout.roles.items()}
        self.scale = scales(layout, density.scale, density.width)
        self.gaussian = DiagonalGaussian(self.loc, self.scale) if density.gaussian else None
        self._log_scales = sum(layout.shapes[k].numel() * math.log(s) for k, s in self.scale.items())

    def log_prob(self, params: Params) -> Tensor:
        """log p(w) in nats."""
        each = [self.density.log_density(self._standard(k, w)).sum() for k, w in params.items()]
        return torch.stack(each).sum() - self._log_scales

    def sample(self, n: int, seed: int) -> Params:
        """n draws, stacked in front."""
        drawn = {}
        params = self.layout.params()
        generator = torch.Generator(params[self.layout.names[0]].device).manual_seed(seed)
        for k, p in params.items():
            like = torch.empty(n, *p.shape, dtype=p.dtype, device=p.device)
            drawn[k] = self.loc[k] + self.scale[k] * self.density.draw(like, generator)
        return drawn

    def stddev(self) -> Mapping[str, float]:
        """Standard deviation of each parameter tensor's entries."""
        return {k: s * self.density.standard_deviation for k, s in self.scale.items()}

    def cross_entropy(self, mean: Params, stddev: Params) -> Tensor | None:
        """-E log p under independent Gaussians."""
        each = []
        for k, mu in mean.items():
            value = self.density.cross_entropy(self._standard(k, mu), stddev[k] / self.scale[k])
            if value is None:
                return None
            each.append(value.sum())
        return torch.stack(each).sum() + self._log_scales

    def _standard(self, name: str, w: Tensor) -> Tensor:
        return (w - self.loc[name]) / self.scale[name] if self.loc[name] else w / self.scale[name]
