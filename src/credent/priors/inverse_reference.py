"""The inverse-reference prior: the last variational posterior, q_t, is the prior of the next one.

    minimise over q:   -E_q log p(D | w) + beta KL(q || q_t),      then  q_t <- q

Read as printed, with one optimiser step for each t, it has no effect: a KL is least at q = q_t, so its gradient there
is zero. The modes are the readings that can be run (docs/inverse-reference.md). With d = log(sigma / sigma_t), for
each weight and a Gaussian q,

    KL      = (mu - mu_t)^2 / (2 sigma_t^2) + (e^(2d) - 1) / 2 - d
    hybrid  = (mu - mu_t)^2 / (2 sigma_t^2) + (e^(2d) / D - 1) / 2 - d                        D the tensor's size

The second is a Gaussian's KL with a radial's second moment, sigma^2 / D; at q = q_t its slope in log sigma is
-(1 - 1/D), which does not vanish. It is no divergence and may be negative. Two radials have no closed form; with e of
q's noise and e_t = (w - mu_t) / sigma_t, their KL is estimated from one draw by the path derivative of

    sum log(sigma_t / sigma) + (|e_t|^2 - |e|^2) / 2 + (D - 1) (log |e_t| - log |e|)                  for each tensor,

which is a cone in mu, not a bowl. Where the means are further from mu_t than sigma, (D - 1) log |e_t| no longer depends
on sigma, and at sigma = sigma_t the slope in log sigma tends to -(1 - 1/D): the entropy's alone, as hybrid has it.
[Nazarovs et al. 2021 for the moments; Roeder et al. 2017 for the path derivative]

Shapes: scalars in nats; what is remembered are vectors (P,) of the layout.

>>> from credent import families
>>> layout = Layout(torch.nn.Linear(4, 1, bias=False))
>>> q = families.Gaussian().bind(layout)
>>> InverseReference("one_step").bind(layout)(q).item(), InverseReference("hybrid").bind(layout)(q).item()
(0.0, -1.5)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from credent.errors import InputError
from credent.families.gaussian import GaussianPosterior
from credent.families.location_scale import LocationScale
from credent.families.posterior import Variational
from credent.families.radial import RadialPosterior
from credent.layout import Layout
from credent.network import Params
from credent.noise import Noise
from credent.penalty import Penalty

Mode = Literal["one_step", "inner", "annealed", "hybrid"]


@dataclass(frozen=True)
class InverseReference:
    """The last q as the prior; `mode` says how that is meant, and what training then converges to.

    "hybrid": q_t is q at every step, in the Gaussian form with second moments sigma^2 / D, for either family. Converges
    to variational inference under a nearly flat prior: standard deviations sqrt(beta (1 - 1/D) / h), h the curvature of
    the loss of all data. Tensors of one number (D = 1) have nothing that holds their scale up.
    "one_step": the algorithm as printed, q_t is q at every step. Its gradient is exactly zero, so it converges where
    beta=0 does: maximum likelihood, and scales that shrink to zero.
    "inner": q_t is refreshed after `every` optimiser steps; once an epoch is `every=len(loader)`. Between refreshes
    the KL pulls back by its natural gradient, (sigma / sigma_t)^2 (mu - mu_t) and (e^(2d) - 1) / 2, which stays stable
    as the scales shrink. With a Gaussian q it slows training down, and converges where "one_step" does. A radial q,
    whose Fisher information is infinite, has its gradient multiplied by its variances and by 1/2 instead. Close to q_t
    it is held back far more; once the means have moved by more than sigma since the refresh they are hardly pulled, and
    log sigma has the slope -1/2 (1 - 1/D), half of hybrid's: q widens, and does not go where "one_step" does.
    "annealed": each step is `optim.Natural`'s, which solves it. Converges to the Bayes posterior under the first q and
    the likelihood to the power of the budget. Any other optimiser is an error.
    """

    mode: Mode = "hybrid"
    every: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("one_step", "inner", "annealed", "hybrid"):
            raise InputError(
                f"InverseReference(mode={self.mode!r}): write 'hybrid', 'one_step', 'inner' or 'annealed'."
            )
        counts = isinstance(self.every, int) and not isinstance(self.every, bool) and self.every >= 1
        if self.mode == "inner" and not counts:
            raise InputError(
                f"InverseReference('inner', every={self.every!r}): the optimiser steps between two refreshes, such as"
                " every=100, or every=len(loader) for once an epoch."
            )
        if self.mode != "inner" and self.every is not None:
            raise InputError(
                f"InverseReference({self.mode!r}, every={self.every!r}): this mode looks back one step; every= belongs"
                " to mode='inner'."
            )

    def bind(self, layout: Layout) -> "InverseReferencePrior":
        """The prior for this network's random parameters."""
        return InverseReferencePrior(self, layout)


class InverseReferencePrior(Penalty):
    """The last q of a network, as the prior of the next.

    Optimiser steps are seen by what they change, so that accumulated batches, several draws and evaluation do not
    count, and no optimiser needs to know. A memory, where there is one, is in the state.
    """

    seen: Tensor
    steps: Tensor
    mean: Tensor
    log_scale: Tensor

    def __init__(self, description: InverseReference, layout: Layout) -> None:
        super().__init__()
        self.mode: Mode = description.mode
        self.every = description.every or 1
        self.layout = layout
        self.noise = Noise()
        if self.mode in ("inner", "annealed"):
            self.register_buffer("seen", layout.first().new_zeros(2, layout.num_params))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        if self.mode == "inner":
            self.register_buffer("mean", torch.zeros_like(self.seen[0]))
            self.register_buffer("log_scale", torch.zeros_like(self.seen[1]))

    def forward(self, q: Variational) -> Tensor:
        """KL(q || q_t) in nats, or what stands for it."""
        if not isinstance(q, GaussianPosterior | RadialPosterior):
            raise InputError(
                f"InverseReference takes the last q as the prior of the next, and {type(q).__name__} has no spread to"
                " take: write cr.VI(net, likelihood, cr.priors.InverseReference(), num_data=...)."
            )
        if self.training:
            self._look(q)
        if self.mode in ("one_step", "annealed"):
            return q.scales.rho.new_zeros(())  # q_t is q: the KL is least, and its gradient zero
        means, rho = self.layout.params(), self.layout.views(q.scales.log_sigma())
        m, r = self._last(means, rho)
        if self.mode == "inner":
            variance = {k: s.square() for k, s in q.stddev().items()}
            means = {k: _slowed(mu, variance[k]) for k, mu in means.items()}
            rho = {k: _slowed(each, 0.5) for k, each in rho.items()}
        if isinstance(q, RadialPosterior) and self.mode == "inner":
            e = self.layout.unflatten(q.standard(self.noise, q.scales.values()))
            each = [_radial(means[k], rho[k], m[k], r[k], e[k]) for k in means]
        else:
            share = {k: mu.numel() if self.mode == "hybrid" else 1 for k, mu in means.items()}
            each = [_gaussian(means[k], rho[k], m[k], r[k], share[k]) for k in means]
        return torch.stack(each).sum()

    def moved(self, q: LocationScale) -> None:
        """`optim.Natural` has moved q: the next training forward finds it as it was left."""
        self.seen.copy_(_numbers(q))
        self.steps += 1

    def _look(self, q: LocationScale) -> None:
        """Count an optimiser step where q has changed since the last training forward, and refresh when it is time."""
        if self.mode not in ("inner", "annealed"):
            return
        now = _numbers(q)
        if torch.equal(now, self.seen) and bool(self.steps):
            return
        if self.mode == "annealed":
            raise InputError(
                "InverseReference('annealed') is solved step by step by natural gradients, and q was not moved by them:"
                " train with cr.optim.Natural(bnn, budget=1.0, steps=...) and nothing else, built when q's first means"
                " and scales are in place. Other optimisers want mode='hybrid', 'inner' or 'one_step'."
            )
        if int(self.steps) % self.every == 0:
            self.mean.copy_(now[0])
            self.log_scale.copy_(now[1])
        self.seen.copy_(now)
        self.steps += 1

    def _last(self, means: Params, rho: Params) -> tuple[Params, Params]:
        """Means and log sigma of q_t, by name."""
        if self.mode == "inner" and bool(self.steps):
            return self.layout.unflatten(self.mean), self.layout.unflatten(self.log_scale)
        return {k: mu.detach() for k, mu in means.items()}, {k: each.detach() for k, each in rho.items()}


def _gaussian(mu: Tensor, rho: Tensor, m: Tensor, r: Tensor, share: int) -> Tensor:
    """The Gaussian form with second moments sigma^2 / share."""
    d = rho - r
    square = ((mu - m) * (-r).exp()).square()
    return 0.5 * square.sum() + (0.5 / share * torch.expm1(2 * d) - d).sum() - d.numel() * 0.5 * (1 - 1 / share)


def _radial(mu: Tensor, rho: Tensor, m: Tensor, r: Tensor, e: Tensor) -> Tensor:
    """One draw of a radial's KL; gradients flow through the draw alone."""

    def minus_log_density(mean: Tensor, log_scale: Tensor) -> Tensor:
        at = (mu - mean) * (-log_scale).exp() + (rho - log_scale).exp() * e
        norm: Tensor = torch.linalg.vector_norm(at)
        return norm.square() / 2 + (e.numel() - 1) * norm.log() + log_scale.sum()

    return minus_log_density(m, r) - minus_log_density(mu.detach(), rho.detach())


def _slowed(parameter: Tensor, share: Tensor | float) -> Tensor:
    """The same numbers, whose gradient is multiplied by `share`."""
    fixed = parameter.detach()
    return fixed + share * (parameter - fixed)


@torch.no_grad()
def _numbers(q: LocationScale) -> Tensor:
    """All that an optimiser moves, means and log sigma, (2, P)."""
    return torch.stack([q.layout.flatten(q.mean()), q.scales.log_sigma()])
