"""A smooth function known at points: cubic between them, a power of the distance beyond them.

    inside      the cubic spline through (x_j, a_j), broken at the kinks
    outside     a(x) = a_e + g (t^m - 1) / m,   t = (x - centre) / (x_e - centre) >= 1,    m -> 0: a_e + g log t

g makes the slope continuous; m is read off three values on the way to the end, at t = 1, 0.8 and 0.64, and is exact for
every power law and for the logarithm: 2 for a Gaussian's log-density, 1 for a Laplace's, 0 for a Student-t's.

Shapes: any tensor in, the same shape and dtype out, differentiable.

>>> x = np.linspace(-3, 3, 61)
>>> Curve(x, -(x**2) / 2)(torch.tensor([0.5, 2.0, 10.0]))
tensor([ -0.1250,  -2.0000, -50.0000])
"""

import itertools

import numpy as np
import numpy.typing as npt
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

_STEP = 0.8
_MOST = 8.0  # a steeper power than this is noise, and overflows early


class Curve:
    """a(x) from its values at increasing points; `kinks` are points at which its slope may jump."""

    def __init__(
        self, points: npt.NDArray[np.float64], values: npt.NDArray[np.float64], kinks: tuple[float, ...] = ()
    ) -> None:
        cuts = [0, *sorted(int(np.argmin(np.abs(points - k))) for k in kinks), len(points) - 1]
        pieces = [CubicSpline(points[a : b + 1], values[a : b + 1]) for a, b in itertools.pairwise(cuts) if b - a > 0]
        self.points = torch.from_numpy(points.copy())
        self.coefficients = torch.from_numpy(np.concatenate([p.c for p in pieces], axis=1).T.copy())  # (n-1, 4)
        self.centre = _middle(points, values)
        self.tails = [self._tail(pieces[0], points[0]), self._tail(pieces[-1], points[-1])]

    def _tail(self, spline: CubicSpline, end: float) -> tuple[float, float, float, float]:
        """End, value there, g, m."""
        reach = end - self.centre
        a = [float(self.numpy(np.array([self.centre + reach * t]))[0]) for t in (1.0, _STEP, _STEP**2)]
        slope = float(spline(end, 1)) * reach
        first, second = a[0] - a[1], a[1] - a[2]
        power = -np.log(first / second) / np.log(_STEP) if first * second > 0 else 1.0
        return float(end), a[0], slope, float(np.clip(power, 0.0, _MOST))

    def falls(self, order: int = 0) -> bool:
        """Whether |x|^order exp a(x) integrates."""
        return all(g < 0 and (power > 1e-3 or g < -1.001 - order) for _, _, g, power in self.tails)

    def numpy(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The spline alone, for points within."""
        return self._spline(torch.from_numpy(np.ascontiguousarray(x))).numpy()

    def __call__(self, z: Tensor) -> Tensor:
        """a(z), elementwise."""
        (low, *_), (high, *_) = self.tails
        value = self._spline(z.clamp(low, high))
        for end, at_end, slope, power in self.tails:
            t = ((z - self.centre) / (end - self.centre)).clamp(min=1.0)
            grown = t.log() if power < 1e-3 else (t**power - 1) / power
            value = torch.where(t > 1, at_end + slope * grown, value)
        return value

    def _spline(self, z: Tensor) -> Tensor:
        points, c = self.points.to(z), self.coefficients.to(z)
        cell = (torch.bucketize(z.detach(), points, right=True) - 1).clamp(0, len(points) - 2)
        d, c = z - points[cell], c[cell]
        return ((c[..., 0] * d + c[..., 1]) * d + c[..., 2]) * d + c[..., 3]


def _middle(points: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> float:
    """The mean under exp(a) between the points, from which the tails' distance counts."""
    weights = np.exp(values - values.max()) * np.gradient(points)
    return float(np.sum(weights * points) / np.sum(weights))
