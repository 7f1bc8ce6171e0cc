"""What the noise on a weight is: a law that is shifted to the mean mu and stretched by a scale nu.

    w = mu + nu e,      e of a fixed law with E e = 0

A scipy distribution means this: unfrozen (`stats.norm`) nu is learnt and every nu > 0 may come; frozen
(`stats.norm(scale=0.3)`) nu is that scale for good. Its own location does not count, since mu is the mean. Shape
parameters stay fixed: `functools.partial(stats.t, 5)` is a Student-t with 5 degrees of freedom and a learnt scale.
`Dirac` is no noise at all.

Expectations are sums over `nodes` with `weights`: Gauss-Legendre on panels that double in length towards the tails.

>>> noise = noise_of(stats.uniform(scale=2.0))            # of width 2
>>> noise.fixed, round(noise.moment(2), 12)               # E e^2 = 1/12 at scale one
(2.0, 0.083333333333)
"""

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

from credent.errors import InputError

Floats: TypeAlias = npt.NDArray[np.float64]
_Frozen = type(stats.norm())
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_DOUBLINGS = 50


@dataclass(frozen=True)
class _Dirac:
    """No noise: a weight is its mean, and the prior of a penalty is exp(-r)."""

    def __repr__(self) -> str:
        return "Dirac"


Dirac = _Dirac()
Family: TypeAlias = Any
"""A scipy distribution, frozen or not, a `functools.partial` of one that fixes its shapes, or `Dirac`."""


@dataclass(frozen=True)
class Noise:
    """A translation family: the law of e before it is centred, and nu if it is fixed."""

    law: Any
    fixed: float | None
    name: str

    @cached_property
    def _offset(self) -> float:
        return float(self.law.mean())

    @cached_property
    def edges(self) -> Floats:
        """Ends of the panels in e: of length one around the median, doubling outwards until nothing is left."""
        low, high = self.law.support()
        middle = float(self.law.median())
        width = float(self.law.ppf(0.75) - self.law.ppf(0.25)) / 2
        ladder = width * np.array([0.0, 0.5, 1, 1.5, 2, 3, 4, 5.5, *8 * 2.0 ** np.arange(_DOUBLINGS)])
        sides = []
        for sign in (-1, 1):
            x = middle + sign * ladder
            left = self.law.pdf(x) * (ladder / width) ** 3 * width
            left[:8] = 1
            inside = x[(x > low) & (x < high) & (left > 1e-17)]
            end = high if sign > 0 else low
            last = end if np.isfinite(end) else inside[-1] + sign * abs(inside[-1] - inside[-2])
            sides.append(np.append(inside, last))
        return np.concatenate([sides[0][:0:-1], sides[1]]) - self._offset

    @cached_property
    def reach(self) -> float:
        """Half the length that holds all of the noise but a thousandth."""
        return float(self.law.ppf(0.9995) - self.law.ppf(0.0005)) / 2

    def density(self, e: Floats) -> Floats:
        """Of the centred noise at scale one."""
        return np.asarray(self.law.pdf(e + self._offset), dtype=float)

    @cached_property
    def _rule(self) -> tuple[Floats, Floats]:
        nodes, lengths = panels(self.edges[None])
        weights = self.density(nodes[0]) * lengths[0]
        return nodes[0], weights / weights.sum()

    @property
    def nodes(self) -> Floats:
        """Points e, (Q,)."""
        return self._rule[0]

    @property
    def weights(self) -> Floats:
        """Their weights, (Q,), which sum to one."""
        return self._rule[1]

    @property
    def jumps(self) -> bool:
        """Whether the density begins or ends abruptly, as the uniform's does."""
        ends = np.array([end for end in self.law.support() if np.isfinite(end)])
        return bool(np.any(self.law.pdf(ends) > 0))

    @property
    def called(self) -> str:
        """Its name as people say it."""
        return {"norm": "Gaussian", "laplace": "Laplace", "t": "Student-t"}.get(self.name, self.name)

    def entropy(self, nu: float) -> float:
        """Entropy of nu e in nats."""
        return float(self.law.entropy()) + float(np.log(nu))

    def moment(self, order: int) -> float:
        """E e^order at scale one; infinite where there is none."""
        return float(np.sum(self.weights * self.nodes**order)) if self._has_moment(order) else np.inf

    def _has_moment(self, order: int) -> bool:
        ends = self.edges[[0, -1]]
        return bool(np.all(self.density(ends * 0.999) * np.abs(ends) ** (order + 1) < 1e-3)) or bool(
            np.all(np.isfinite(self.law.support()))
        )

    def characteristic(self, k: float) -> complex:
        """E exp(i k e) at scale one."""
        return complex(np.sum(self.weights * np.exp(1j * k * self.nodes)))


def panels(edges: Floats) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and lengths, (rows, Q), on the panels between each row's increasing edges."""
    half = np.diff(edges, axis=1)[..., None] / 2
    nodes = edges[:, :-1, None] + half * (1 + _NODES)
    return nodes.reshape(len(edges), -1), (half * _WEIGHTS).reshape(len(edges), -1)


def noise_of(family: Family) -> Noise | None:
    """The noise that a scipy distribution stands for; None for `Dirac`."""
    if isinstance(family, _Dirac):
        return None
    shapes: tuple[float, ...] = ()
    fixed = None
    distribution: Any = family
    if isinstance(family, functools.partial):
        distribution, shapes = family.func, _partial_shapes(family)
    elif isinstance(family, _Frozen):
        distribution, shapes, fixed = _thaw(family)
    if isinstance(distribution, stats.rv_discrete):
        raise InputError(f"{distribution.name} is discrete: noise on a weight has a density, as stats.norm has.")
    continuous: Any = stats.rv_continuous
    if not isinstance(distribution, continuous):
        raise InputError(
            f"{family!r} is no family of noise: write scipy.stats.norm (its scale is learnt),"
            " scipy.stats.norm(scale=0.3) (its scale is fixed) or cr.penalties.Dirac (no noise)."
        )
    if len(shapes) != distribution.numargs:
        raise InputError(
            f"stats.{distribution.name} has shape parameters ({distribution.shapes}): fix them and leave the scale free"
            f" with functools.partial(stats.{distribution.name}, 5), or fix all with stats.{distribution.name}(5,"
            " scale=0.3)."
        )
    if fixed is not None and not (np.isfinite(fixed) and fixed > 0):
        raise InputError(
            f"{distribution.name} noise of scale {fixed}: a scale is positive; no noise is cr.penalties.Dirac."
        )
    if any(np.ndim(shape) for shape in shapes):
        raise InputError(f"stats.{distribution.name}{shapes}: each shape is one number, for one family of noise.")
    law = distribution(*shapes)
    if not np.isfinite(law.mean()):
        raise InputError(
            f"stats.{distribution.name}{shapes or ''} has no mean, so there is no mu that a penalty could speak of; use"
            " noise with a mean, such as stats.norm or functools.partial(stats.t, 3)."
        )
    return Noise(law, fixed, distribution.name)


def _thaw(frozen: Any) -> tuple[Any, tuple[float, ...], float]:
    """The distribution, its shapes and the scale of a frozen one."""
    args, named, distribution = list(frozen.args), dict(frozen.kwds), frozen.dist
    if isinstance(distribution, stats.rv_discrete):
        return distribution, (), 1.0
    shapes = tuple(named[name] if name in named else args.pop(0) for name in _shape_names(distribution))
    scale = named.get("scale", args[1] if len(args) > 1 else 1.0)
    if np.ndim(scale):
        raise InputError(f"{distribution.name} noise of scale {scale}: the scale is one number, as in scale=0.3.")
    return distribution, shapes, float(scale)


def _partial_shapes(family: "functools.partial[Any]") -> tuple[float, ...]:
    """The shapes that a partial fixes, by place or name, in the distribution's order; nothing else may be fixed."""
    name, named = getattr(family.func, "name", "norm"), dict(family.keywords)
    names = _shape_names(family.func)
    if "scale" in named or "loc" in named:
        raise InputError(
            f"{family!r}: a partial fixes shapes, and leaves the scale to be learnt. For a fixed scale write"
            f" stats.{name}(scale={named.get('scale', 1.0)}); a location does not count, since mu is the mean."
        )
    if len(family.args) > len(names) or not set(named) <= set(names):
        raise InputError(f"{family!r}: fix the shapes of stats.{name} only ({', '.join(names) or 'it has none'}).")
    found = dict(zip(names, family.args, strict=False)) | named
    return tuple(found[each] for each in names if each in found)


def _shape_names(distribution: Any) -> list[str]:
    return [name.strip() for name in (getattr(distribution, "shapes", None) or "").split(",") if name.strip()]
