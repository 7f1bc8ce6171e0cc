"""Which prior a penalty is.

A penalty r(mu, nu) on the mean and scale of the noise on a weight, added to an expected loss, is variational inference
if it is a KL divergence: if r = KL(q || p) + constant for some prior p. Then p = exp(A) / Z with one A for all nu,

    E[A(mu + nu e)] = -r(mu, nu) - H[nu e] + constant,                                                      (*)

and A is found by `trend` where r is a polynomial plus a wave, else by `inversion`. Without noise A = -r. A learnt
nu is tested from 1/100 of the prior's width to 3 widths. The answer is a `Tabulated` prior with an error estimate, or
`NoPrior` with the reason. [Wolinski, Charpiat, Ollivier 2022]

>>> p = prior_of(lambda mu, sigma: 2 * (mu**2 + sigma**2) - np.log(sigma), stats.norm)
>>> round(p.variance, 6)                                  # N(0, 1/4): KL = 2 (mu^2 + sigma^2) - log sigma + constant
0.25
>>> print(prior_of(lambda mu, sigma: np.abs(mu), stats.norm(scale=0.5)))
No prior: it is not smooth enough. ...
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats  # noqa: F401  (the doctest's)

from credent.penalties.given import Given
from credent.penalties.inversion import SAFETY, Inverse, Points, averages, curve_of, invert, within
from credent.penalties.kinks import corner, is_kink, sharpest, unexplained
from credent.penalties.noise import Family, Floats, Noise, noise_of
from credent.penalties.trend import exact_inverse
from credent.penalties.verdict import NoPrior
from credent.penalties.window import Window, window
from credent.priors.curve import Curve
from credent.priors.tabulated import Tabulated

Mask: TypeAlias = npt.NDArray[np.bool_]

_SCALES = (0.01, 0.1, 0.4, 1.0)  # of a learnt nu, in units of the penalty's width
_ELSEWHERE = np.geomspace(0.015, 3.0, 12)  # in widths: between the fitted scales, and beyond the largest
_FEW = 40  # points for that
_SHARE = 1e-4  # of what the noise adds to the log-density, which may be thousands of nats
_MOST_LEFT = 5e-3  # nats that (*) may miss, beyond the noise in r
_RISE = 1.001  # nats for each e-fold of distance; at 1 exp(-r) is 1 / distance
_GROSS = 0.5  # nats beyond which nothing need be inverted to see that no A serves all scales
_CORE = 12.0  # (*) is tested where the prior is within so many nats of its peak
_WORST = 0.5  # of the peak: an error that says nothing


def prior_of(r: Any, family: Family) -> Tabulated | NoPrior:
    """The prior whose KL divergence is the penalty r, up to a constant, for weights with this noise.

    `r` is a function of two arrays, the means and the scales, or a named penalty such as `L2(0.5)`. `family` is a scipy
    distribution, unfrozen if the scale is learnt, frozen if it is fixed, or `Dirac` for weights without noise.

    What is assumed: no feature of r, such as a mode or a dip, is narrower than about 5 % of its distance from 0, or the
    search may miss it. With a learnt scale (*) is tested at 16 scales from 1/100 of the prior's width to 3 widths,
    and not between or beyond them.
    """
    noise = noise_of(family)
    given = Given(r, 1.0 if noise is None or noise.fixed is None else noise.fixed)
    if noise is None:
        found = window(lambda mu: given.anywhere(mu, 1.0))
        return _too_flat(found) or _without_noise(given, found)
    if noise.fixed is not None:
        fixed = noise.fixed
        found = window(lambda mu: given.anywhere(mu, fixed))
        scales = [fixed]
    else:
        found = _settled(given)
        scales = [share * found.width for share in _SCALES]
    return _too_flat(found) or _with_noise(given, noise, found, scales)


def _settled(given: Given) -> Window:
    """The window of r at a scale that is a hundredth of its width."""
    nu, found = 1.0, window(lambda mu: given.anywhere(mu, 1.0))
    for _ in range(12):
        wanted = _SCALES[0] * found.width
        if 0.8 < wanted / nu < 1.25 or found.slowest <= _RISE:  # what does not rise may have no width to settle at
            break
        nu = wanted
        found = window(lambda mu, nu=nu: given.anywhere(mu, nu), found)  # type: ignore[misc]
    return found


def _too_flat(found: Window) -> NoPrior | None:
    if found.slowest > _RISE:
        return None
    return NoPrior(
        "it is not integrable",
        f"Far out the penalty rises by {found.slowest:.3g} nats when the distance grows e-fold; exp(-r) integrates only"
        " if it rises by more than 1.",
        {"rise": found.slowest},
    )


def _without_noise(given: Given, found: Window) -> Tabulated:
    def r(mu: Floats) -> Floats:
        return given(mu, 1.0)

    x, _ = found.points()
    roughness = given.roughness(x, found.width, 1.0)
    step = (20 * roughness + 1e-9) * found.width  # below it a kink drowns in the noise
    kinks = tuple(k for k in sharpest(r, x, step) if is_kink(r, k, found.width))
    for k in kinks:
        x = np.sort(np.append(x[np.abs(x - k) > 1e-6 * found.width], k))
    values, middles = -r(x), (x[1:] + x[:-1]) / 2
    table = Tabulated(x, values, kinks=kinks)
    constant = values[0] - table.log_density(x[:1])[0]
    change = np.abs(table.log_density(middles) + constant + r(middles))
    error = 2 * float(np.max(table.density(middles) * change)) + SAFETY * roughness * table.peak
    return Tabulated(x, values, kinks=kinks, error=error, log_priors={0.0: values})


def _with_noise(given: Given, noise: Noise, found: Window, scales: list[float]) -> Tabulated | NoPrior:
    core, _ = found.points()
    roughness = max(given.roughness(core, found.width, nu) for nu in scales)
    if noise.fixed is not None:
        rough = _not_smooth(lambda mu: given(mu, scales[0]), core, noise, scales[0], roughness)
        if rough is not None:
            return rough
    wide = found.widened(noise.reach * scales[-1])
    x, u = wide.points()
    targets = np.stack([-given(x, nu) - noise.entropy(nu) for nu in scales])
    likely = targets[0] > targets[0].max() - _CORE
    if len(scales) > 1:  # r at the least scale is nearly -A: averaged over more noise, it is nearly r there
        left = targets - averages(curve_of(x, targets[0]), x, noise, scales)
        kept = np.stack([within(x, noise, nu) for nu in scales])
        if not np.max(np.abs(left - left[0])[kept & likely], initial=0.0) <= _GROSS:
            return _dependence(targets[0] + left - left[0], x, scales, kept & likely)
    even = np.linspace(x[0], x[-1], len(x))
    evenly = -given(even, scales[0]) - noise.entropy(scales[0])
    guess = exact_inverse(noise, scales[0], even, evenly, 1e-10 * float(np.ptp(evenly)) + 6 * roughness)
    inverse = invert(Points(x, u, wide.centre, wide.width), noise, scales, targets, guess, roughness)
    tested = inverse.kept & likely
    if len(scales) > 1 and np.max(np.abs(inverse.left[tested])) >= _MOST_LEFT + SAFETY**2 * roughness:
        return _dependence(inverse.values + inverse.left, x, scales, tested)
    if len(scales) > 1:
        other = _elsewhere(given, noise, found, inverse, x, scales, likely)
        if other is not None:
            return other
    return _answer(inverse, x, scales, tested)


def _elsewhere(
    given: Given, noise: Noise, found: Window, inverse: Inverse, x: Floats, scales: list[float], likely: Mask
) -> NoPrior | None:
    """The evidence that (*) fails for this A at scales it was not fitted to, beyond the error of A and of its tails."""
    thin = np.flatnonzero(likely)
    thin = thin[:: -(-len(thin) // _FEW)]
    at, cut = x[thin], len(x) // 20
    curve, shorter = curve_of(x, inverse.values), curve_of(x[cut:-cut], inverse.values[cut:-cut])
    core, _ = found.points()
    worst, answer = 0.0, None
    for nu in found.width * _ELSEWHERE:
        nodes = at[:, None] + nu * noise.nodes
        expected = curve(nodes) @ noise.weights
        left = -given(at, nu) - noise.entropy(nu) - expected
        tails = np.abs(shorter(nodes) @ noise.weights - expected)
        errors = np.interp(nodes, x, inverse.errors) @ noise.weights + SAFETY * tails
        errors = errors + _SHARE * np.abs(expected - inverse.values[thin])
        allowed = _MOST_LEFT + SAFETY**2 * given.roughness(core, found.width, nu) + errors
        excess = float(np.max(np.abs(left) - allowed))
        if excess > worst:
            wanted = inverse.values[thin] + np.vstack([inverse.left[:, thin], left])
            tested = np.vstack([inverse.kept[:, thin], np.abs(left) > allowed])
            worst, answer = excess, _dependence(wanted, at, [*scales, float(nu)], tested)
    return answer


def _not_smooth(
    r: Callable[[Floats], Floats], core: Floats, noise: Noise, nu: float, roughness: float
) -> NoPrior | None:
    """The evidence that r is no average over noise of this scale, if it is there."""
    sharp = None if noise.jumps else corner(r, core, nu, roughness)
    if sharp is not None:
        at, jump = sharp
        return NoPrior(
            "it is not smooth enough",
            f"The slope of r jumps by {jump:.3g} at mu={_tidy(at, nu)}; averages over {noise.called} noise, here of"
            f" scale {nu:.4g}, have no such corners.",
            {"mu": at, "nu": nu, "jump": jump},
        )
    misfit = unexplained(r, core, noise, nu, roughness)
    if misfit is not None:
        return NoPrior(
            "it is not smooth enough",
            f"An average over {noise.called} noise of scale {nu:.4g} bends more gently than r does at"
            f" mu={_tidy(misfit.at, nu)}: {misfit.left:.2g} nats are left over of a bend of {misfit.bend:.2g}.",
            {"mu": misfit.at, "nu": nu, "left": misfit.left, "bend": misfit.bend},
        )
    return None


def _tidy(value: float, unit: float) -> str:
    """Three digits, and 0 for what is only rounding."""
    return f"{value if abs(value) > 1e-3 * unit else 0.0:.3g}"


def _dependence(wanted: Floats, x: Floats, scales: list[float], tested: Mask) -> NoPrior:
    """The evidence that no single A serves all scales, from the A that each wants to first order, (K, n)."""
    span = np.where(tested.all(axis=0), np.max(wanted, axis=0) - np.min(wanted, axis=0), -1.0)
    at = int(np.argmax(np.where(span >= 0.99 * span.max(), wanted[0], -np.inf)))  # where it matters most
    ends = (int(np.argmin(wanted[:, at])), int(np.argmax(wanted[:, at])))
    first, last = sorted(ends, key=lambda k: scales[k])
    return NoPrior(
        "it depends on the scale",
        f"The log-density would have to change by {span[at]:.3g} nats between nu={scales[first]:.3g} and"
        f" nu={scales[last]:.3g} at w={_tidy(x[at], scales[0])}.",
        {"change": float(span[at]), "w": float(x[at]), "nu": scales[first], "other nu": scales[last]},
        x,
        dict(zip(scales, wanted, strict=True)),
    )


def _answer(inverse: Inverse, x: Floats, scales: list[float], tested: Mask) -> Tabulated | NoPrior:
    weights = np.exp(inverse.values - inverse.values.max())
    errors = inverse.errors + SAFETY * float(np.max(np.abs(inverse.left[tested]), initial=0.0))
    mean = float(np.sum(weights * errors * np.gradient(x)) / np.sum(weights * np.gradient(x)))
    relative = float(np.max(weights * (errors + mean)))
    if not relative <= _WORST:
        return NoPrior(
            "it cannot be told from this noise",
            f"Undoing the noise of scale {scales[0]:.4g} leaves the density uncertain by {relative:.2g} of its peak.",
            {"error": relative, "nu": scales[0]},
            x,
            _log_priors(inverse, scales),
        )
    if not Curve(x, inverse.values).falls():
        return NoPrior(
            "it is not integrable",
            f"Beyond w={x[0]:.3g} or w={x[-1]:.3g} the log-density that the penalty asks for does not fall, or too"
            " slowly for the density to have a finite integral.",
            {"low": float(x[0]), "high": float(x[-1])},
            x,
            _log_priors(inverse, scales),
        )
    table = Tabulated(x, inverse.values, log_priors=_log_priors(inverse, scales))
    return Tabulated(x, inverse.values, error=relative * table.peak, log_priors=table.log_priors)


def _log_priors(inverse: Inverse, scales: list[float]) -> dict[float, Floats]:
    """The A that each scale asks for, to first order: what serves all, and what this one leaves over."""
    return {nu: inverse.values + left for nu, left in zip(scales, inverse.left, strict=True)}
