"""The mean-field Gaussian family.

    q(w) = prod_i N(w_i; mu_i, sigma_i^2),     w = mu + sigma * e,  e ~ N(0, I)
    H[q] = sum_i log sigma_i + 1/2 log(2 pi e)

[Graves 2011; Blundell et al. 2015]

>>> q = Gaussian(initial_scale=0.1).bind(Layout(torch.nn.Linear(4, 1, bias=False)))
>>> q.stddev()["weight"]                                  # 0.1 / sqrt(fan_in)
tensor([[0.0500, 0.0500, 0.0500, 0.0500]])
>>> round(q.entropy().item(), 4)                          # 4 (log 0.05 + 1.41894)
-6.3072
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from credent.errors import InputError
from credent.families.location_scale import LocationScale
from credent.layout import DiagonalGaussian, Layout
from credent.network import Params
from credent.noise import Noise

if TYPE_CHECKING:
    from credent.priors.prior import Prior

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Gaussian:
    """Independent Gaussians; `initial_scale` is the first sigma in units of a weight's 1/sqrt(fan_in)."""

    initial_scale: float = 0.05

    def __post_init__(self) -> None:
        if not self.initial_scale > 0:
            raise InputError(f"Gaussian(initial_scale={self.initial_scale}): no spread at all is families.Dirac().")

    def bind(self, layout: Layout) -> "GaussianPosterior":
        """q on this network's random parameters."""
        return GaussianPosterior(layout, {k: self.initial_scale * r.natural_scale for k, r in layout.roles.items()})


class GaussianPosterior(LocationScale):
    """A mean-field Gaussian on a network."""

    def standard(self, noise: Noise, like: Tensor) -> Tensor:
        """Standard normal noise, (P,)."""
        return noise.normal(like)

    @torch.no_grad()
    def stddev(self) -> Params:
        """sigma by name."""
        return self.layout.unflatten(self.scales.sigma())

    def log_prob(self, params: Params, detached: bool = False) -> Tensor:
        """log q(w) in nats."""
        e, log_sigma = self._residuals(params, detached)
        squares = torch.stack([each.square().sum() for each in e.values()]).sum()
        return -0.5 * squares - log_sigma - self.layout.num_params * _HALF_LOG_2PI

    def entropy(self) -> Tensor:
        """H[q] in nats."""
        return self.scales.sigma().log().sum() + self.layout.num_params * (0.5 + _HALF_LOG_2PI)

    def kl(self, prior: "Prior") -> Tensor | None:
        """KL(q || p) in nats: in one pass for a Gaussian prior, else by the prior's expectation under a Gaussian."""
        means, sigma = self.layout.params(), self.scales.sigma()
        if prior.gaussian is not None:
            kl: Tensor = _GaussianKL.apply(self.layout, prior.gaussian, sigma, *means.values())  # type: ignore[no-untyped-call]
            return kl
        cross_entropy = prior.cross_entropy(means, self.layout.views(sigma))
        return None if cross_entropy is None else cross_entropy - self.entropy()


class _GaussianKL(torch.autograd.Function):
    """sum_i log(s_i / sigma_i) + ((mu_i - m_i)^2 + sigma_i^2) / (2 s_i^2) - 1/2, its gradients in closed form."""

    @staticmethod
    def forward(ctx: Any, layout: Layout, prior: DiagonalGaussian, sigma: Tensor, *means: Tensor) -> Tensor:
        ctx.layout, ctx.prior = layout, prior
        ctx.save_for_backward(sigma, *means)
        total = -sigma.log().sum() - layout.num_params / 2
        for (k, scale), mu in zip(layout.unflatten(sigma).items(), means, strict=True):
            m, s = prior.loc[k], prior.scale[k]
            offset = mu - m if m else mu
            square = torch.linalg.vector_norm(offset).square() + torch.linalg.vector_norm(scale).square()
            total += square / (2 * s**2) + mu.numel() * math.log(s)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        sigma, *means = ctx.saved_tensors
        layout, prior = ctx.layout, ctx.prior
        by_mean = []
        by_sigma = sigma.reciprocal().mul_(-grad)
        for (k, out), scale, mu in zip(
            layout.unflatten(by_sigma).items(), layout.unflatten(sigma).values(), means, strict=True
        ):
            m, share = prior.loc[k], grad / prior.scale[k] ** 2
            out.addcmul_(scale, share)
            by_mean.append((mu - m).mul_(share) if m else mu * share)
        return None, None, by_sigma, *by_mean
