"""Step sizes that shrink, or shrink again and again, as torch's schedulers.

    polynomial   eps_t = eps_0 (1 + t / delay)^-power         a (b + t)^-gamma  with  b = delay,  a = eps_0 b^gamma
    cyclical     eps_t = eps_0 (1 + cos(pi (t mod period) / period)) / 2

With power in (1/2, 1] the steps sum to infinity and their squares do not, under which Langevin dynamics with
minibatches converge to the posterior (Welling, Teh 2011). The cyclical schedule leaves a mode at each start and samples
at each end (Zhang, Li, Zhang, Chen, Wilson 2020). Step them every step: `fit(..., scheduler=..., schedule="step")`.
Any other scheduler of torch's works too.

>>> w = torch.nn.Parameter(torch.zeros(1))
>>> sampler = torch.optim.SGD([w], lr=1.0)
>>> schedule = polynomial(sampler, delay=1, power=1.0)
>>> for _ in range(3):
...     sampler.step()
...     schedule.step()
>>> schedule.get_last_lr()
[0.25]
"""

import math
from dataclasses import dataclass

import torch  # noqa: F401  (the doctest's)
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from credent.errors import InputError


def polynomial(optimizer: Optimizer, *, delay: float, power: float = 0.55) -> LambdaLR:
    """Steps that fall as (1 + t / delay)^-power: hardly until `delay`, as t^-power after it."""
    if not (delay > 0 and power >= 0):
        raise InputError(f"polynomial(delay={delay}, power={power}): needs delay > 0 steps and power >= 0.")
    return LambdaLR(optimizer, _Polynomial(delay, power))


def cyclical(optimizer: Optimizer, *, period: int) -> LambdaLR:
    """Half a cosine from eps_0 towards zero in `period` steps, then from eps_0 again."""
    if period < 1:
        raise InputError(f"cyclical(period={period}): a cycle has at least one step.")
    return LambdaLR(optimizer, _Cyclical(period))


@dataclass(frozen=True)
class _Polynomial:
    """Not a function, because a scheduler's state holds the fields of an object."""

    delay: float
    power: float

    def __call__(self, t: int) -> float:
        return float((1 + t / self.delay) ** -self.power)


@dataclass(frozen=True)
class _Cyclical:
    period: int

    def __call__(self, t: int) -> float:
        return (1 + math.cos(math.pi * (t % self.period) / self.period)) / 2
