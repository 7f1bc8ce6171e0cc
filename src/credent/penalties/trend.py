"""The parts of a penalty whose inverse is exact: polynomials, and a wave.

Averaging over the noise, w = mu + nu e, maps polynomials to polynomials and waves to waves,

    E w^k = sum_j C(k, j) nu^j E[e^j] mu^(k-j),         E exp(i c w) = phi(c nu) exp(i c mu),

with phi the characteristic function of e. The first is a triangular system, the second a division; for Gaussian noise
they are Hermite polynomials and exp(c^2 nu^2 / 2). No smoothness need be assumed, which matters where nu is fixed.

Shapes: mu and the target t = E[A(mu + nu e)] are vectors (n,).

>>> mu = np.linspace(-3, 3, 50)
>>> A = exact_inverse(noise_of(stats.norm), 0.5, mu, mu**4, tolerance=1e-9)
>>> x = np.array([0.0, 1.0])
>>> A is not None and bool(np.allclose(A(x), x**4 - 6 * 0.25 * x**2 + 3 * 0.0625))
True
"""

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Polynomial
from scipy import linalg, stats  # noqa: F401  (the doctest's)
from scipy.optimize import minimize_scalar
from scipy.special import comb

from credent.penalties.noise import Floats, Noise, noise_of  # noqa: F401  (noise_of: the doctest's)

_DEGREE = 6
_WAVES = 160


def exact_inverse(
    noise: Noise, nu: float, mu: Floats, target: Floats, tolerance: float
) -> Callable[[Floats], Floats] | None:
    """A with E[A(mu + nu e)] = target to within the tolerance, or None if it is no polynomial plus a wave."""
    degree = max((k for k in range(0, _DEGREE + 1, 2) if np.isfinite(noise.moment(k))), default=0)
    centre, reach = (mu[0] + mu[-1]) / 2, (mu[-1] - mu[0]) / 2
    z = (mu - centre) / reach

    def fit(frequency: float) -> tuple[Floats, Floats]:
        columns = [z**k for k in range(degree + 1)]
        columns += [np.cos(frequency * z), np.sin(frequency * z)] if frequency else []
        design = np.stack(columns, axis=1)
        solution = np.linalg.lstsq(design, target, rcond=1e-14)[0]
        return design @ solution - target, solution

    frequency = 0.0
    misfit, solution = fit(frequency)
    if np.max(np.abs(misfit)) > tolerance:
        tried = 2.0 + 0.5 * np.arange(_WAVES)
        best = tried[int(np.argmin([linalg.norm(fit(c)[0]) for c in tried]))]
        near = minimize_scalar(
            lambda c: linalg.norm(fit(c)[0]), bounds=(best - 0.5, best + 0.5), options={"xatol": 1e-11}
        )
        frequency = float(near.x)
        misfit, solution = fit(frequency)
    if np.max(np.abs(misfit)) > tolerance:
        return None
    scale = nu / reach
    polynomial = Polynomial(np.linalg.solve(_averaging(noise, scale, degree), solution[: degree + 1]))
    if not frequency:
        return lambda x: polynomial((x - centre) / reach)
    damping = noise.characteristic(frequency * scale)
    if abs(damping) < 1e-8:
        return None
    wave = complex(solution[-2], -solution[-1]) / damping
    return lambda x: polynomial((x - centre) / reach) + (wave * np.exp(1j * frequency * (x - centre) / reach)).real


def _averaging(noise: Noise, scale: float, degree: int) -> Floats:
    """The matrix of E w^k in powers of mu, (degree + 1, degree + 1), upper triangular."""
    matrix = np.zeros((degree + 1, degree + 1))
    for k in range(degree + 1):
        for j in range(k + 1):
            matrix[k - j, k] = comb(k, j) * scale**j * noise.moment(j)
    return matrix
