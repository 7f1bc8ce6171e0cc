"""KL(q || p) from any number of draws, at the memory of one.

    KL ~ (1/M) sum_m log q(w_m) - log p(w_m),     w_m ~ q

The M terms share nothing but the parameters they depend on, so each is differentiated before the next is drawn: what is
kept is one sum of gradients, which the backward pass hands out. Value and gradients are those of the naive sum.

Where both log-densities are quadratic in w = mu + sigma e, the noise enters through its moments alone, and the terms
regroup into one, with c_k = (1/M) sum_m e_m^k:                                                  [Nazarovs et al. 2021]

    (1/M) sum_m (w_m - a)^2 = (mu - a)^2 + 2 (mu - a) sigma c_1 + sigma^2 c_2

Estimators of the gradient from one draw:

    path    log q_phi'(w) - log p(w),   phi' held constant: exact gradient zero when q = p       [Roeder et al. 2017]
    total   log q_phi(w) - log p(w),    differentiated in full
    score   (log q - log p) grad log q_phi(w): needs no reparameterisation, and is the noisiest  [Williams 1992]
    closed  -H[q] - log p(w):           what has a closed form is not estimated

By a mean the noise of path is e (sigma/t^2 - 1/sigma), that of total and closed e sigma/t^2, t being the scale at which
q is best: path is quiet there, and drowns the gradient of a q that is still far narrower.

>>> layout = Layout(torch.nn.Linear(1, 1, bias=False))
>>> q, prior = families.Gaussian(initial_scale=1.0).bind(layout), priors.Gaussian(scale=1.0).bind(layout)
>>> _ = layout.params()["weight"].data.fill_(0.0)
>>> value = sampled_kl(q, prior, "path", 1000)            # q is the prior
>>> value.backward()
>>> abs(round(value.item(), 6)), layout.params()["weight"].grad.abs().item() < 1e-6
(0.0, True)
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from credent import families, priors  # noqa: F401  (families: the doctest's)
from credent.families.diagonal_gaussian import DiagonalGaussian
from credent.families.gaussian import GaussianPosterior
from credent.families.posterior import Variational
from credent.layout import Layout  # noqa: F401  (the doctest's)
from credent.network import Params

Estimator = Literal["closed", "path", "total", "score"]
"""How the KL is estimated; "closed" by its closed form, and where there is none by that of q's entropy."""


def kl_at(q: Variational, prior: priors.Prior, params: Params, estimator: Estimator) -> Tensor:
    """One term of the sum, at one draw of `q.rsample()`."""
    if estimator == "closed":
        return -q.entropy() - prior.log_prob(params)
    if estimator != "score":
        return q.log_prob(params, detached=estimator == "path") - prior.log_prob(params)
    fixed = {k: w.detach() for k, w in params.items()}
    log_q, log_p = q.log_prob(fixed), prior.log_prob(fixed)
    value = (log_q - log_p).detach()
    # the value of the first, q's gradient of the second, and the plain gradient of a prior that learns
    return value + value * (log_q - log_q.detach()) - (log_p - log_p.detach())


def sampled_kl(q: Variational, prior: priors.Prior, estimator: Estimator, samples: int) -> Tensor:
    """The mean over `samples` new draws, with the gradient of the mean; the memory does not depend on `samples`."""
    if isinstance(q, GaussianPosterior) and prior.gaussian is not None and estimator != "score":
        return _regrouped(q, prior.gaussian, estimator, samples)
    leaves = [*q.layout.params().values(), *q.parameters(), *prior.parameters()]
    leaves = [p for p in leaves if p.requires_grad and torch.is_grad_enabled()]
    total, sums = torch.zeros(()), _Sums(len(leaves))
    for m in range(samples):
        value = kl_at(q, prior, q.rsample(), estimator)
        if leaves:
            sums.add(torch.autograd.grad(value, leaves, allow_unused=True), last=samples == 1)
        total = value.detach() if m == 0 else total.add_(value.detach())
    known: Tensor = _Known.apply(total / samples, sums.mean(samples), *leaves)  # type: ignore[no-untyped-call]
    return known


def _regrouped(q: GaussianPosterior, prior: DiagonalGaussian, estimator: Estimator, samples: int) -> Tensor:
    """The same from the moments of the noise."""
    rho = q.scales.log_sigma()
    ones, twos = torch.zeros_like(rho), torch.zeros_like(rho)
    for _ in range(samples):
        e, sign = q.noise.paired(q.standard, ones)
        ones.add_(e, alpha=sign / samples)
        twos.addcmul_(e, e, value=1 / samples)
    means, first, second = q.layout.params(), q.layout.unflatten(ones), q.layout.unflatten(twos)
    sigma = q.layout.views(q.scales.sigma())
    held_rho = rho.detach() if estimator == "path" else rho
    held_sigma = q.layout.views(held_rho.exp())
    kl = -held_rho.sum()
    for k, mu in means.items():
        m, s = prior.loc[k], prior.scale[k]
        held = mu.detach() if estimator == "path" else mu
        spread, noise = sigma[k].square() * second[k], 2 * sigma[k] * first[k]
        about_prior = (mu - m) * (mu - m + noise) + spread
        about_mean = (mu - held) * (mu - held + noise) + spread
        kl = kl + (about_prior / (2 * s**2) - about_mean / (2 * held_sigma[k].square())).sum()
        kl = kl + mu.numel() * math.log(s)
    return kl


class _Sums:
    """Gradients added up, one for each leaf, none for those that no term depends on."""

    def __init__(self, count: int) -> None:
        self._sums: list[Tensor | None] = [None] * count

    def add(self, grads: Sequence[Tensor | None], last: bool) -> None:
        """Add one term's; the first is copied, unless it is the last: gradients may share their memory."""
        for i, g in enumerate(grads):
            mine = self._sums[i]
            if g is not None:
                self._sums[i] = (g if last else g.clone()) if mine is None else mine.add_(g)

    def mean(self, samples: int) -> list[Tensor | None]:
        """Divided by the number of terms."""
        return [g if g is None or samples == 1 else g.div_(samples) for g in self._sums]


class _Known(torch.autograd.Function):
    """A value whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, grads: Sequence[Tensor | None], *leaves: Tensor) -> Tensor:
        ctx.there = [g is not None for g in grads]
        ctx.save_for_backward(*[g for g in grads if g is not None])
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        grads = iter(ctx.saved_tensors)
        return None, None, *[g * next(grads) if there else None for there in ctx.there]
