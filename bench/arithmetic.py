"""What is said of times: paired ratios with their spread, exponents of growth, and when a ratio has become worse.

    interval   the bootstrap's 95 % interval of the median of the rounds' ratios, where heats are drawn, and then rounds
    exponent   b of time = a size^b, by least squares of logarithms, with its standard error
    worse      the lower end of the new interval lies above the recorded upper end by more than `SLACK`

A heat is a process: where it happens to have its memory moves all its rounds together, by a few percent. Machines move,
too, which no interval within one run knows: hence the slack.

>>> found = summary([[1.0, 1.1, 1.2], [1.3, 1.4]])
>>> found["median"], found["low"] <= found["interval"][0] <= found["interval"][1] <= found["high"]
(1.2, True)
>>> b, error = exponent([1, 2, 4, 8], [3, 12, 48, 192])         # 3 size^2
>>> round(b, 6), round(error, 6)
(2.0, 0.0)
>>> worse({"interval": [1.2, 1.3]}, {"interval": [1.0, 1.1]}), worse({"interval": [1.1, 1.3]}, {"interval": [1.0, 1.1]})
(True, False)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

RESAMPLES = 4000
SLACK = 0.05


def paired(times: Mapping[str, Sequence[float]], base: str) -> dict[str, list[float]]:
    """Ratios to the base's time of the same round, by contender."""
    return {
        name: [mine / plain for mine, plain in zip(taken, times[base], strict=True)] for name, taken in times.items()
    }


def summary(heats: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The median of all rounds, the range of 10 to 90 % of them, and the bootstrap interval of the median."""
    values = np.concatenate(heats)
    low, high = np.quantile(values, (0.1, 0.9), method="inverted_cdf")
    return {
        "median": float(np.median(values)),
        "low": float(low),
        "high": float(high),
        "interval": list(interval(heats)),
        "rounds": len(values),
        "heats": [float(np.median(heat)) for heat in heats],
    }


def interval(heats: Sequence[Sequence[float]], level: float = 0.95) -> tuple[float, float]:
    """Percentiles of the medians of resampled rounds of resampled heats, as many of each heat."""
    rng = np.random.default_rng(0)
    counts = np.array([len(heat) for heat in heats])
    rounds = np.zeros((len(heats), counts.max()))
    for row, heat in zip(rounds, heats, strict=True):
        row[: len(heat)] = heat
    drawn = rng.integers(len(heats), size=(RESAMPLES, len(heats), 1))
    picks = rng.integers(counts[drawn], size=(RESAMPLES, *rounds.shape))
    medians = np.median(rounds[drawn, picks].reshape(RESAMPLES, -1), axis=1)
    low, high = np.quantile(medians, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


def exponent(sizes: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """B of time = a size^b and its standard error; that of two points is unknown, and said to be infinite."""
    x, y = np.log(sizes), np.log(times)
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    if len(x) < 3:
        return slope, float("inf")
    residual = y - slope * x
    return slope, float(np.sqrt(residual @ residual / (len(x) - 2) / (x @ x)))


def worse(new: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether a ratio is above the recorded one by more than noise."""
    return bool(new["interval"][0] > (1 + SLACK) * recorded["interval"][1])


def grows_faster(difference: float, error: float) -> bool:
    """Whether the exponent of a ratio to the plain network is above 0: beyond two standard errors, and beyond 0.02."""
    return difference > max(2 * error, 0.02)
