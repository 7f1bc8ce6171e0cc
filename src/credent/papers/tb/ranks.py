"""Verdicts over runs that differ in their settings, where means and standard errors say little.

    above     runs of one kind end higher than those of another        Mann and Whitney's rank test
    oftener   a larger share of them succeeds                          Fisher's exact test
    rises     the larger x, the larger y                               Spearman's rank correlation
    wider     they are spread more widely about their median           Brown and Forsythe's test
    resampled a number is larger for one set of runs than for others   the bootstrap, runs drawn anew 2,000 times

All are one-sided; a claim has replicated at p < 0.025, which is about two standard errors.

>>> above("one is above the other", [5, 6, 7, 8, 9], [0, 1, 2, 3, 4]).outcome
'replicated'
>>> oftener("one succeeds more often", (9, 10), (8, 10)).evidence
'9 of 10 against 8 of 10: p = 0.5.'
"""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from credent.papers.verdict import Outcome, Verdict

LEVEL = 0.025
RESAMPLES = 2000
_LEAST = 4  # runs, fewer of which no rank test can tell from chance


def above(claim: str, ours: Sequence[float], others: Sequence[float]) -> Verdict:
    """Ours end higher than the others. For "lower", swap the two."""
    if min(len(ours), len(others)) < _LEAST:
        return _too_few(claim, len(ours), len(others))
    found = stats.mannwhitneyu(ours, others, alternative="greater")
    medians = f"Median {np.median(ours):.3g} against {np.median(others):.3g}"
    return _judged(claim, found.pvalue, f"{medians}, over {len(ours)} and {len(others)} runs")


def oftener(claim: str, ours: tuple[int, int], others: tuple[int, int]) -> Verdict:
    """Ours succeed more often; each is (successes, runs)."""
    if min(ours[1], others[1]) < _LEAST:
        return _too_few(claim, ours[1], others[1])
    table = np.array([[good, runs - good] for good, runs in (ours, others)])
    p = stats.fisher_exact(table, alternative="greater")[1]
    return _judged(claim, p, f"{ours[0]} of {ours[1]} against {others[0]} of {others[1]}")


def rises(claim: str, x: Sequence[float], y: Sequence[float]) -> Verdict:
    """The larger x, the larger y. For "falls", give minus y."""
    if len(x) < _LEAST or len(set(x)) < 2 or len(set(y)) < 2:
        return _too_few(claim, len(x))
    found = stats.spearmanr(x, y, alternative="greater")
    return _judged(claim, found.pvalue, f"Rank correlation {found.statistic:.2f} over {len(x)} runs")


def unrelated(claim: str, x: Sequence[float], y: Sequence[float]) -> Verdict:
    """No rank correlation is seen between x and y, either way: it may be there, but is too small for so many runs."""
    if len(x) < _LEAST or len(set(x)) < 2 or len(set(y)) < 2:
        return _too_few(claim, len(x))
    found = stats.spearmanr(x, y)
    outcome: Outcome = "not replicated" if found.pvalue < 2 * LEVEL else "replicated"
    told = f"Rank correlation {found.statistic:.2f} over {len(x)} runs: p = {found.pvalue:.2g}, two-sided."
    return Verdict(claim, outcome, told)


def wider(claim: str, ours: Sequence[float], others: Sequence[float]) -> Verdict:
    """Ours are spread more widely."""
    if min(len(ours), len(others)) < _LEAST:
        return _too_few(claim, len(ours), len(others))
    spreads = [float(np.abs(np.asarray(each) - np.median(each)).mean()) for each in (ours, others)]  # what is tested
    p = float(stats.levene(ours, others, center="median").pvalue) / 2
    distances = f"Mean distance from the median {spreads[0]:.3g} against {spreads[1]:.3g}"
    told = f"{distances}, over {len(ours)} and {len(others)} runs"
    return _judged(claim, p if spreads[0] > spreads[1] else 1 - p, told)


def resampled(
    claim: str, difference: Callable[..., float], *sets: NDArray[np.float64], label: str = "Difference"
) -> Verdict:
    """The difference of these sets of runs, (runs, ...) each, is positive in all but 2.5 % of the resamples."""
    if min(map(len, sets)) < _LEAST:
        return _too_few(claim, *map(len, sets))
    random = np.random.default_rng(0)
    drawn = [difference(*(each[random.integers(len(each), size=len(each))] for each in sets)) for _ in range(RESAMPLES)]
    known = np.array([value for value in drawn if math.isfinite(value)])
    if len(known) < RESAMPLES / 2:
        return Verdict(claim, "not testable at this scale", "Most resamples have too few runs of one kind.")
    low, high = np.quantile(known, [0.025, 0.975])
    counted = " and ".join(map(str, map(len, sets)))
    told = f"{label} {difference(*sets):.3g}, 95 % of resamples [{low:.3g}, {high:.3g}], over {counted} runs"
    return _judged(claim, float((known <= 0).mean()), told)


def best_of(values: Sequence[float], count: int) -> float:
    """The highest of `count` of the values, on average over which.

    >>> best_of([0.0, 0.0, 3.0], 1), best_of([0.0, 0.0, 3.0], 2), best_of([0.0, 0.0, 3.0], 3)
    (1.0, 2.0, 3.0)
    """
    return float(np.dot(_leads(len(values), count), np.sort(values)))


@functools.cache
def _leads(total: int, count: int) -> NDArray[np.float64]:
    """The share of choices in which the i-th lowest is the highest, C(i - 1, count - 1) of C(total, count)."""
    return np.array([math.comb(below, count - 1) / math.comb(total, count) for below in range(total)])


def _judged(claim: str, p: float, told: str) -> Verdict:
    outcome: Outcome = "replicated" if p < LEVEL else "not replicated"
    return Verdict(claim, outcome, f"{told}: p = {p:.2g}.")


def _too_few(claim: str, *runs: int) -> Verdict:
    counted = " and ".join(map(str, runs))
    return Verdict(claim, "not testable at this scale", f"{counted} runs that can be compared: too few.")
