"""The radial family: a direction and a radius per parameter tensor, so that draws stay near the mean.

    w = mu + sigma * u r,    u = eps / ||eps||,  eps ~ N(0, I_D),  r ~ N(0, 1)        for each tensor of D weights

    log q(w) = sum over tensors of  -sum_i log sigma_i + log 2 - 1/2 log(2 pi) - t^2/2 - log S_{D-1} - (D-1) log t,
    t = ||(w - mu) / sigma||,    S_{D-1} = 2 pi^{D/2} / Gamma(D/2)
    H[q]     = sum over tensors of  sum_i log sigma_i + 1/2 log(pi/2) + 1/2 + log S_{D-1} - (D-1) (gamma + ln 2)/2

A tensor's noise has unit mean square in all, not per weight: Var(w_i) = sigma_i^2 / D, and `stddev` is sigma / sqrt(D).
The KL to a Gaussian prior needs only these moments. [Farquhar, Osborne, Gal 2020]

>>> q = Radial(initial_scale=1.0).bind(Layout(torch.nn.Linear(1, 1, bias=False)))
>>> w = {"weight": q.mean()["weight"] + 0.7}              # D = 1 is the Gaussian: -0.7^2/2 - log(2 pi)/2
>>> round(q.log_prob(w).item(), 5)
-1.16394
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from credent.errors import InputError
from credent.families.location_scale import LocationScale
from credent.layout import Layout
from credent.network import Params
from credent.noise import Noise

if TYPE_CHECKING:
    from credent.priors.prior import Prior

_EULER_GAMMA = 0.5772156649015329


@dataclass(frozen=True)
class Radial:
    """Radial noise; `initial_scale` is a weight's first standard deviation in units of its natural scale."""

    initial_scale: float = 0.05

    def __post_init__(self) -> None:
        if not self.initial_scale > 0:
            raise InputError(f"Radial(initial_scale={self.initial_scale}): no spread at all is families.Dirac().")

    def bind(self, layout: Layout) -> "RadialPosterior":
        """q on this network's random parameters."""
        root = {k: math.sqrt(shape.numel()) for k, shape in layout.shapes.items()}
        first = {k: self.initial_scale * role.natural_scale * root[k] for k, role in layout.roles.items()}
        return RadialPosterior(layout, first)


class RadialPosterior(LocationScale):
    """A radial posterior on a network."""

    def standard(self, noise: Noise, like: Tensor) -> Tensor:
        """Direction times radius, one pair per parameter tensor, (P,)."""
        flat = noise.normal_(self.layout.vector(like))
        radius = noise.normal(like.new_empty(len(self.layout.names)))
        for view, r in zip(self.layout.unflatten(flat).values(), radius, strict=True):
            view.mul_(r / torch.linalg.vector_norm(view))
        return flat

    @torch.no_grad()
    def stddev(self) -> Params:
        """sigma / sqrt(D) by name."""
        return {k: s / math.sqrt(s.numel()) for k, s in self.layout.unflatten(self.scales.sigma()).items()}

    def log_prob(self, params: Params, detached: bool = False) -> Tensor:
        """log q(w) in nats; infinite at the mean itself for tensors of two weights and more."""
        e, log_sigma = self._residuals(params, detached)
        total = -log_sigma
        for each in e.values():
            dim, norm = each.numel(), torch.linalg.vector_norm(each)
            constant = math.log(2) - 0.5 * math.log(2 * math.pi) - _log_sphere(dim)
            total = total + constant - norm.square() / 2 - (dim - 1) * norm.log()
        return total

    def entropy(self) -> Tensor:
        """H[q] in nats."""
        sizes = [shape.numel() for shape in self.layout.shapes.values()]
        return self.scales.log_sigma().sum() + sum(_standard_entropy(d) for d in sizes)

    def kl(self, prior: "Prior") -> Tensor | None:
        """KL(q || p) in nats for a prior whose log-density is quadratic."""
        means, scale = self.layout.params(), self.layout.views(self.scales.sigma())
        if prior.gaussian is None:
            if not prior.quadratic:
                return None
            stddev = {k: s / math.sqrt(s.numel()) for k, s in scale.items()}
            cross_entropy = prior.cross_entropy(means, stddev)
            return None if cross_entropy is None else cross_entropy - self.entropy()
        total = -self.entropy()
        for k, mu in means.items():
            m, s = prior.gaussian.loc[k], prior.gaussian.scale[k]
            square = (mu - m).square() + scale[k].square() / mu.numel()
            total = total + (square / (2 * s**2)).sum() + mu.numel() * (math.log(s) + 0.5 * math.log(2 * math.pi))
        return total


def _log_sphere(dim: int) -> float:
    """Log surface of the unit sphere in `dim` dimensions."""
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


def _standard_entropy(dim: int) -> float:
    """Entropy of u r in `dim` dimensions."""
    return 0.5 * math.log(math.pi / 2) + 0.5 + _log_sphere(dim) - (dim - 1) * (_EULER_GAMMA + math.log(2)) / 2
