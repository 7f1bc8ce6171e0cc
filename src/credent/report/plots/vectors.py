"""Arguments of a plot as float vectors of one length, with NaN for all that is not finite.

>>> vectors("band", x=[0, 1], mean=[2.0, float("inf")])
[array([0., 1.]), array([ 2., nan])]
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from credent.errors import InputError

Vector = NDArray[np.float64]


def vectors(plot: str, /, **arguments: ArrayLike) -> list[Vector]:
    """The arguments in the order given; they must be one-dimensional and of one length."""
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in arguments.items()}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise InputError(
                f"{plot}: `{name}` has shape {array.shape}, and one number a point is drawn; write {name}.ravel() if "
                "its values are the points, or pick one column of it."
            )
    if len({array.size for array in arrays.values()}) > 1:
        sizes = ", ".join(f"{name} {array.size}" for name, array in arrays.items())
        raise InputError(f"{plot}: one value a point is needed in each argument, but their lengths differ: {sizes}.")
    return [np.where(np.isfinite(array), array, np.nan) for array in arrays.values()]


def share(value: float) -> str:
    """A fraction in percent, for labels.

    >>> share(0.831)
    '83.1%'
    """
    return f"{100 * value:.1f}%"
