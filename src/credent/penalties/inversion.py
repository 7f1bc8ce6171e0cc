"""A from its averages over the noise, by joint least squares over several scales, with an error estimate.

    A = A_0 + a,    min_a  sum_nu | G_nu (A_0 + a) - t_nu |^2 + gamma^2 | D^2 a |^2,       (G_nu A)(mu) = E A(mu + nu e)

A_0 is a first guess with its tails, t_nu(mu) = -r(mu, nu) - H[nu e], D^2 second differences on the points. What is
left, t_nu - G_nu A, tests whether one A serves all nu.

The error at a point is four times the change of A from sqrt(gamma) to gamma and on to smaller ones, plus four standard
deviations of what the noise in r and the gaps between the points do to A, plus what the points cannot resolve. It holds
if A is smooth enough that its bias at sqrt(gamma) is at least 5/4 of that at gamma; gamma is the one of a ladder for
which the estimate is least.

Shapes: points and a (n,); targets by nu (K, n).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy import linalg, sparse

from credent.penalties.noise import Floats, Noise
from credent.priors.curve import Curve

GAMMAS = 10.0 ** np.arange(0, -8, -1)  # the least squared stands clear of rounding
SAFETY = 4.0
_PROBES = 6
_ROUNDS = 3
_FINER = 50  # how much better all points are than every second one, for cubics and to be cautious


@dataclass(frozen=True)
class Inverse:
    """What the least squares found, at the points."""

    values: Floats
    """A, (n,)."""
    errors: Floats
    """Estimated error of A up to a constant, (n,)."""
    left: Floats
    """t_nu - G_nu A by nu, (K, n)."""
    kept: npt.NDArray[np.bool_]
    """Which of these were fitted: where the noise stays between the points, (K, n)."""


@dataclass(frozen=True)
class Points:
    """x = centre + width sinh(u) with u uniform."""

    x: Floats
    u: Floats
    centre: float
    width: float

    def interpolation(self, at: Floats) -> tuple[Floats, Floats]:
        """Columns and weights, (..., 4), of the cubic through the four points around each; constant beyond the ends."""
        step, n = self.u[1] - self.u[0], len(self.u)
        place = np.clip((np.arcsinh((at - self.centre) / self.width) - self.u[0]) / step, 0, n - 1)
        first = np.clip(np.floor(place).astype(int) - 1, 0, n - 4)
        t = place - first
        weights = [np.prod([(t - j) / (k - j) for j in range(4) if j != k], axis=0) for k in range(4)]
        return first[..., None] + np.arange(4), np.stack(weights, axis=-1)


def averaging(points: Points, noise: Noise, nu: float) -> sparse.csr_array:
    """G_nu as a matrix (n, n)."""
    n, q = len(points.x), len(noise.nodes)
    columns, weights = points.interpolation(points.x[:, None] + nu * noise.nodes)
    weights = weights * noise.weights[:, None]
    rows = np.broadcast_to(np.arange(n)[:, None, None], (n, q, 4))
    return sparse.csr_array((weights.ravel(), (rows.ravel(), columns.ravel())), shape=(n, n))


def invert(
    points: Points,
    noise: Noise,
    scales: Sequence[float],
    targets: Floats,
    guess: Callable[[Floats], Floats] | None,
    roughness: float,
) -> Inverse:
    """A at the points. Without an exact `guess`, the target of the least scale is the first one, improved in rounds."""
    matrices = np.stack([averaging(points, noise, nu).toarray() for nu in scales])  # (K, n, n)
    kept = np.stack([within(points.x, noise, nu) for nu in scales])
    stacked = matrices[kept]
    second = _second_differences(points)
    normal, smooth = stacked.T @ stacked, second.T @ second
    factors = [linalg.cho_factor(normal + gamma**2 * smooth) for gamma in GAMMAS]
    start = targets[0] if guess is None else guess(points.x)
    values = start
    missed = float(np.max(_interpolation_error(points.x, start) * np.exp(start - start.max()))) / _FINER
    probes = (roughness + missed) * np.random.default_rng(0).standard_normal((len(stacked), _PROBES))
    moved, errors = np.inf, np.full_like(start, np.inf)
    for _ in range(_ROUNDS):
        curve = guess or curve_of(points.x, values)
        beyond = averages(curve, points.x, noise, scales) - matrices @ curve(points.x)
        left = targets - beyond - matrices @ start
        if not np.isfinite(left[kept]).all():  # the tails overflow, and nothing can be said
            break
        right = stacked.T @ np.column_stack([left[kept], probes])
        steps = np.stack([linalg.cho_solve(f, right) for f in factors])
        choice, found = _choose(steps[..., 0], np.sqrt(np.mean(steps[..., 1:] ** 2, axis=-1)), start)
        change = float(np.max(np.abs(start + steps[choice, :, 0] - values)))
        if not change <= moved:  # the tails run away, as they can if no A serves all scales and the noise reaches far
            break
        values, errors, moved = start + steps[choice, :, 0], found, change
    left = targets - averages(curve_of(points.x, values), points.x, noise, scales)
    return Inverse(values, errors + SAFETY * (roughness + _interpolation_error(points.x, values)), left, kept)


def _choose(steps: Floats, noise: Floats, start: Floats) -> tuple[int, Floats]:
    """The gamma of the least error estimate, and that estimate; coarse ones only if the noise in r demands them."""
    weights = np.exp(start - start.max())
    ladder = range(2, len(steps))

    def change(k: int, other: int) -> Floats:
        return np.abs(centred(steps[k] - steps[other], start))

    def size(error: Floats) -> float:
        return float(np.max(error * weights))

    bias = {k: change(k, k // 2) for k in ladder}
    noisy = size(noise[4]) > size(bias[4])
    errors = {}
    for k in ladder if noisy else range(4, len(steps)):
        finer = [change(j, k) for j in range(k + 1, len(steps)) if size(noise[j]) <= size(bias[k])]
        errors[k] = SAFETY * (bias[k] + np.max([np.zeros_like(start), *finer], axis=0) + noise[k])
    best = min(errors, key=lambda k: size(errors[k]))
    return best, errors[best]


def within(x: Floats, noise: Noise, nu: float) -> npt.NDArray[np.bool_]:
    """Where the noise stays between the points, but for one part in a thousand."""
    reach = nu * noise.reach
    return np.asarray((x - reach >= x[0]) & (x + reach <= x[-1]))


def _interpolation_error(x: Floats, values: Floats) -> Floats:
    """What half the points would miss at the others: many times what all of them miss between."""
    coarse = curve_of(x[::2], values[::2])
    return np.abs(coarse(x) - values)


def averages(curve: Callable[[Floats], Floats], x: Floats, noise: Noise, scales: Sequence[float]) -> Floats:
    """E curve(x + nu e) by nu, (K, n)."""
    return np.stack([curve(x[:, None] + nu * noise.nodes) @ noise.weights for nu in scales])


def curve_of(x: Floats, values: Floats) -> Callable[[Floats], Floats]:
    """The curve through these values, for arrays."""
    curve = Curve(x, values)
    return lambda at: curve(torch.from_numpy(at)).numpy()


def centred(change: Floats, values: Floats) -> Floats:
    """A change of A less its mean under exp(A): constants cancel in the density."""
    weights = np.exp(values - values.max())
    return np.asarray(change - np.sum(weights * change) / np.sum(weights), dtype=float)


def _second_differences(points: Points) -> Floats:
    n, step = len(points.u), points.u[1] - points.u[0]
    return np.asarray(np.diff(np.eye(n), 2, axis=0) / step**2 * np.sqrt(step), dtype=float)
