"""The same run under several seeds: its numbers by seed, and their mean with its standard error s / sqrt(n).

>>> estimate({0: 1.0, 1: 2.0, 2: 3.0})
Estimate(value=2.0, error=0.577...)
"""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from credent.cells import Cell
from credent.errors import InputError
from credent.report import Estimate


def by_seed(results: Mapping[Cell, Mapping[str, Any]], name: str, **fields: Any) -> dict[int, float]:
    """The number `name` of every finished cell with these field values, by the cell's `seed`.

    `by_seed(results, "nll", method="vi", beta=0.1)` is what `estimate` and the comparisons of verdicts take.
    """
    chosen = [cell for cell in results if _has(cell, fields)]
    if not chosen:
        raise InputError(f"by_seed: no cell has {_listed(fields)}; there are, for example, {_examples(results)}.")
    found: dict[int, float] = {}
    cells: dict[int, Cell] = {}
    for cell in chosen:
        seed = getattr(cell, "seed", 0)
        if seed in cells:
            raise InputError(
                f"by_seed: {_listed(fields)} and seed {seed} are said of several cells, such as {cells[seed]} and"
                f" {cell}: name the field that tells them apart."
            )
        cells[seed] = cell
        if results[cell]:
            found[seed] = float(results[cell][name])
    return found


def estimate(values: Mapping[int, float]) -> Estimate | None:
    """Mean and standard error over seeds; one seed has no standard error, and none is no estimate."""
    if not values:
        return None
    numbers = [float(value) for value in values.values()]
    if not all(map(math.isfinite, numbers)):
        return Estimate(math.nan, math.nan)
    error = statistics.stdev(numbers) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
    return Estimate(statistics.fmean(numbers), error)


def _has(cell: Cell, fields: Mapping[str, Any]) -> bool:
    missing = object()
    return all(getattr(cell, name, missing) == value for name, value in fields.items())


def _listed(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in fields.items()) or "anything"


def _examples(results: Mapping[Cell, Any]) -> str:
    return " and ".join(str(cell) for cell in list(results)[:2]) or "none at all"
