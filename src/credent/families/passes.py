"""The passes over all weights that a training step of a mean-field Gaussian is made of, each as one loop.

With q = N(mu, sigma^2), sigma = exp(rho), and a prior of means m and precisions p = 1 / s^2, weight by weight:

    kl             2 KL = sum p (sigma^2 + (mu - m)^2) - 1 - log(p sigma^2)
    kl_back        by mu  c p (mu - m),                          by rho  c (p sigma^2 - 1)
    draw           w = mu + sign e sigma,    2 KL
    draw_back      by mu  g + c p (mu - m),                      by rho  sigma (sign g e + c p sigma) - c
    expand         sum sigma^2 g^2,   |v|^2,   |mu|^2,   2 KL,                          with  v = sigma^2 g
    shift          mu + h v
    expand_back    by mu  a (g' - g) + c p (mu - m),             by rho  sigma^2 (b g^2 + c p) - c

Compiled (`credent.native`) a pass reads and writes every number once. Where that cannot be, torch's own calls do the
same. No gradient flows through any of them, but through `kl_back` where one is recorded.

>>> layout = Layout(torch.nn.Linear(1, 1, bias=False))
>>> prior = DiagonalGaussian({"weight": 0.0}, {"weight": 2.0}).on(layout)
>>> found = kl(prior, [torch.tensor([[1.0]])], torch.zeros(1)).item()                    # of N(1, 1) from N(0, 4)
>>> round(found, 6) == round(math.log(2) + (1 + 1) / 8 - 1 / 2, 6)
True

Shapes: `means`, `grads` and other sequences hold one tensor for each parameter, in the layout's order; rho and e are
vectors (P,) of the layout.
"""

import math  # noqa: F401  (the doctest's)
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from credent import native
from credent.families.diagonal_gaussian import DiagonalGaussian, LaidGaussian  # noqa: F401  (the doctest's)
from credent.layout import Layout


@dataclass(frozen=True)
class Expansion:
    """What a second-order expansion asks of all weights at once."""

    rise: Tensor
    """sum sigma^2 g^2."""
    length: float
    """|sigma^2 g|."""
    size: float
    """|mu|."""
    kl: Tensor


def kl(prior: LaidGaussian, means: Sequence[Tensor], rho: Tensor) -> Tensor:
    """KL(q || p) in nats."""
    layout, kernels = prior.layout, _kernels(*means, rho)
    if kernels is not None:
        mu = _Held(layout, means)
        twice, *_ = kernels.kl(torch.get_num_threads(), *prior.constants, (mu.addresses, rho.data_ptr()), ())
        return native.scalar(twice / 2)
    return _kl(prior, layout.lay(means)[0], rho, rho.exp())


def kl_back(prior: LaidGaussian, means: Sequence[Tensor], rho: Tensor, c: Tensor) -> tuple[list[Tensor], Tensor]:
    """Gradients of c KL by mu and rho."""
    layout, kernels = prior.layout, _kernels(*means, rho)
    if kernels is not None:
        by_mu, by_rho = layout.blank(rho), layout.vector(rho)
        mu = _Held(layout, means)
        streams = mu.addresses, rho.data_ptr(), native.addresses(by_mu), by_rho.data_ptr()
        kernels.kl_back(torch.get_num_threads(), *prior.constants, streams, (float(c),))
        return by_mu, by_rho
    return prior.pulled(means, c), (rho.mul(2).exp() * prior.flat_precision(rho) - 1) * c


def draw(
    prior: LaidGaussian, means: Sequence[Tensor], rho: Tensor, e: Tensor, sign: int
) -> tuple[Tensor, list[Tensor]]:
    """The KL in nats, and a draw."""
    layout, kernels = prior.layout, _kernels(*means, rho, e)
    if kernels is not None:
        out = layout.vector(rho)
        held = _Held(layout, means)
        streams = held.addresses, rho.data_ptr(), e.data_ptr(), out.data_ptr()
        twice, *_ = kernels.draw(torch.get_num_threads(), *prior.constants, streams, (float(sign),))
        return native.scalar(twice / 2), layout.tensors(out)
    flat, views = layout.lay(means)
    sigma = rho.exp()
    kl = _kl(prior, flat, rho, sigma)
    flat.addcmul_(sigma, e, value=sign)
    return kl, views


def draw_back(
    prior: LaidGaussian, means: Sequence[Tensor], grads: Sequence[Tensor], rho: Tensor, e: Tensor, sign: int, c: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Gradients by mu and rho, where `grads` are those of the draw and c that of the KL."""
    layout, kernels = prior.layout, _kernels(*means, *grads, rho, e)
    if kernels is not None:
        by_mu, by_rho = layout.vector(rho), layout.vector(rho)
        mu, g = _Held(layout, means), _Held(layout, grads)
        streams = mu.addresses, rho.data_ptr(), e.data_ptr(), g.addresses, by_mu.data_ptr(), by_rho.data_ptr()
        kernels.draw_back(torch.get_num_threads(), *prior.constants, streams, (float(sign), float(c)))
        return layout.tensors(by_mu), by_rho
    sigma = rho.exp()
    flat, by_mean = layout.lay(grads)
    by_rho = torch.mul(sigma, prior.flat_precision(sigma), out=layout.vector(sigma)).mul_(c)
    by_rho.addcmul_(flat, e, value=sign)
    torch.addcmul(-c, by_rho, sigma, out=by_rho)
    torch._foreach_add_(by_mean, prior.pulled(means, c))
    return by_mean, by_rho


def expand(prior: LaidGaussian, means: Sequence[Tensor], rho: Tensor, g: Sequence[Tensor]) -> Expansion:
    """The sums of an expansion about mu along its gradients g."""
    layout, kernels = prior.layout, _kernels(*means, *g, rho)
    if kernels is not None:
        mu, held = _Held(layout, means), _Held(layout, g)
        streams = mu.addresses, rho.data_ptr(), held.addresses
        rise, length, size, twice = kernels.expand(torch.get_num_threads(), *prior.constants, streams, ())
        return Expansion(native.scalar(rise), length**0.5, size**0.5, native.scalar(twice / 2))
    mean, slope, sigma = layout.lay(means)[0], layout.lay(g)[0], rho.exp()
    v = sigma.square().mul_(slope)
    return Expansion(v.dot(slope), float(v.norm()), float(mean.norm()), _kl(prior, mean, rho, sigma))


def shift(prior: LaidGaussian, means: Sequence[Tensor], rho: Tensor, g: Sequence[Tensor], h: float) -> list[Tensor]:
    """mu + h sigma^2 g."""
    layout, kernels = prior.layout, _kernels(*means, *g, rho)
    if kernels is not None:
        out = layout.vector(rho)
        mu, held = _Held(layout, means), _Held(layout, g)
        streams = mu.addresses, rho.data_ptr(), held.addresses, out.data_ptr()
        kernels.shift(torch.get_num_threads(), *prior.constants, streams, (h,))
        return layout.tensors(out)
    variance = layout.tensors(rho.mul(2).exp_())
    return list(torch._foreach_addcmul(list(means), variance, list(g), value=h))


def expand_back(
    prior: LaidGaussian,
    means: Sequence[Tensor],
    rho: Tensor,
    before: Sequence[Tensor],
    after: Sequence[Tensor],
    by: tuple[float, float, float],
) -> tuple[list[Tensor], Tensor]:
    """Gradients by mu and rho, where g and g' are the slopes `before` and `after` a shift, and (a, b, c) `by`."""
    layout, kernels = prior.layout, _kernels(*means, *before, *after, rho)
    if kernels is not None:
        by_mu, by_rho = layout.blank(rho), layout.vector(rho)
        held = [_Held(layout, each) for each in (means, before, after)]
        mu, *others = (each.addresses for each in held)
        streams = mu, rho.data_ptr(), *others, native.addresses(by_mu), by_rho.data_ptr()
        kernels.expand_back(torch.get_num_threads(), *prior.constants, streams, by)
        return by_mu, by_rho
    a, b, c = by
    by_mean = torch._foreach_mul(torch._foreach_sub(list(after), list(before)), a)
    torch._foreach_add_(by_mean, prior.pulled(means, rho.new_tensor(c)))
    by_rho = layout.lay(before)[0].square_().mul_(b).add_(prior.flat_precision(rho), alpha=c)
    return list(by_mean), by_rho.mul_(rho.mul(2).exp_()).sub_(c)


def _kl(prior: LaidGaussian, mu: Tensor, rho: Tensor, sigma: Tensor) -> Tensor:
    precision, offset = prior.flat_precision(mu), prior.flat_offset(mu)
    each = torch.mul(sigma, sigma, out=prior.layout.vector(mu)).addcmul_(offset, offset).mul_(precision)
    return each.sub_(rho, alpha=2).sum() / 2 + (prior.log_scales - prior.layout.num_params / 2)


def _kernels(*tensors: Tensor) -> Any:
    """The compiled loops, where they can work on these; no graph is recorded of what they do."""
    return native.kernels if native.suits(*tensors) and not torch.is_grad_enabled() else None


class _Held:
    """Addresses of tensors that lie in memory as the layout has it; others are copied, and held while this lives."""

    def __init__(self, layout: Layout, tensors: Sequence[Tensor]) -> None:
        self._copied: list[Tensor] = []
        if not layout.lies_under(tensors):
            self._copied = layout.lay(tensors)[1]
        self.addresses = native.addresses(self._copied or tensors)
