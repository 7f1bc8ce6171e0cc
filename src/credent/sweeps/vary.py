"""How one value is varied: over a grid, at random, or around the values of a grid.

    a list            each of its values in turn
    Uniform           u ~ U(low, high)
    LogUniform        log u ~ U(log low, log high)
    Choice            one of the values, each as likely as the others
    Jitter            N(v, v/2) around each base value v, drawn again while it is not positive

Jitter fills the space between the points of a grid: half of the draws around v lie within a third of v.

>>> random = Random("a seed")
>>> 0.001 <= LogUniform(0.001, 1.0).draw(random) <= 1
True
>>> Jitter((0.1, 1.0)).around(0.1, random) > 0
True
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from credent.errors import InputError

Plain = str | float | int | bool | None
_STANDARD = NormalDist()


@dataclass(frozen=True)
class Uniform:
    """A number between `low` and `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (-math.inf < self.low < self.high < math.inf):
            raise InputError(f"Uniform({self.low}, {self.high}): two finite numbers, the lower first.")

    def draw(self, random: Random) -> float:
        """One value."""
        return self.low + random.random() * (self.high - self.low)


@dataclass(frozen=True)
class LogUniform:
    """A positive number whose logarithm is uniform: each decade between `low` and `high` is as likely."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0 < self.low < self.high < math.inf):
            raise InputError(
                f"LogUniform({self.low}, {self.high}): two positive numbers, the lower first; Uniform may begin at 0."
            )

    def draw(self, random: Random) -> float:
        """One value."""
        return min(self.high, self.low * math.exp(random.random() * math.log(self.high / self.low)))


@dataclass(frozen=True)
class Choice:
    """One of the values, drawn anew for each run; a list instead takes each value in turn."""

    values: Sequence[Plain]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not len(self.values):
            raise InputError(f"Choice({self.values!r}): give a list of values to choose from.")

    def draw(self, random: Random) -> Plain:
        """One value."""
        return self.values[int(random.random() * len(self.values))]


@dataclass(frozen=True)
class Jitter:
    """Positive numbers around the base values, which are a grid."""

    values: Sequence[float]

    def __post_init__(self) -> None:
        numbers = [v for v in self.values if isinstance(v, int | float) and 0 < v < math.inf]
        if not numbers or len(numbers) < len(self.values):
            raise InputError(
                f"Jitter({self.values!r}): draws are from N(v, v/2), so each base value v is a positive number."
            )

    def around(self, base: float, random: Random, whole: bool = False) -> float:
        """One value around a base; rounded if it must be whole."""
        value: float = 0
        while not value > 0:
            # by way of random(), the one method whose draws stay the same in every version of Python
            value = base * (1 + _STANDARD.inv_cdf(random.random() or 0.5) / 2)
            value = round(value) if whole else value
        return value


Drawn = Uniform | LogUniform | Choice
Varied = Sequence[Plain] | Drawn | Jitter
