"""A prior known by its log-density at points, such as one that was recovered from a penalty.

    p(w) = exp a(w) / Z,     a: cubic between the points, a power beyond them (`priors.curve`),    Z = int exp a

Z and the moments are Gauss-Legendre sums between the points and over the tails. Draws invert the distribution function.
The cross-entropy with a Gaussian is closed where the table is a polynomial of degree 2, 4 or 6 (a Gauss-Hermite sum is
then exact); other tables have none, and VI takes a draw. (A quadrature would look at a few places of q, and give wrong
gradients where q is wider than what the prior shows between them.)

Shapes: `density` and `log_density` take arrays or tensors of any shape, elementwise.

>>> x = np.linspace(-8, 8, 161)
>>> p = Tabulated(x, 7 - x**2 / 2)                        # a standard normal, whatever the constant
>>> round(p.variance, 6), p.density(np.array([0.0])).round(6)
(1.0, array([0.398942]))
"""

import hashlib
import math
from collections.abc import Mapping
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from credent.errors import InputError
from credent.priors.curve import Curve
from credent.priors.prior import Independent
from credent.priors.scales import Scale

Floats = npt.NDArray[np.float64]
Values = TypeVar("Values", Floats, Tensor)

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_E_FOLDS = np.linspace(0, 60, 241)  # how far the tails are integrated, in logarithms of the distance
_DEGREES = (2, 4, 6)
_EXACT = 1e-9  # of the table's range: how closely a polynomial is one
_HERMITE = 4  # nodes, exact up to degree 7


class Tabulated(Independent):
    """A density from `log_densities` at increasing `points`, up to a constant; at scale one it is what was tabulated.

    `error` estimates the largest |p - p*|, where the table is an estimate of p*. `log_priors` holds the log-densities
    that the penalty asks for at each scale of the noise, at the points `grid`: for plots.
    """

    def __init__(
        self,
        points: Floats,
        log_densities: Floats,
        *,
        kinks: tuple[float, ...] = (),
        error: float = 0.0,
        log_priors: Mapping[float, Floats] | None = None,
        scale: Scale = 1.0,
    ) -> None:
        points, values = np.asarray(points, dtype=float), np.asarray(log_densities, dtype=float)
        if points.ndim != 1 or points.shape != values.shape or len(points) < 8:
            raise InputError(
                f"Tabulated: points of shape {points.shape} and log-densities of shape {values.shape}: two vectors of"
                " one length, at least 8."
            )
        if not (np.all(np.diff(points) > 0) and np.isfinite(points).all() and np.isfinite(values).all()):
            raise InputError("Tabulated: points must increase, and log-densities be finite; leave out what is -inf.")
        self.points, self.error, self.scale, self.kinks = points, float(error), scale, kinks
        self.grid, self.log_priors = points, dict(log_priors or {})
        self._curve = Curve(points, values - values.max(), kinks)
        if not self._curve.falls():
            raise InputError(
                f"Tabulated: outside {points[0]:.4g} to {points[-1]:.4g} the density falls too slowly to integrate to"
                " one; give points further out, or another density."
            )
        self._log_mass = math.log(float(self._cells[1].sum()))
        rules = list(scale.values()) if isinstance(scale, Mapping) else [scale]
        if any(isinstance(rule, str) for rule in rules) and not math.isfinite(self.variance):
            raise InputError(
                f"Tabulated(scale={scale!r}): a rule sets the variance, and this density has no variance, its tails are"
                " too heavy; write a number, such as scale=1.0 for the density as it was tabulated."
            )

    @cached_property
    def _cells(self) -> tuple[Floats, Floats]:
        """Quadrature nodes (cells, 8) between and beyond the points, and exp(a) dx at each."""
        (low, *_), (high, *_) = self._curve.tails
        centre = self._curve.centre
        beyond = [centre + (end - centre) * np.exp(_E_FOLDS) for end in (low, high)]
        edges = np.concatenate([beyond[0][:0:-1], self.points, beyond[1][1:]])
        half = np.diff(edges)[:, None] / 2
        nodes = edges[:-1, None] + half * (1 + _NODES)
        return nodes, np.exp(self._curve(torch.from_numpy(nodes)).numpy()) * half * _WEIGHTS

    def log_density(self, z: Values) -> Values:
        """log p(z), elementwise."""
        if isinstance(z, Tensor):
            return self._curve(z) - self._log_mass
        return self._curve(torch.from_numpy(np.array(z, dtype=float))).numpy() - self._log_mass

    def density(self, z: Values) -> Values:
        """p(z), elementwise."""
        log = self.log_density(z)
        return log.exp() if isinstance(log, Tensor) else np.exp(log)

    @cached_property
    def peak(self) -> float:
        """The largest value of p at the points."""
        return float(self.density(self.points).max())

    @property
    def relative_error(self) -> float:
        """`error` in units of the density's peak."""
        return self.error / self.peak

    @cached_property
    def mean(self) -> float:
        """E w."""
        nodes, mass = self._cells
        return float((nodes * mass).sum() / mass.sum()) if self._curve.falls(1) else math.nan

    @cached_property
    def variance(self) -> float:
        """Var w; infinite for a tail of w^-3 or heavier."""
        nodes, mass = self._cells
        return float(((nodes - self.mean) ** 2 * mass).sum() / mass.sum()) if self._curve.falls(2) else math.inf

    @property
    def standard_deviation(self) -> float:
        """Root of the variance."""
        return math.sqrt(self.variance)

    @cached_property
    def _quantiles(self) -> tuple[Tensor, Tensor]:
        """Points, dense where the density is, and the distribution function there."""
        nodes, mass = self._cells
        below = np.cumsum(mass.ravel()) - mass.ravel() / 2
        fresh = np.concatenate([[True], np.diff(below) > 0])
        return torch.from_numpy(nodes.ravel()[fresh]), torch.from_numpy(below[fresh] / mass.sum())

    def draw(self, like: Tensor, generator: torch.Generator) -> Tensor:
        """Draws by the inverse of the distribution function."""
        points, below = (t.to(like.device) for t in self._quantiles)
        u = torch.empty(like.shape, dtype=torch.float64, device=like.device).uniform_(generator=generator)
        right = torch.searchsorted(below, u).clamp(1, len(below) - 1)
        share = ((u - below[right - 1]) / (below[right] - below[right - 1])).clamp(0, 1)
        return torch.lerp(points[right - 1], points[right], share).to(like.dtype)

    @cached_property
    def _polynomial(self) -> np.polynomial.Polynomial | None:
        """log p as a polynomial, if it is one at all points."""
        values = self.log_density(self.points)
        for degree in _DEGREES:
            if len(self.points) >= 4 * degree:  # fewer prove nothing
                found = np.polynomial.Polynomial.fit(self.points, values, degree)
                if np.max(np.abs(found(self.points) - values)) <= _EXACT * np.ptp(values):
                    return found
        return None

    def cross_entropy(self, mean: Tensor, stddev: Tensor) -> Tensor | None:
        """-E log p under N(mean, stddev^2), elementwise; None unless log p is a polynomial."""
        if self._polynomial is None:
            return None
        nodes, weights = np.polynomial.hermite_e.hermegauss(_HERMITE)
        e, shares = mean.new_tensor(nodes), mean.new_tensor(weights / weights.sum())
        offset, slope = self._polynomial.mapparms()
        z = offset + slope * (mean[..., None] + e * stddev[..., None])
        value = torch.zeros_like(z)
        for coefficient in self._polynomial.coef[::-1]:
            value = value * z + float(coefficient)
        return -value @ shares

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.points.tobytes() + self._curve.coefficients.numpy().tobytes()).hexdigest()[:12]
        return (
            f"Tabulated({len(self.points)} points, standard_deviation={self.standard_deviation:.6g},"
            f" error={self.error:.2g}, scale={self.scale!r}, digest={digest!r})"
        )
