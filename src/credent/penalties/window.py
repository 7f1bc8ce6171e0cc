"""Where a penalty's prior has its mass, found from the penalty alone.

From a net over +-1e12 the search closes in on {mu: r(mu) < min r + 50 nats}, beyond which exp(-r) is nothing. Points
lie at centre + width sinh(u), u uniform: dense in the middle, logarithmic in the tails, so that one net serves a
Gaussian and a Student-t. `width` is half the length of {r < min r + 1/2}: a Gaussian's standard deviation.

>>> found = window(lambda mu: (mu - 3.0) ** 2 / 2 / 0.1**2)
>>> round(found.centre, 2), round(found.width, 2), round((found.high - 3) / 0.1)
(3.0, 0.1, 10)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from credent.penalties.noise import Floats

RISE = 50.0
_FAR = 1e12
_CORE = 0.5
_FIRST, _NEXT = 2001, 401
_ROUNDS = 60
_ENOUGH = 25  # points in the core
_FINEST, _MOST = 25, 801  # points for each length of the penalty's curvature; points in all
_SHARPEST = 40
_E_FOLDS = _FAR * np.exp(np.arange(-5.0, 1.0))  # distances, each e times the one before


@dataclass(frozen=True)
class Window:
    """The interval, its middle and its width there."""

    low: float
    high: float
    centre: float
    width: float
    curvature_length: float
    """1 / sqrt(largest second derivative of r within 8 nats of its minimum), at most `width`."""

    slowest: float
    """The least rise of r over an e-fold of distance, far out."""

    def widened(self, by: float) -> "Window":
        """The same with room on both sides."""
        return replace(self, low=self.low - by, high=self.high + by)

    def net(self) -> Floats:
        """Points for the search."""
        ends = np.arcsinh((np.array([self.low, self.high]) - self.centre) / self.width)
        return np.asarray(self.centre + self.width * np.sinh(np.linspace(ends[0], ends[1], _NEXT)), dtype=float)

    def points(self) -> tuple[Floats, Floats]:
        """The points and their u, odd in number, fine enough for the penalty's curvature."""
        ends = np.arcsinh((np.array([self.low, self.high]) - self.centre) / self.width)
        steps = int(np.clip((ends[1] - ends[0]) * _FINEST * self.width / self.curvature_length, 120, _MOST))
        u = np.linspace(ends[0], ends[1], steps // 2 * 2 + 1)
        u = u - u[np.argmin(np.abs(u))]  # a point at the centre
        return self.centre + self.width * np.sinh(u), u


def window(r: Callable[[Floats], Floats], near: Window | None = None) -> Window:
    """The window of r, which may overflow to infinity far out; it is found sooner `near` that of a similar penalty."""
    x = np.sinh(np.linspace(-1, 1, _FIRST) * np.arcsinh(_FAR * 1e9)) / 1e9
    if near is not None:
        close = near.widened(2 * (near.high - near.low)).net()
        if np.min(_heights(r, close)[[0, -1]]) > RISE:
            x = close
    for _ in range(_ROUNDS):
        v = _heights(r, x)
        core, level = np.flatnonzero(v <= _CORE), np.flatnonzero(v <= RISE)
        low, high = x[max(level[0] - 1, 0)], x[min(level[-1] + 1, len(x) - 1)]
        left, right = x[max(core[0] - 1, 0)], x[min(core[-1] + 1, len(x) - 1)]
        centre, width = (left + right) / 2, (right - left) / 2
        settled = len(core) >= _ENOUGH
        x = Window(low, high, centre, width, width, np.inf).net()
        if settled:
            break
    v = _heights(r, x)
    with np.errstate(all="ignore"):
        slope = np.diff(v) / np.diff(x)
        bend = np.abs(np.diff(slope) / ((x[2:] - x[:-2]) / 2))[v[1:-1] < 8]
    sharpest = float(np.nanmax(bend, initial=0.0))
    length = float(np.clip(sharpest**-0.5 if sharpest > 0 else width, width / _SHARPEST, width))
    return Window(float(low), float(high), float(centre), float(width), length, _slowest_rise(r))


def _slowest_rise(r: Callable[[Floats], Floats]) -> float:
    """The least rise over one of the last e-folds, in nats; a side on which r ends at infinity rises enough."""
    ends = [r(sign * _E_FOLDS) for sign in (-1, 1)]
    return min(float(np.min(np.diff(v))) if np.isfinite(v).all() else np.inf for v in ends)


def _heights(r: Callable[[Floats], Floats], x: Floats) -> Floats:
    v = r(x)
    v = np.where(np.isfinite(v), v, np.inf)
    return np.asarray(v - v.min(), dtype=float)
