"""How much the loss is expected to rise around the mean weights, without drawing weights.

    C = 1/2 sum_i sigma_i^2 F_ii ,      F = (1/b) sum_n E_y [s_n s_n^T],   s_n = grad log p(y_n | x_n, mu)

F is the Fisher information per datum, its labels y drawn from the model. Given the inputs, the scores of drawn labels
are independent with mean zero, so the square of their mean over b rows, times b, is an unbiased estimate of its
diagonal; that of any random part of a batch is one, too. With g the mean gradient of -log p for drawn labels,

    F_ii = b g_i^2,      dC/d log sigma_i = sigma_i^2 F_ii,      dC/dmu = H v,  v = b sigma^2 g,

where H is the Hessian of the mean of -log p at these labels. `exact` differentiates g; `finite_difference` runs
the network once more at mu + h v, with the same rows, labels and dropout masks, so that

    H v = (grad at mu + h v - grad at mu) / h,            |h v| = 1e-5 |mu| in float32,

in the memory of a plain step. Gradients also reach parameters that are not random: those of the network, and the noise
level of a likelihood, whose draws move with it. [Unlu & Aitchison 2021, eqs. 28-30; the labels' own dependence on mu is
left out there and here, which for classes is a third moment of the score.]

`exact` and `hessian` return C, whose gradient flows to everything but the scales, and diag F, of which `pull` makes a
zero that has the gradient by the scales; `finite_difference` shares its passes over the weights with the KL, and
attaches both with all their gradients.

Shapes: sigma, rho and diag F are vectors (P,) of a layout; C is a scalar, nats per datum.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor

from credent.errors import InputError
from credent.families import passes
from credent.families.diagonal_gaussian import LaidGaussian
from credent.layout import Layout
from credent.likelihoods import Likelihood
from credent.network import Network

_STEP = {torch.float32: 1e-5, torch.float64: 1e-7}  # |h v| / |mu|: between the bend of the gradient and its round-off


Score = Callable[[Tensor], Tensor]
"""From outputs f (b, ...) to random scores d/df log p of the same shape, differentiable in f."""


def pull(rho: Tensor, diagonal: Tensor) -> Tensor:
    """Zero, with the gradient sigma^2 F of C by rho = log sigma."""
    rise = ((2 * rho).exp() * diagonal).sum() / 2
    return rise - rise.detach() if bool(rise.isfinite()) else rise


def exact(layout: Layout, sigma: Tensor, outputs: Tensor, score: Score) -> tuple[Tensor, Tensor]:
    """C by differentiating twice through `outputs` (b, ...), and diag F."""
    means, rows = layout.params(), len(outputs)
    cotangent = score(outputs) / rows
    grads = torch.autograd.grad(outputs, list(means.values()), cotangent, create_graph=True, allow_unused=True)
    each = {k: torch.zeros_like(p) if g is None else g for (k, p), g in zip(means.items(), grads, strict=True)}
    scale = layout.unflatten(sigma)
    value = rows / 2 * torch.stack([(scale[k] * g).square().sum() for k, g in each.items()]).sum()
    with torch.no_grad():
        return value, layout.flatten(each).square_().mul_(rows)


def finite_difference(
    network: Network, prior: LaidGaussian, rho: Tensor, likelihood: Likelihood, x: Any, score: Score
) -> Callable[[], tuple[Tensor, Tensor]]:
    """What attaches C for the rows `x` and KL(q || p) to a graph, with the gradients of both, by the scales too.

    All passes are over then, and what they took is free again. Whatever is attached last has its gradients first.
    """
    names, means = prior.layout.names, list(prior.layout.params().values())
    random = {id(p) for p in means}
    rest = [p for p in network.trained() if id(p) not in random]
    noise = [p for p in likelihood.parameters() if p.requires_grad]
    with torch.enable_grad():
        with _same_masks(means[0].device):
            outputs = network.mean(x)
        leaf = outputs.detach().requires_grad_()
        rows = len(leaf)
        drawn = score(leaf) / rows
        before = gradients(outputs, [*means, *rest], drawn.detach())
        with torch.no_grad():
            found = passes.expand(prior, means, rho, before[: len(means)])  # their factor b waits for the end
            size = max(found.size, prior.layout.natural_length)  # weights at zero need a step that is not lost
            step = _STEP[rho.dtype] * size / found.length if found.length > 0 else 1.0  # along zero any will do
            shifted = passes.shift(prior, means, rho, before[: len(means)], step)
        moved = network({k: w.requires_grad_() for k, w in zip(names, shifted, strict=True)}, x)
        change = (moved.detach() - leaf.detach()) / step
        back, *by_noise = gradients(drawn, [leaf, *noise], change)
        after = gradients(moved, [*shifted, *rest], drawn.detach().add(back, alpha=step))
    values = found.rise * (rows / 2), found.kl
    slopes = before, after, by_noise
    return partial(_Given.apply, prior, step, rows, values, slopes, rho, *means, *rest, *noise)


def hessian(layout: Layout, sigma: Tensor, nll: Tensor) -> tuple[Tensor, Tensor]:
    """C with the Hessian of the mean loss `nll` of observed labels in F's place, and diag H: one pass per parameter."""
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
    scale = layout.unflatten(sigma)
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


class _Given(torch.autograd.Function):
    """C and the KL, whose gradients are known.

    `slopes` are the gradients of -log p by all parameters before and after the step, whose change times b / h is C's,
    and those of C / b by the noise.
    """

    @staticmethod
    def forward(
        ctx: Any,
        prior: LaidGaussian,
        step: float,
        rows: int,
        values: tuple[Tensor, Tensor],
        slopes: tuple[list[Tensor], ...],
        rho: Tensor,
        *inputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        means = inputs[: len(prior.layout.names)]
        ctx.prior, ctx.step, ctx.rows = prior, step, rows
        ctx.counts = [len(means), *map(len, slopes)]
        ctx.save_for_backward(rho, *means, *chain(*slopes))  # and let go of by the backward pass
        return values

    @staticmethod
    def backward(ctx: Any, d: Tensor, c: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise InputError(
                "create_graph=True asks for second derivatives of VL's loss, and its curvature is a finite difference,"
                " which has none: write VL(credent.smooth(net), ..., curvature='exact')."
            )
        rho, *saved = ctx.saved_tensors
        taken = iter(saved)
        means, before, after, by_noise = (list(islice(taken, count)) for count in ctx.counts)
        b, n = float(d) * ctx.rows, len(means)
        a = b / ctx.step
        by_means, by_rho = passes.expand_back(ctx.prior, means, rho, before[:n], after[:n], (a, b, float(c)))
        by_rest = [(new - old) * a for old, new in zip(before[n:], after[n:], strict=True)]
        return None, None, None, None, None, by_rho, *by_means, *by_rest, *(g * b for g in by_noise)
