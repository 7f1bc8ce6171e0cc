"""A penalty as it was given: a function r(mu, nu) of arrays, or a named penalty that has one.

It is called with two arrays of one shape, and must answer with finite real numbers of that shape; otherwise the error
says what to write. Its own noise, from Monte Carlo or rounding, is read off third differences over steps so short that
nothing smooth would show.

>>> r = Given(lambda mu, nu: mu**2 / 2)
>>> r(np.array([0.0, 2.0]), 0.1)
array([0., 2.])
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from credent.errors import InputError
from credent.penalties.noise import Floats

Function: TypeAlias = Callable[[Floats, Floats], Floats]


@runtime_checkable
class Elementwise(Protocol):
    """A named penalty that is a sum over the weights of one function."""

    def elementwise(self, mu: Floats, sigma: Floats) -> Floats:
        """r for one weight, at arrays of means and scales."""
        ...


class Given:
    """r, checked at the scale `nu` and wherever it is asked for."""

    def __init__(self, r: Any, nu: float = 1.0) -> None:
        if isinstance(r, type):
            raise InputError(f"prior_of({r.__name__}): that is a class; write {r.__name__}(2.0), with its factor.")
        if isinstance(r, Elementwise):
            self._r: Function = r.elementwise
        elif callable(r):
            self._r = r
        else:
            raise InputError(
                f"prior_of({r!r}): a penalty is a function r(mu, sigma) of arrays, or a named one that is a sum over"
                " weights, such as L1 or L2. One that couples weights, such as GroupLasso, has no prior for one weight"
                " alone."
            )
        self(np.array([-1.0, -0.3, 0.0, 0.7, 1.0]), nu)

    def __call__(self, mu: Floats, nu: float) -> Floats:
        """r(mu, nu) for a vector mu, all finite."""
        values = self.anywhere(mu, nu)
        if not np.isfinite(values).all():
            where, value = mu[~np.isfinite(values)][0], values[~np.isfinite(values)][0]
            raise InputError(
                f"r({where:.6g}, {nu:.6g}) is {value}: a penalty is a finite number for every mean and scale. Look for"
                " a logarithm of zero or a division by zero there. A hard constraint is none: its prior ends where it"
                " begins, and a network trained by gradients cannot see that wall; write one that rises steeply."
            )
        return values

    def anywhere(self, mu: Floats, nu: float) -> Floats:
        """The same where overflow is no error."""
        try:
            with np.errstate(all="ignore"):
                values = np.asarray(self._r(mu, np.full_like(mu, nu)))
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError(
                f"r does not take arrays ({error}): write it with numpy (np.abs, np.where, ...), or wrap it as"
                " np.vectorize(r, otypes=[float])."
            ) from error
        if np.iscomplexobj(values):
            raise InputError("r is complex: a penalty is a real number of nats.")
        if values.shape != mu.shape:
            raise InputError(
                f"r of {mu.shape[0]} means has shape {values.shape}: it must give one value for each mean, as"
                " `lambda mu, sigma: mu**2 / 2` does; a constant is `0 * mu + c`."
            )
        return values.astype(float)

    def roughness(self, points: Floats, width: float, nu: float) -> float:
        """Standard deviation of r's own noise."""
        places = points[np.linspace(0, len(points) - 1, 9).astype(int)[1:-1]]
        values = self((places[:, None] + 1e-5 * width * np.arange(24)).ravel(), nu).reshape(len(places), -1)
        each = np.sqrt(np.mean(np.diff(values, 3, axis=1) ** 2, axis=1) / 20)
        return float(np.median(each)) + 1e-15
