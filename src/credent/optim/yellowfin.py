"""YellowFin: heavy-ball momentum that tunes its own rate and momentum.

    v <- mu v - alpha g,        w <- w + v

For a log-likelihood the squared gradient stands for the curvature, h = |g|^2. With h_max and h_min the running extremes
of h over a window, C the gradient's variance, D the distance to the optimum, and kappa = h_max / h_min,

    mu = max(x^2, ((sqrt(kappa) - 1) / (sqrt(kappa) + 1))^2),      x = argmin x^2 D^2 + (1 - x)^4 C / h_min^2
    alpha = (1 - sqrt(mu))^2 / h_min

which puts every curvature between h_min and h_max in the robust region (1 - sqrt(mu))^2 <= alpha h <= (1 + sqrt(mu))^2,
where heavy ball contracts at the rate sqrt(mu) whatever h is. Each parameter group is tuned by its own gradients. The
rate is held down over the first ten windows, and a gradient longer than sqrt(h_max) is cut to that length. The first
step has the given `lr` and `momentum`. (Zhang, Mitliagkas 2019.)

>>> mu, alpha = tuned(variance=1.0, distance=1.0, low=1.0, high=1.0)
>>> round(mu, 7), round(alpha, 7)
(0.1683014, 0.3478104)
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from credent.errors import InputError

_WARM_UP = 10  # windows
_LEAST_VARIANCE = 1e-6


def tuned(variance: float, distance: float, low: float, high: float) -> tuple[float, float]:
    """Momentum and rate for gradients of this variance, so far from the optimum, with curvatures from low to high."""
    p = (distance * low) ** 2 / (2 * variance)
    cubed = (-math.sqrt(p**2 + 4 / 27 * p**3) - p) / 2  # the real root of y^3 + p y + p = 0, by Vieta's w - p / (3 w)
    w = math.copysign(abs(cubed) ** (1 / 3), cubed)
    x = w - p / (3 * w) + 1
    ratio = math.sqrt(high / low)
    mu = max(x**2, ((ratio - 1) / (ratio + 1)) ** 2)
    return mu, (1 - math.sqrt(mu)) ** 2 / low


class YellowFin(Optimizer):
    """Momentum that needs no rate: `lr` and `momentum` are those of the first step only."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-4,
        momentum: float = 0.0,
        decay: float = 0.999,
        window: int = 20,
    ) -> None:
        if not (lr > 0 and 0 <= momentum < 1 and 0 < decay < 1 and window >= 1):
            raise InputError(
                f"YellowFin(lr={lr}, momentum={momentum}, decay={decay}, window={window}): a positive rate, momentum"
                " and decay below 1, and a window of at least one step."
            )
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay, "window": window})
        for group in self.param_groups:
            group["steps"], group["recent"], group["averages"] = 0, [], {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Measure, tune, move."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._move(group, params, [p.grad for p in params])
        return loss

    def _move(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        norm = float(torch.stack(torch._foreach_norm(grads)).norm())
        high = self._tune(group, params, grads, norm)
        cut = min(1.0, math.sqrt(high) / norm) if norm > 0 else 1.0
        velocity = [self.state[p].setdefault("velocity", torch.zeros_like(p)) for p in params]
        torch._foreach_mul_(velocity, group["momentum"])
        torch._foreach_add_(velocity, grads, alpha=-group["lr"] * cut)
        torch._foreach_add_(params, velocity)

    def _tune(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], norm: float) -> float:
        """Set the group's rate and momentum from this gradient on; returns h_max."""
        group["steps"] += 1
        steps, decay = group["steps"], group["decay"]
        unbiased = 1 - decay**steps
        h = max(norm**2, 1e-30)  # a gradient of exactly zero has no logarithm
        recent = group["recent"] = [*group["recent"], h][-group["window"] :]

        def average(name: str, value: float) -> float:
            known = group["averages"]
            known[name] = decay * known.get(name, 0.0) + (1 - decay) * value
            return float(known[name] / unbiased)

        high = math.exp(average("log high", math.log(max(recent))))
        low = math.exp(average("log low", math.log(min(recent))))
        means = [self.state[p].setdefault("mean", torch.zeros_like(p)) for p in params]
        torch._foreach_lerp_(means, grads, 1 - decay)
        mean = float(torch.stack(torch._foreach_norm(means)).norm()) / unbiased
        square = average("square", norm**2)
        variance = max(square - mean**2, _LEAST_VARIANCE)
        distance = average("distance", average("norm", norm) / max(square, 1e-30))
        if steps > 1:
            momentum, rate = tuned(variance, distance, low, high)
            group["momentum"] = momentum
            group["lr"] = rate * min(1.0, steps / (_WARM_UP * group["window"]))
        return high
