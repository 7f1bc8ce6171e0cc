"""Where an attack may go: a ball around each input, and the box of inputs that exist.

    ball   ||pixels' - pixels||_p <= epsilon,  p = inf or 2          box   low <= pixels' <= high

    pixels = mean + std x

Networks usually see standardised inputs x. Epsilon and the box are in pixels, so that 8/255 is eight grey levels
whatever the network sees; without mean and std both are in the network's own units. Cutting a point of the ball to the
box moves every pixel towards the input, which is in the box, so the result is in both.

Shapes: x, points and gradients (n, ...); low, high, mean and std are numbers or tensors that broadcast to x.

>>> ball = Ball(torch.tensor([[0.5, 0.9]]), 0.3, "linf", Box())
>>> ball.step(ball.x, torch.tensor([[-2.0, 1.0]]), 0.3)
tensor([[0.2000, 1.0000]])
>>> Ball(torch.zeros(1, 2), 1.0, "l2", Box(-9, 9)).step(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), 1.0)
tensor([[0.6000, 0.8000]])
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from credent.errors import InputError

Norm = Literal["linf", "l2"]

_ROUNDING = 1e-5  # how far inputs may be outside of the box, in pixels


@dataclass(frozen=True, eq=False)
class Box:
    """Pixels from `low` to `high`, which the network sees as (pixel - mean) / std.

    For data of `credent.data`: `Box(mean=data.mean, std=data.std)`. No box at all: `Box(-math.inf, math.inf)`.
    """

    low: float | Tensor = 0.0
    high: float | Tensor = 1.0
    mean: float | Tensor = 0.0
    std: float | Tensor = 1.0

    def __post_init__(self) -> None:
        if not bool((torch.as_tensor(self.low) < torch.as_tensor(self.high)).all()):
            raise InputError(f"Box(low={self.low}, high={self.high}): the lowest pixel lies below the highest.")
        if not bool((torch.as_tensor(self.std) > 0).all()):
            raise InputError(f"Box(std={self.std}): a standard deviation is positive; pixels as they are have std=1.")

    def limits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest and highest values of x, in the network's units; x itself is among them, rounding included."""
        low, high, mean = (torch.as_tensor(t, dtype=x.dtype, device=x.device) for t in (self.low, self.high, self.mean))
        std = self.scale(x)
        low, high = (low - mean) / std, (high - mean) / std
        outside = (torch.maximum(low - x, x - high) * std).amax()
        if outside > _ROUNDING:
            raise InputError(
                f"inputs run from {float(x.min()):.3g} to {float(x.max()):.3g}, up to {float(outside):.2g} outside of"
                " the box that an attack keeps to: standardised inputs want Box(mean=data.mean, std=data.std), other"
                " units Box(low, high)."
            )
        return torch.minimum(low, x), torch.maximum(high, x)

    def scale(self, x: Tensor) -> Tensor:
        """Pixels a unit of x."""
        return torch.as_tensor(self.std, dtype=x.dtype, device=x.device)


PIXELS = Box()
"""From 0 to 1, as the network sees them."""


class Ball:
    """Inputs within `epsilon` pixels of x that the box allows."""

    def __init__(self, x: Tensor, epsilon: float, norm: Norm, box: Box) -> None:
        if norm not in ("linf", "l2"):
            raise InputError(f"norm={norm!r}: write 'linf', every pixel by epsilon at most, or 'l2', their length.")
        if not (epsilon >= 0 and math.isfinite(epsilon)):
            raise InputError(f"epsilon={epsilon}: the radius of a ball is a number >= 0, such as 8 / 255.")
        self.x, self.epsilon, self.norm = x, epsilon, norm
        self._low, self._high = box.limits(x)
        self._scale = box.scale(x)

    def step(self, point: Tensor, gradient: Tensor, length: float) -> Tensor:
        """`length` pixels along the direction in which a function of this gradient by x rises most, kept in the set."""
        slope = gradient / self._scale  # by pixels
        if self.norm == "linf":
            direction = slope.sign()
        else:
            largest = _rows(slope.abs(), torch.amax)  # taken out first: squares of small numbers are zero
            slope = slope / largest.clamp_min(torch.finfo(slope.dtype).tiny)
            direction = slope / _length(slope).clamp_min(torch.finfo(slope.dtype).tiny)
        return self.project(point + length * direction.to(point.dtype) / self._scale)

    def project(self, point: Tensor) -> Tensor:
        """A point of the ball and the box: the nearest of the ball, cut to the box."""
        moved = (point - self.x) * self._scale
        if self.norm == "linf":
            moved = moved.clamp(-self.epsilon, self.epsilon)
        else:
            length = _length(moved)
            moved = torch.where(length > self.epsilon, moved * (self.epsilon / length), moved)
        return torch.clamp(self.x + moved / self._scale, self._low, self._high)

    def draw(self, generator: torch.Generator) -> Tensor:
        """A point drawn uniformly from the ball, cut to the box."""
        if self.norm == "linf":
            moved = self.epsilon * (2 * torch.rand(self.x.shape, generator=generator, dtype=torch.float64) - 1)
        else:
            moved = torch.randn(self.x.shape, generator=generator, dtype=torch.float64)
            share = torch.rand(len(self.x), generator=generator, dtype=torch.float64) ** (1 / self.x[0].numel())
            moved *= self.epsilon * share.reshape(-1, *[1] * (self.x.ndim - 1)) / _length(moved)
        return self.project(self.x + moved.to(self.x) / self._scale)


def _length(each: Tensor) -> Tensor:
    """Euclidean length of every input, (n, 1, ...)."""
    return _rows(each, torch.linalg.vector_norm)


def _rows(each: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
    return reduce(each, dim=tuple(range(1, each.ndim)), keepdim=True)
