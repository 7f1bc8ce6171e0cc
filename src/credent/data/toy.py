"""Three curves in one dimension on which the two kinds of uncertainty can be seen.

    y = f(x) + s(x) e,   e ~ N(0, 1)

    cubic             f = x^3,      s = 3                      20 points in [-4, 4]
    sine_gap          f = sin 3x,   s = 0.1                    25 in each of +-[0.5, 1.5]
    heteroscedastic   f = sin x,    s = 0.05 + 0.5 sigmoid 2x  200 points in [-3, 3]

Cubic: Hernandez-Lobato and Adams, Probabilistic backpropagation, 2015. Epistemic bands should open outside the
training range and in the gap; the aleatoric band should follow s(x).

Validation and test parts are 100 and 200 fresh points from the law of the training points, so that scores on them are
honest; what happens outside their range is for a picture. The noise-free curve is `CUBIC.mean(x)`, in original units.

Shapes: x (n, 1), y (n, 1) float32, both standardised by the training points.

>>> data = cubic(seed=0)
>>> len(data.train), len(data.val), len(data.test)
(20, 100, 200)
>>> bool(((data.train[:][0] * data.std + data.mean).abs() <= 4).all())           # in original units
True
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from credent.data.dataset import Data, Rows, regression

Array = NDArray[np.float64]
NUM_VAL, NUM_TEST = 100, 200


@dataclass(frozen=True)
class Toy:
    """A curve, its noise, where the training points lie (equally many in each interval)."""

    mean: Callable[[Array], Array]
    scale: Callable[[Array], Array]
    intervals: tuple[tuple[float, float], ...]
    num_train: int

    def data(self, name: str, seed: int) -> Data:
        """Draw all three parts by `seed`."""
        random = np.random.default_rng(seed)

        def noisy(x: Array) -> Rows:
            return x[:, None], self.mean(x) + self.scale(x) * random.standard_normal(len(x))

        def points(count: int) -> Array:
            each = count // len(self.intervals)
            return np.concatenate([random.uniform(low, high, each) for low, high in self.intervals])

        train = noisy(points(self.num_train))
        val = noisy(points(NUM_VAL))
        return regression(name, train, val, test=noisy(points(NUM_TEST)))


CUBIC = Toy(
    mean=lambda x: x**3,
    scale=lambda x: np.full_like(x, 3.0),
    intervals=((-4, 4),),
    num_train=20,
)
SINE_GAP = Toy(
    mean=lambda x: np.sin(3 * x),
    scale=lambda x: np.full_like(x, 0.1),
    intervals=((-1.5, -0.5), (0.5, 1.5)),
    num_train=50,
)
HETEROSCEDASTIC = Toy(
    mean=np.sin,
    scale=lambda x: 0.05 + 0.5 / (1 + np.exp(-2 * x)),
    intervals=((-3, 3),),
    num_train=200,
)


def cubic(seed: int = 0) -> Data:
    """20 points of y = x^3 + N(0, 3^2) in [-4, 4], outside which the epistemic band should open."""
    return CUBIC.data("cubic", seed)


def sine_gap(seed: int = 0) -> Data:
    """Two clusters of y = sin 3x + N(0, 0.1^2) with nothing in [-0.5, 0.5], where the epistemic band should open."""
    return SINE_GAP.data("sine_gap", seed)


def heteroscedastic(seed: int = 0) -> Data:
    """200 points of y = sin x with noise that grows from 0.05 to 0.55, which the aleatoric band should follow."""
    return HETEROSCEDASTIC.data("heteroscedastic", seed)
