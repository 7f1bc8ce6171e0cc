"""How long things take beside each other: rounds in which each has its turn, so that a busy machine slows all alike.

>>> times = race({"one": lambda: sum(range(20_000)), "two": lambda: sum(range(40_000))}, rounds=9)
>>> ratio = ratios(times, "one")["two"]
>>> ratio.low <= ratio.median <= ratio.high
True
"""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_FEWEST = 3  # rounds, of which a median says something


@dataclass(frozen=True)
class Ratio:
    """The median over rounds of a time in units of another's of the same round, and the range of 10 to 90 %."""

    median: float
    low: float
    high: float
    milliseconds: float
    """Median time of one turn."""

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}-{self.high:.2f}]"


def race(
    steps: Mapping[str, Callable[[], object]], rounds: int, repeats: int = 1, seconds: float = math.inf, seed: int = 0
) -> dict[str, list[float]]:
    """Seconds of each contender in each round, `repeats` calls a turn, in an order that is shuffled every round.

    Ends after `rounds` rounds, or with the first that ends after so many `seconds`, but has three at least.
    """
    for step in steps.values():
        step(), step()  # memory is laid out by the first calls
    order = random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in steps}
    begun = time.perf_counter()
    for done in range(rounds):
        if done >= _FEWEST and time.perf_counter() - begun > seconds:
            break
        for name in order.sample(list(steps), len(steps)):
            start = time.perf_counter()
            for _ in range(repeats):
                steps[name]()
            times[name].append((time.perf_counter() - start) / repeats)
    return times


def ratios(times: Mapping[str, list[float]], base: str) -> dict[str, Ratio]:
    """Every contender in units of `base`, round by round."""
    found = {}
    for name, taken in times.items():
        each = sorted(mine / plain for mine, plain in zip(taken, times[base], strict=True))
        tenth = len(each) // 10
        found[name] = Ratio(statistics.median(each), each[tenth], each[-1 - tenth], 1e3 * statistics.median(taken))
    return found
