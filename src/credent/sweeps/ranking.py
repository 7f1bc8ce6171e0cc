"""Settings of a sweep, best first, by the mean of one score over their seeds.

A setting of which a run failed, or ended with no finite score, stands below all that have only whole runs: a learning
rate that breaks one run in three is not the best, whatever the other two say.

>>> rows = [{"lr": 0.1, "seed": 0, "nll": 0.3}, {"lr": 0.1, "seed": 1, "nll": 0.5}, {"lr": 0.2, "seed": 0, "nll": 0.6}]
>>> [(each.values, each.score, each.runs) for each in ranking(rows, ["lr", "seed"], "nll", "lower")]
[({'lr': 0.1}, 0.4, 2), ({'lr': 0.2}, 0.6, 1)]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from credent.sweeps.table import Row


@dataclass(frozen=True)
class Setting:
    """What was varied, apart from the seed; the mean score, its standard error over seeds, and how many runs it has."""

    values: dict[str, Any]
    score: float
    error: float
    runs: int
    failed: int


def ranking(rows: Sequence[Row], varied: Sequence[str], metric: str, better: str) -> list[Setting]:
    """All settings, best first."""
    names = [name for name in varied if name != "seed"]
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        value = row.get(metric)
        score = float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan
        groups.setdefault(tuple(row.get(name) for name in names), []).append(score)
    found = [_setting(dict(zip(names, key, strict=True)), scores) for key, scores in groups.items()]
    sign = 1 if better == "lower" else -1
    return sorted(found, key=lambda each: (each.failed > 0, math.isnan(each.score), sign * each.score))


def _setting(values: dict[str, Any], scores: list[float]) -> Setting:
    known = [score for score in scores if not math.isnan(score)]
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else 0.0
    return Setting(values, fmean(known) if known else math.nan, error, len(scores), len(scores) - len(known))
