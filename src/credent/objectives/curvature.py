"""How much the loss is expected to rise around the mean weights, without drawing weights.

    C = 1/2 sum_i sigma_i^2 F_ii ,      F = (1/b) sum_n E_y [s_n s_n^T],   s_n = grad log p(y_n | x_n, mu)

F is the Fisher information per datum, its labels y drawn from the model. Given the inputs, the scores of drawn labels
are independent with mean zero, so the square of their mean over b rows, times b, is an unbiased estimate of its
diagonal; that of any random part of a batch is one, too. With g the mean gradient of -log p for drawn labels,

    C = (b/2) sum_i sigma_i^2 g_i^2,     dC/d log sigma_i = b sigma_i^2 g_i^2,     dC/dmu = H v,  v = b sigma^2 g,

where H is the Hessian of the mean of -log p at these labels. `exact` differentiates g; `finite_difference` runs
the network once more at mu + h v, with the same rows, labels and dropout masks, so that

    H v = (grad at mu + h v - grad at mu) / h,            |h v| = 1e-5 |mu| in float32,

in the memory of a plain step. Where the prior is Gaussian, KL(q || p) comes with it: its gradients,

    dKL/dmu = (mu - m) / s^2,                dKL/d log sigma = sigma^2 / s^2 - 1,

share the passes over the weights, which are most of the work in a small network. Gradients also reach parameters that
are not random: those of the network, and the noise level of a likelihood, whose draws move with it. [Unlu & Aitchison
2021, eqs. 28-30; the labels' own dependence on mu is left out there and here, which for classes is a third moment of
the score.]

Shapes: vectors (P,) of a layout; the result is a scalar, nats per datum.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from credent.families.diagonal_gaussian import DiagonalGaussian
from credent.families.gaussian import closed_kl
from credent.layout import Layout
from credent.likelihoods import Likelihood
from credent.network import Network

_STEP = {torch.float32: 1e-5, torch.float64: 1e-7}  # |h v| / |mu|: between the bend of the gradient and its round-off


Score = Callable[[Tensor], Tensor]
"""From outputs f (b, ...) to random scores d/df log p of the same shape, differentiable in f."""


def exact(layout: Layout, sigma: Tensor, outputs: Tensor, score: Score) -> Tensor:
    """C by differentiating twice through `outputs` (b, ...)."""
    means, cotangent = layout.params(), score(outputs) / len(outputs)
    grads = torch.autograd.grad(outputs, list(means.values()), cotangent, create_graph=True, allow_unused=True)
    scale = layout.views(sigma)
    each = [(scale[k] * g).square().sum() for k, g in zip(means, grads, strict=True) if g is not None]
    return len(outputs) / 2 * torch.stack(each).sum()


def finite_difference(
    network: Network,
    layout: Layout,
    rho: Tensor,
    sigma: Tensor,
    likelihood: Likelihood,
    x: Any,
    score: Score,
    prior: DiagonalGaussian | None = None,
) -> tuple[Tensor, Tensor]:
    """C for the rows `x`, and KL(q || prior), zero without one, with their gradients attached."""
    means = list(layout.params().values())
    random = {id(p) for p in means}
    rest = [p for p in network.module.parameters() if p.requires_grad and id(p) not in random]
    noise = [p for p in likelihood.parameters() if p.requires_grad]
    with torch.enable_grad():
        with _same_masks(means[0].device):
            outputs = network.mean(x)
        leaf = outputs.detach().requires_grad_()
        rows = len(leaf)
        drawn = score(leaf) / rows
        before = gradients(outputs, [*means, *rest], drawn.detach())
        with torch.no_grad():
            spread = layout.lay(before[: len(means)])[0].mul_(sigma)  # sigma g
            v = torch.mul(spread, sigma, out=layout.vector(sigma))  # without its factor b, which waits for the end
            mu = layout.lay(means)[0]
            length, size = v.norm(), mu.norm()
            natural = sum(s.numel() * layout.roles[k].natural_scale ** 2 for k, s in layout.shapes.items())
            size = size.clamp_min(math.sqrt(natural))  # weights that start at zero need a step that is not lost
            step = float(_STEP[sigma.dtype] * size / length) if length > 0 else 1.0  # without any, no step is too long
            shifted = list(layout.unflatten(torch.add(mu, v, alpha=step, out=v)).values())
        moved = network({k: w.requires_grad_() for k, w in zip(layout.names, shifted, strict=True)}, x)
        change = (moved.detach() - leaf.detach()) / step
        back, *by_noise = gradients(drawn, [leaf, *noise], change)
        after = gradients(moved, [*shifted, *rest], drawn.detach().add(back, alpha=step))
    with torch.no_grad():
        value = spread.dot(spread) * (rows / 2)
        kl = value.new_zeros(()) if prior is None else closed_kl(prior.on(layout), mu, rho, sigma)[0]
        changes = list(layout.unflatten(v).values())  # where the shifted weights were; gradients may share their memory
        for change_of_mean, there, here in zip(changes, after, before, strict=False):
            torch.sub(there, here, out=change_of_mean)
        changes += torch._foreach_sub(after[len(means) :], before[len(means) :]) if rest else []
    known = (layout, prior, rows, step, sigma, spread, changes, by_noise)
    terms: tuple[Tensor, Tensor] = _Given.apply(value, kl, known, rho, *means, *rest, *noise)  # type: ignore[no-untyped-call]
    return terms


def hessian(layout: Layout, sigma: Tensor, nll: Tensor) -> tuple[Tensor, Tensor]:
    """1/2 sum_i sigma_i^2 H_ii for the mean loss `nll` of observed labels, and diag H (P,): one pass per parameter."""
    means = list(layout.params().values())
    grads = torch.autograd.grad(nll, means, create_graph=True, allow_unused=True)
    rows = []
    for mean, g in zip(means, grads, strict=True):
        if g is None or not g.requires_grad:
            rows.append(torch.zeros_like(mean))
            continue
        each = [
            torch.autograd.grad(entry, mean, create_graph=True)[0].flatten()[i] for i, entry in enumerate(g.flatten())
        ]
        rows.append(torch.stack(each).reshape(mean.shape))
    scale = layout.views(sigma)
    total = torch.stack([(scale[k].square() * h).sum() for k, h in zip(layout.names, rows, strict=True)]).sum()
    return total / 2, layout.flatten(dict(zip(layout.names, (h.detach() for h in rows), strict=True)))


def gradients(outputs: Tensor, inputs: Sequence[Tensor], cotangent: Tensor | None = None) -> list[Tensor]:
    """Gradients, zero where the outputs do not depend on an input."""
    grads = torch.autograd.grad(outputs, inputs, cotangent, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(inputs, grads, strict=True)]


@contextmanager
def _same_masks(device: torch.device) -> Iterator[None]:
    """The next forward after this one draws the same dropout masks."""
    with torch.random.fork_rng([] if device.type == "cpu" else [device]):
        yield


_Known = tuple[Layout, DiagonalGaussian | None, int, float, Tensor, Tensor, list[Tensor], list[Tensor]]


class _Given(torch.autograd.Function):
    """C and the KL, whose gradients are made of what is known: b, h, sigma, sigma g and the changes of gradients."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, kl: Tensor, known: _Known, rho: Tensor, *inputs: Tensor
    ) -> tuple[Tensor, Tensor]:
        *ctx.numbers, sigma, spread, changes, by_noise = known
        means = inputs[: len(known[0].names)]
        ctx.sizes = len(means), len(changes)
        ctx.save_for_backward(sigma, spread, *means, *changes, *by_noise)  # and let go of by the backward pass
        return value.clone(), kl.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, c: Tensor, k: Tensor) -> tuple[Tensor | None, ...]:
        """With c and k the gradients of the loss by C and by the KL."""
        (layout, prior, rows, step), (random, weights) = ctx.numbers, ctx.sizes
        sigma, spread, *rest = ctx.saved_tensors
        means, changes, by_noise = rest[:random], rest[random : random + weights], rest[random + weights :]
        c = c * rows
        less = torch.zeros_like(k) if prior is None else -k
        by_rho = torch.addcmul(less, spread, spread, value=float(c), out=layout.vector(sigma))
        by_weights = torch._foreach_mul(changes, c / step)
        if prior is not None:
            laid, scales = prior.on(layout), layout.segments(sigma)
            pulls = laid.pulls(k)
            torch._foreach_addcmul_(layout.segments(by_rho), scales, scales, pulls.tolist())
            torch._foreach_addcmul_(by_weights[:random], laid.offsets(means), list(pulls.unbind()))
        return None, None, None, by_rho, *by_weights, *(g * c for g in by_noise)
