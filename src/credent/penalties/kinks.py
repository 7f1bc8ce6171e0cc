"""Whether a penalty is smooth enough to be an average over noise, looked at where it is least smooth.

An average over noise whose density f has no jumps has no corners, d/dmu E A(mu + nu e) being an integral over f', so
lambda |mu| is none: no function A has E A(mu + nu e) = |mu|. Averages over Gaussian noise are smoother still. Where
fourth differences are largest the search closes in on steps of nu / 6; there, within +-12 nu, the best A leaves
something over: a percent of the bend of r across nu for a kink, less than 1e-4 for a true average.

>>> corner, r = sharpest(lambda mu: np.abs(mu - 0.3), np.linspace(-2, 2, 41), step=1e-6)[0], lambda mu: np.abs(mu - 0.3)
>>> round(corner, 4)
0.3
>>> is_kink(r, corner, 1.0), is_kink(np.cosh, corner, 1.0)
(True, False)
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from credent.penalties.inversion import Points, averaging
from credent.penalties.noise import Floats, Noise

_PLACES = 3
_PER_NU = 6
_INNER, _OUTER = 12, 20  # what is fitted, and what may move, in nu
_STIFFNESS = 1e-6
_SHARE = 1e-3
_CLOSE = 0.03  # of nu, across which an average over the noise is nearly straight


@dataclass(frozen=True)
class Misfit:
    """What no A can explain about r."""

    at: float
    left: float
    """nats left over there."""
    bend: float
    """|r(mu + nu) - 2 r(mu) + r(mu - nu)| there."""


def sharpest(r: Callable[[Floats], Floats], points: Floats, step: float) -> list[float]:
    """Up to three places of the largest fourth differences, each to within `step`."""
    fourth = np.abs(np.diff(r(points), 4))
    places: list[tuple[float, float]] = []
    for i in np.argsort(-fourth):
        middle = points[i + 2]
        if len(places) < _PLACES and all(abs(middle - p) > points[i + 4] - points[i] for p, _ in places):
            places.append((middle, (points[i + 4] - points[i]) / 2))
    return [_close_in(r, middle, half, step) for middle, half in places]


def _close_in(r: Callable[[Floats], Floats], middle: float, half: float, step: float) -> float:
    while half > 10 * step:
        x = np.linspace(middle - half, middle + half, 41)
        second = np.abs(np.diff(r(x), 2))
        middle, half = float(x[1 + int(np.argmax(second))]), half / 10
    return float(middle)


def is_kink(r: Callable[[Floats], Floats], at: float, width: float) -> bool:
    """Whether the slope of r jumps at this place: second differences then halve with the step, and do not quarter."""
    bends = [float(np.diff(r(at + h * np.array([-1.0, 0.0, 1.0])), 2)[0]) for h in (1e-3 * width, 2.5e-4 * width)]
    return abs(bends[0]) > 1e-6 and abs(bends[1]) > 0.2 * abs(bends[0])


def corner(r: Callable[[Floats], Floats], points: Floats, nu: float, roughness: float) -> tuple[float, float] | None:
    """The largest jump of r's slope, and where, if it is sharp beyond doubt even on the scale of the noise."""
    h = _CLOSE * nu
    places = [at for at in sharpest(r, points, h / 1e3) if is_kink(r, at, 1e3 * h)]
    bends = [float(np.diff(r(at + h * np.array([-1.0, 0.0, 1.0])), 2)[0]) for at in places]
    at, bend = max(zip(places, bends, strict=True), key=lambda pair: abs(pair[1]), default=(0.0, 0.0))
    return (at, bend / h) if abs(bend) > 1e3 * roughness else None


def unexplained(
    r: Callable[[Floats], Floats], points: Floats, noise: Noise, nu: float, roughness: float
) -> Misfit | None:
    """The worst misfit of r with averages over this noise, or None if r may be one."""
    worst = None
    for middle in sharpest(r, points, nu / _PER_NU):
        found = _misfit(r, middle, noise, nu)
        counts = found.left > max(_SHARE * found.bend, 20 * roughness + 1e-9)
        if counts and (worst is None or found.left > worst.left):
            worst = found
    return worst


def _misfit(r: Callable[[Floats], Floats], middle: float, noise: Noise, nu: float) -> Misfit:
    """The least squares of `inversion` once more, near one place and after a cubic, which every noise can explain."""
    u = np.arange(-_OUTER * _PER_NU, _OUTER * _PER_NU + 1) / _PER_NU / 1e3
    near = Points(1e3 * np.sinh(u), u, 0.0, 1e3)
    values = r(middle + nu * near.x)
    cubic = np.polynomial.Polynomial.fit(near.x, values, 3)
    rest = values - cubic(near.x)
    inner = np.abs(near.x) <= _INNER
    matrix = averaging(near, noise, 1.0).toarray()[inner]
    second = _STIFFNESS * np.diff(np.eye(len(u)), 2, axis=0) * _PER_NU**2
    solution = linalg.lstsq(np.concatenate([matrix, second]), np.append(rest[inner], np.zeros(len(second))))[0]
    left = float(np.max(np.abs(matrix @ solution - rest[inner])))
    n = _PER_NU
    bend = float(np.max(np.abs(values[2 * n :] - 2 * values[n:-n] + values[: -2 * n])))
    return Misfit(middle, left, bend)
