"""The penalty that a prior is: KL(q || p) as a function of the noise's mean mu and scale nu.

    r(mu, nu) = -H[nu e] - E log p(mu + nu e)

Closed form for a Gaussian or Laplace prior under Gaussian noise; otherwise Gauss-Legendre on panels around the mean of
the noise and around the middle of the prior, where a density such as the Laplace's has its kink. Right to about 1e-8
for densities with one middle. Infinite where p is zero within the noise's reach.

Shapes: mu and nu are arrays that broadcast against each other; r has their shape.

>>> r = penalty_of(lambda w: -0.3 * w**4, stats.norm)     # 0.3 (mu^4 + 6 nu^2 mu^2 + 3 nu^4) - entropy, and a constant
>>> quartic = r(np.array(1.2), np.array(0.5)) - r(np.array(0.0), np.array(0.5))
>>> round(float(quartic), 6), round(0.3 * (1.2**4 + 6 * 0.25 * 1.44), 6)
(1.27008, 1.27008)
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy import stats
from scipy.special import erf

from credent.errors import InputError
from credent.penalties.noise import Family, Floats, Noise, noise_of, panels
from credent.penalties.window import window
from credent.priors.prior import Independent
from credent.priors.tabulated import Tabulated

Penalty: TypeAlias = Callable[[Floats, Floats], Floats]
_Frozen = type(stats.norm())
_LADDER = np.array([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])
_ROWS = 256  # means at a time, so that the nodes fit into a cache


def penalty_of(prior: Any, family: Family) -> Penalty:
    """r(mu, nu) = KL(q || prior) for this noise, a function of arrays.

    `prior` is a frozen scipy distribution, a `Tabulated`, another independent prior with a number as its scale
    (`priors.Gaussian(scale=1.0)`), or a function that gives log p at an array, if only up to a constant. With `Dirac`,
    r = -log p, and nu is ignored.
    """
    log_prob, centre, width = _log_prob(prior)
    noise = noise_of(family)
    if noise is None:
        return lambda mu, nu: -log_prob(np.asarray(mu, dtype=float) + 0.0 * np.asarray(nu))
    law = noise
    closed = _closed(prior) if law.name == "norm" else None

    def r(mu: Floats, nu: Floats) -> Floats:
        mu, nu = np.broadcast_arrays(np.asarray(mu, dtype=float), np.asarray(nu, dtype=float))
        if not np.all(nu > 0):
            raise InputError(
                f"nu={nu.min()}: the scale of the noise is positive; no noise at all is cr.penalties.Dirac."
            )
        if closed is not None:
            return closed(mu, nu) - law.entropy(1.0) - np.log(nu)
        parts = -(-mu.size // _ROWS)
        flat = zip(np.array_split(mu.ravel(), parts), np.array_split(nu.ravel(), parts), strict=True)
        expected = np.concatenate([_expect(log_prob, law, m, s, centre, width) for m, s in flat]).reshape(mu.shape)
        return -expected - law.entropy(1.0) - np.log(nu)

    return r


def _expect(
    log_prob: Callable[[Floats], Floats], noise: Noise, mu: Floats, nu: Floats, centre: float, width: float
) -> Floats:
    """E log p(mu + nu e) for vectors mu and nu."""
    around = centre + width * np.concatenate([-_LADDER[::-1], [0.0], _LADDER])
    own = np.broadcast_to(noise.edges, (len(mu), len(noise.edges)))
    edges = np.sort(np.concatenate([own, (around - mu[:, None]) / nu[:, None]], axis=1), axis=1)
    e, length = panels(edges.clip(noise.edges[0], noise.edges[-1]))
    weights = noise.density(e) * length
    values = log_prob(mu[:, None] + nu[:, None] * e)
    total = np.sum(weights * np.where(weights > 0, values, 0.0), axis=1)
    return np.asarray(total / np.sum(weights, axis=1), dtype=float)


def _log_prob(prior: Any) -> tuple[Callable[[Floats], Floats], float, float]:
    """The log-density, and where its middle is and how wide it is."""
    if isinstance(prior, _Frozen) and isinstance(prior.dist, stats.rv_continuous):
        low, middle, high = prior.ppf([0.25, 0.5, 0.75])

        def _laplace(w: Floats) -> Floats:  # scipy's own underflows to -inf beyond 745 scales
            b = (high - low) / (2 * np.log(2))
            return np.asarray(-np.abs(w - middle) / b - np.log(2 * b), dtype=float)

        if not np.isfinite([low, middle, high]).all():
            raise InputError(
                f"penalty_of: {prior.dist.name} with these parameters is no distribution (is its scale positive?)."
            )
        return _laplace if prior.dist.name == "laplace" else prior.logpdf, float(middle), float(high - low)
    if isinstance(prior, Independent):
        if isinstance(prior.scale, str | Mapping):
            raise InputError(
                f"penalty_of: scale={prior.scale!r} is a rule for a network; a weight alone needs a number, scale=1.0."
            )
        density, scale = prior, float(prior.scale)
        if not scale > 0:
            raise InputError(f"penalty_of: scale={scale}: a prior's scale is a positive number.")
        width = density.standard_deviation if np.isfinite(density.standard_deviation) else 1.0
        centre = density.mean if isinstance(density, Tabulated) and np.isfinite(density.mean) else 0.0

        def log_prob(w: Floats) -> Floats:
            return np.asarray(density.log_density(torch.from_numpy(w / scale)).numpy() - np.log(scale), dtype=float)

        return log_prob, scale * centre, scale * width
    if callable(prior):
        found = window(lambda w: -np.asarray(prior(w), dtype=float))
        return lambda w: np.asarray(prior(w), dtype=float), found.centre, found.width
    raise InputError(
        f"penalty_of({prior!r}): a prior is a frozen scipy distribution such as stats.laplace(scale=0.5), one of"
        " cr.priors with a number for its scale, or a function that gives its log-density."
    )


def _closed(prior: Any) -> Penalty | None:
    """-E log p under Gaussian noise where it is known."""
    if not (isinstance(prior, _Frozen) and prior.dist.name in ("norm", "laplace")):
        return None
    m = float(prior.mean())
    if prior.dist.name == "norm":
        variance = float(prior.var())
        return lambda mu, nu: ((mu - m) ** 2 + nu**2) / (2 * variance) + np.log(2 * np.pi * variance) / 2
    b = float(np.sqrt(prior.var() / 2))

    def laplace(mu: Floats, nu: Floats) -> Floats:
        t = (mu - m) / (nu * np.sqrt(2))
        folded = nu * np.sqrt(2 / np.pi) * np.exp(-t * t) + (mu - m) * erf(t)
        return np.asarray(folded / b + np.log(2 * b), dtype=float)

    return laplace
