"""The horseshoe prior: most weights near zero, a few as large as they like.

    w_i | lambda_i ~ N(0, s^2 lambda_i^2),     lambda_i half-Cauchy(0, 1)

    p(w) = (2 pi^3)^(-1/2) e^x E_1(x) / s,     x = w^2 / (2 s^2),     E_n the exponential integrals
    log p = -log(x + r) + const,     d log p / dw = -2 r / w,     r(x) = E_2(x) / E_1(x)  between 0 and 1

One function r gives both, without cancellation: r rises from 0 like 1/log(1/x) and tends to 1. Below x = 1 it follows
from the power series of E_1, above from a polynomial in 6 / (x + 2) - 1 through values of the continued fraction.
At w = 0 the density has a pole that integrates; within 1e-12 s of it, it is held flat. There is no variance: a rule
for the scale, such as "fan_in", sets s itself, the standard deviation at the median of lambda.
[Carvalho, Polson, Scott 2010]

>>> prior = Horseshoe(scale=1.0).bind(Layout(nn.Linear(1, 1, bias=False)))
>>> prior.log_prob({"weight": torch.ones(1, 1)})
tensor(-2.1439)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.families.dirac import DiracPosterior
from credent.families.posterior import Variational
from credent.layout import Layout
from credent.network import Params
from credent.penalty import Q
from credent.priors.prior import Independent, IndependentPrior, Prior
from credent.priors.scales import Scale, scales

_LOG_CONSTANT = -0.5 * math.log(2 * math.pi**3)
_EULER_GAMMA = 0.5772156649015329
_NEAREST, _FURTHEST = 1e-12, 1e18  # in units of s; their squares are float32 numbers
_TERMS = {torch.float32: (10, 10), torch.float64: (18, 24)}  # of the series and of the polynomial
_CHUNK = 1 << 15  # numbers at a time: the many passes of a polynomial then stay in the cache


@dataclass(frozen=True)
class Horseshoe(Independent):
    """Independent horseshoes; `scale` is s: a number, a rule, or one of these per layer.

    `learnt=True` learns one s for each parameter tensor along with q, from `scale` on, by maximising the bound; the
    logarithms of the scales are among the penalty's parameters.
    """

    scale: Scale = "fan_in"
    learnt: bool = False

    @property
    def standard_deviation(self) -> float:
        """There is none."""
        return math.inf

    @property
    def width(self) -> float:
        """The standard deviation at the median of lambda."""
        return 1.0

    def log_density(self, z: Tensor) -> Tensor:
        """log p at s = 1, elementwise."""
        value: Tensor = _LogDensity.apply(z)[0]  # type: ignore[no-untyped-call]
        return value

    def draw(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """A half-Cauchy scale and a normal number for each weight."""
        local = torch.empty_like(like).cauchy_(generator=generator)
        return local * torch.empty_like(like).normal_(generator=generator)

    def bind(self, layout: Layout) -> Prior:
        """The prior for this network's random parameters."""
        return LearntHorseshoe(self, layout) if self.learnt else IndependentPrior(self, layout)


class LearntHorseshoe(Prior):
    """A horseshoe whose scale is learnt for each parameter tensor."""

    def __init__(self, density: Horseshoe, layout: Layout) -> None:
        super().__init__()
        self.density, self.layout, self.gaussian = density, layout, None
        self.loc = {k: 1.0 if role.kind == "gain" else 0.0 for k, role in layout.roles.items()}
        first = layout.first()
        start = scales(layout, density.scale, density.width)
        self.log_scale = nn.Parameter(first.new_tensor([math.log(start[k]) for k in layout.names]))

    @property
    def scale(self) -> dict[str, float]:
        """s of each parameter tensor, as learnt so far."""
        return dict(zip(self.layout.names, self.log_scale.detach().exp().tolist(), strict=True))

    def log_prob(self, params: Params) -> Tensor:
        """log p(w) in nats, differentiable in the scales, too."""
        each = []
        for name, log_scale in zip(self.layout.names, self.log_scale.unbind(), strict=True):
            z = (params[name] - self.loc[name]) * torch.exp(-log_scale)
            each.append(self.density.log_density(z).sum() - z.numel() * log_scale)
        return torch.stack(each).sum()

    def sample(self, n: int, seed: int) -> Params:
        """n draws at the scales learnt so far, stacked in front."""
        fixed = Horseshoe(self.scale).bind(self.layout)
        return fixed.sample(n, seed)

    def cross_entropy(self, mean: Params, stddev: Params) -> None:
        """No closed form."""
        return None

    def stddev(self) -> Mapping[str, float]:
        """Infinite."""
        return dict.fromkeys(self.layout.names, math.inf)

    def sampled(self, q: Q) -> Q:
        """q itself, which must have a spread."""
        refuse_point_mass(q, "Horseshoe(learnt=True)", "Horseshoe(), whose scale is fixed")
        return q


def refuse_point_mass(q: Variational, prior: str, instead: str) -> None:
    """A point mass has no spread that would keep weights and learnt scales from shrinking together without end."""
    if isinstance(q, DiracPosterior):
        raise InputError(
            f"{prior} learns how wide the prior is, and a point mass has no most probable weights under it: weights and"
            f" scales could shrink to zero together, at an ever greater density. Train with VI, or take {instead}."
        )


class _LogDensity(torch.autograd.Function):
    """log p(z) at s = 1 and its slope, elementwise."""

    @staticmethod
    def forward(z: Tensor) -> tuple[Tensor, Tensor]:
        flat = z.reshape(-1)
        value, score = torch.empty_like(flat), torch.empty_like(flat)
        for start in range(0, len(flat), _CHUNK):
            here = slice(start, start + _CHUNK)
            _evaluate(flat[here], value[here], score[here])
        return value.view(z.shape), score.view(z.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor, _: Tensor) -> Tensor:
        score: Tensor = ctx.saved_tensors[0]
        return g * score

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None], z: Tensor) -> tuple[Any, Any]:
        return _LogDensity.apply(z), (in_dims[0], in_dims[0])  # type: ignore[no-untyped-call]


def _evaluate(z: Tensor, value: Tensor, score: Tensor) -> None:
    """Fill in log p and its slope for one chunk, in float32 at least."""
    dtype = torch.float64 if z.dtype == torch.float64 else torch.float32
    series, polynomial = _coefficients(dtype)
    size = z.to(dtype).abs()
    x = size.clamp(_NEAREST, _FURTHEST).square_().mul_(0.5)
    near = x.clamp(max=1.0)
    integral = _horner(series, near).mul_(near).sub_(near.log()).sub_(_EULER_GAMMA)  # E_1
    small = near.neg().exp_().div_(integral).sub_(near)
    large = _horner(polynomial, 6 / (x.clamp(min=1.0) + 2) - 1)
    r = torch.where(x < 1, small, large)
    value.copy_((x + r).log_().neg_().add_(_LOG_CONSTANT))
    slope = r.mul_(-2).div_(size.clamp(min=_NEAREST)).masked_fill_(size < _NEAREST, 0.0)
    score.copy_(slope.copysign_(-z) if z.dtype == dtype else slope.copysign_(-z.to(dtype)))


def _horner(coefficients: list[float], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        value.mul_(x).add_(c)
    return value


@cache
def _coefficients(dtype: torch.dtype) -> tuple[list[float], list[float]]:
    """Of (E_1(x) + log x + gamma) / x in powers of x, and of r in powers of 6 / (x + 2) - 1."""
    terms, degree = _TERMS[dtype]
    series = [(-1) ** (k + 1) / (k * math.factorial(k)) for k in range(1, terms + 1)]
    nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    x = 6 / (nodes + 1) - 2
    tail = x.copy()
    for k in range(400, 1, -1):  # E_1(x) = e^-x / (x + 1/(1 + 1/(x + 2/(1 + 2/(x + ...))))), so r = 1/(1 + 1/(x + ...))
        tail = x + k / (1 + k / tail)
    fitted = np.polynomial.chebyshev.chebfit(nodes, 1 / (1 + 1 / tail), degree)
    return series, np.polynomial.chebyshev.cheb2poly(fitted).tolist()
