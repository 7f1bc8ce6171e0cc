"""Families of the form w = mu + sigma * e, with noise e of a fixed law.

mu are the network's own parameters; sigma = exp(rho) is one vector (P,). With g = dL/dw the gradient of the means is g
itself and that of rho is g * e * sigma, so sampling needs no graph: `_Sample` writes the weights once and returns both.
"""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from credent.families.posterior import Variational
from credent.families.scales import Scales
from credent.layout import Layout
from credent.network import Params
from credent.noise import Noise


class LocationScale(Variational):
    """q(w) on a network, by its scales and the law of its noise."""

    def __init__(self, layout: Layout, initial: dict[str, float]) -> None:
        super().__init__()
        layout.warn_of_padding()
        self.layout = layout
        self.scales = Scales(layout, initial)
        self.noise = Noise()

    def cached(self) -> AbstractContextManager[None]:
        """Within: sigma is computed once."""
        return self.scales.cached()

    @abstractmethod
    def standard(self, noise: Noise, like: Tensor) -> Tensor:
        """Noise e for all weights, a vector (P,)."""

    def mean(self) -> Params:
        """mu by name."""
        return {k: p.detach() for k, p in self.layout.params().items()}

    @torch.no_grad()
    def draws(self, n: int | None = None, seed: int | None = None) -> Iterator[Params]:
        """n draws (default 1); every second one mirrors the one before it about the means, pairs are independent.

        A pair costs the noise of one, and what is odd in it cancels in an average.
        """
        noise = self.noise if seed is None else Noise(seed)
        sigma, means = self.scales.sigma(), self.layout.params()
        for index in range(1 if n is None else n):
            if index % 2 == 0:
                e = self.standard(noise, sigma)
            flat = self.layout.flatten(means)
            yield self.layout.unflatten(flat.addcmul_(sigma, e, value=1 - 2 * (index % 2)))

    def rsample(self) -> Params:
        """One draw, differentiable in mu and rho; every second one mirrors the one before it about the means."""
        sigma, means = self.scales.values(), self.layout.params()
        e, sign = self.noise.paired(self.standard, sigma)
        views = _Sample.apply(self.layout, self.scales.log_sigma(), sigma, e, sign, *means.values())  # type: ignore[no-untyped-call]
        return dict(zip(means, views, strict=True))

    def _residuals(self, params: Params, detached: bool) -> tuple[Params, Tensor]:
        """e = (w - mu) / sigma by name, and sum log sigma."""
        if detached:
            sigma, rho, means = self.scales.values(), self.scales.log_sigma().detach(), self.mean()
        else:
            sigma, rho, means = self.scales.sigma(), self.scales.log_sigma(), self.layout.params()
        scale = self.layout.views(sigma)
        return {k: (params[k] - means[k]) / scale[k] for k in means}, rho.sum()


class _Sample(torch.autograd.Function):
    """w = mu + sign e exp(rho), with its gradients in closed form: g for mu, and sign g e sigma for rho."""

    @staticmethod
    def forward(
        ctx: Any, layout: Layout, rho: Tensor, sigma: Tensor, e: Tensor, sign: int, *means: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.layout, ctx.sign = layout, sign
        ctx.save_for_backward(sigma, e)
        flat, weights = layout.lay(means)
        flat.addcmul_(sigma, e, value=sign)
        return tuple(weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        sigma, e = ctx.saved_tensors
        flat: Tensor = ctx.layout.lay(grads)[0]
        flat.mul_(e).mul_(sigma)
        return None, flat if ctx.sign > 0 else flat.neg_(), None, None, None, *grads
