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
from credent.families import passes
from credent.families.diagonal_gaussian import LaidGaussian
from credent.families.location_scale import LocationScale
from credent.layout import Layout
from credent.network import Params
from credent.noise import Noise

if TYPE_CHECKING:
    from credent.priors.prior import Prior

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


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
        return noise.normal_(self.layout.vector(like))

    @torch.no_grad()
    def stddev(self) -> Params:
        """sigma by name."""
        return self.layout.unflatten(self.scales.sigma())

    def log_prob(self, params: Params, detached: bool = False) -> Tensor:
        """log q(w) in nats."""
        e, log_sigma = self._residuals(params, detached)
        squares = torch.stack([each.square().sum() for each in e.values()]).sum()
        return -0.5 * squares - log_sigma - self.layout.num_params * HALF_LOG_2PI

    def entropy(self) -> Tensor:
        """H[q] in nats."""
        return self.scales.log_sigma().sum() + self.layout.num_params * (0.5 + HALF_LOG_2PI)

    def kl(self, prior: "Prior") -> Tensor | None:
        """KL(q || p) in nats for a Gaussian prior, else by the prior's expectation under a Gaussian."""
        means = self.layout.params()
        if prior.gaussian is None:
            cross_entropy = prior.cross_entropy(means, self.layout.views(self.scales.sigma()))
            return None if cross_entropy is None else cross_entropy - self.entropy()
        laid = prior.gaussian.on(self.layout)
        value: Tensor = _KL.apply(laid, self.scales.log_sigma(), *means.values())  # type: ignore[no-untyped-call]
        return value

    def rsample_and_kl(self, prior: "Prior") -> tuple[Params, Tensor | None]:
        """One draw and the KL; for a Gaussian prior both share their passes over the weights, forward and backward."""
        if prior.gaussian is None:
            return self.rsample(), self.kl(prior)
        rho, means, laid = self.scales.log_sigma(), self.layout.params(), prior.gaussian.on(self.layout)
        e, sign = self.noise.paired(self.standard, rho.detach())
        kl, *views = _SampleAndKL.apply(laid, rho, e, sign, *means.values())  # type: ignore[no-untyped-call]
        return dict(zip(means, views, strict=True)), kl


class _KL(torch.autograd.Function):
    """KL(q || p) with its gradients in closed form (`families.passes`), which can be differentiated once more."""

    @staticmethod
    def forward(ctx: Any, prior: LaidGaussian, rho: Tensor, *means: Tensor) -> Tensor:
        ctx.prior = prior
        ctx.save_for_backward(rho, *means)
        return passes.kl(prior, means, rho)

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        rho, *means = ctx.saved_tensors
        by_means, by_rho = passes.kl_back(ctx.prior, means, rho, c)
        return None, by_rho, *by_means


class _SampleAndKL(torch.autograd.Function):
    """A draw w and the KL, with the gradients of both in closed form (`families.passes`)."""

    @staticmethod
    def forward(ctx: Any, prior: LaidGaussian, rho: Tensor, e: Tensor, sign: int, *means: Tensor) -> tuple[Tensor, ...]:
        ctx.prior, ctx.sign = prior, sign
        ctx.save_for_backward(rho, e, *means)
        kl, weights = passes.draw(prior, means, rho, e, sign)
        return kl, *weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, c: Tensor, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rho, e, *means = ctx.saved_tensors
        by_means, by_rho = passes.draw_back(ctx.prior, means, grads, rho, e, ctx.sign, c)
        return None, by_rho, None, None, *by_means
