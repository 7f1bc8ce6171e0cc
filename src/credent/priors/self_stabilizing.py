"""The self-stabilising prior: as wide as keeps the signal's variance from layer to layer, whatever q is.

For neuron j with D inputs, mu and sigma those of q,

    M_j = sum_i mu_ij,  V_j = sum_i sigma_ij^2,     gamma_j = 2 - (1 - 1/pi) M_j^2
    p(w_ij) = N(mu_ij, 1 / lambda_j),     lambda_j = D (1/gamma_j - 1/V_j)

Weights are drawn from the product p q, in training and after: N(mu, s^2) with 1/s^2 = 1/sigma^2 + lambda. Behind a ReLU
it passes the variance on: (1 - 1/pi) M^2 + sum_i s^2 = 2 where a neuron's sigma are alike. The prior follows q's means,
so it does not pull them, and pays KL(p q || p) with lambda and its means held constant. The unit of a convolution is an
output channel. [McGregor et al. 2019]

The paper takes absolute values where gamma < 0 or V < gamma, which shrinks what is too small already. Here lambda is
never below 1, so that a quiet neuron has a wide, proper prior, and gamma never below 0.01, all the variance that is
left to a neuron whose means overshoot. `condition="squares"` takes gamma = 2 - sum_i mu_ij^2, which inputs of no common
mean ask for. Biases and norm layers have N(rest, 1) and are drawn from q.

>>> layout = Layout(nn.Linear(100, 1, bias=False))
>>> _ = layout.params()["weight"].data.zero_()
>>> q = Gaussian(initial_scale=math.sqrt(5)).bind(layout)                       # sigma^2 = 0.05: V = 5, gamma = 2
>>> prior = SelfStabilizing().bind(layout)
>>> round(float(prior.precision(q.scales.rho)[0]), 4)                           # 1 / .0333333
30.0
>>> round(float(prior.sampled(q).stddev()["weight"].square().sum()), 4)
2.0
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.families.gaussian import Gaussian, GaussianPosterior  # noqa: F401  (Gaussian: the doctest's)
from credent.families.posterior import Variational
from credent.families.scales import Scales
from credent.layout import Layout
from credent.neurons import neurons
from credent.penalty import Penalty, Q

Condition = Literal["sum", "squares"]

_LOWEST_PRECISION = 1.0
_LEAST_VARIANCE = 0.01


@dataclass(frozen=True)
class SelfStabilizing:
    """`condition` says what a neuron's means contribute: the square of their "sum", as printed, or of "squares"."""

    condition: Condition = "sum"

    def __post_init__(self) -> None:
        if self.condition not in ("sum", "squares"):
            raise InputError(f"SelfStabilizing(condition={self.condition!r}): write 'sum' or 'squares'.")

    def bind(self, layout: Layout) -> "SelfStabilizingPrior":
        """The prior for this network's random parameters."""
        return SelfStabilizingPrior(self, layout)


class SelfStabilizingPrior(Penalty):
    """What keeps a network's layers stable; no density of the weights alone, as it follows q."""

    changes_q = True

    def __init__(self, description: SelfStabilizing, layout: Layout) -> None:
        super().__init__()
        self.description, self.layout = description, layout
        # an embedding picks one row and sums nothing
        self._neurons = {k: n for k, n in neurons(layout).items() if n.size("rows") == layout.roles[k].fan_in}
        self._rest = {
            k: 1.0 if role.kind == "gain" else 0.0 for k, role in layout.roles.items() if k not in self._neurons
        }

    def sampled(self, q: Q) -> Q:
        """The product p q."""
        if not isinstance(q, GaussianPosterior):
            raise InputError(
                f"SelfStabilizing multiplies q by a Gaussian, and {type(q).__name__} is none: write VI(net, likelihood,"
                " priors.SelfStabilizing(), family=families.Gaussian(), ...)."
            )
        q.scales = _Product(q.scales, self.precision)
        return q

    @torch.no_grad()
    def precision(self, rho: Tensor) -> Tensor:
        """lambda for q's own log sigma, a vector (P,); zero where q is not multiplied."""
        found, sigma = {k: torch.zeros(()) for k in self._rest}, self.layout.unflatten(rho.exp())
        means = self.layout.params()
        for k, n in self._neurons.items():
            mu, variance = means[k], n.sums(sigma[k].square())
            if self.description.condition == "sum":
                used = (1 - 1 / math.pi) * n.sums(mu).square()
            else:
                used = n.sums(mu.square())
            left = (2 - used).clamp(min=_LEAST_VARIANCE)
            found[k] = n.along((n.size("rows") * (1 / left - 1 / variance)).clamp(min=_LOWEST_PRECISION))
        return self.layout.flatten({k: found[k].to(means[k]).expand_as(means[k]) for k in self.layout.names})

    def forward(self, q: Variational) -> Tensor:
        """KL(p q || p) in nats."""
        if not (isinstance(q, GaussianPosterior) and isinstance(q.scales, _Product)):
            raise InputError("SelfStabilizing speaks of the product p q: give it what `sampled(q)` returns.")
        held = self.layout.unflatten(q.scales.precision())
        rho = q.scales.log_sigma()
        means, scale = self.layout.params(), self.layout.views(rho.exp())
        total = -rho.sum() - 0.5 * self.layout.num_params
        for k in self._neurons:
            total = total + 0.5 * (scale[k].square() * held[k] - held[k].log()).sum()
        for k, rest in self._rest.items():
            total = total + 0.5 * ((means[k] - rest).square() + scale[k].square()).sum()
        return total


class _Product(Scales):
    """The scales of p q: rho is q's own, sigma the product's, with the prior held constant."""

    def __init__(self, scales: Scales, precision: Callable[[Tensor], Tensor]) -> None:
        nn.Module.__init__(self)  # rho is there already
        self.layout, self.rho = scales.layout, scales.rho
        self._caching, self._cache = False, None
        self._of, self._held = precision, None

    _held: Tensor | None

    @contextmanager
    def cached(self) -> Iterator[None]:
        """Within: the prior and the numbers of sigma are computed once."""
        self._held = self.precision()
        try:
            with super().cached():
                yield
        finally:
            self._held = None

    def precision(self) -> Tensor:
        """lambda, (P,)."""
        return self._of(super().log_sigma()) if self._held is None else self._held

    def log_sigma(self) -> Tensor:
        """The logarithms of the product's scales, (P,)."""
        rho = super().log_sigma()
        return rho - 0.5 * torch.log1p((2 * rho).exp() * self.precision())
