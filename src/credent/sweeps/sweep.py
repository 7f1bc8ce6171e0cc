"""Sweeping: many runs that differ in a few values, each once, on all cores or on a cluster.

    OUT/cells/*.json     one file per finished run
    OUT/runs.csv         the tidy table, one row a run, kept up to date (and runs.parquet, where pyarrow is installed)
    OUT/sweep.json       what was varied
    OUT/page.html        the ranking, and landscapes of the score

Without a function a run trains a `credent.recipe.Recipe`, whose fields are what `credent fit` takes, and is ranked on
validation data. The same call again goes on where it was; with more runs, seeds or values it adds what is new.

>>> import tempfile
>>> def distance(x, y):
...     return {"far": (x**2 + y**2) ** 0.5}
>>> with tempfile.TemporaryDirectory() as out:
...     done = sweep({"x": [3.0, 6.0], "y": [4.0, 8.0]}, out, function=distance, metric="far", jobs=1, progress=False)
>>> done.best.values, done.best.score
({'x': 3.0, 'y': 4.0}, 5.0)
"""

import dataclasses
import difflib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from credent.cells import Cell, Record, finish, record, strict
from credent.errors import InputError
from credent.files import write_atomically
from credent.recipe import Recipe
from credent.report.measures import measure
from credent.report.parts import Better
from credent.sweeps import cluster, fields, plan, table
from credent.sweeps.done import Sweep, shown
from credent.sweeps.page import page
from credent.sweeps.runs import Call, Function, Train, name_of, scores, validation
from credent.sweeps.vary import LogUniform, Plain, Varied

_SHOWN = 5
_SECONDS_PER_TABLE = 1.0


def sweep(
    vary: Mapping[str, Varied],
    out: str | Path,
    *,
    fixed: Mapping[str, Plain] | None = None,
    function: Function | None = None,
    metric: str | None = None,
    better: Better = "",
    runs: int | None = None,
    seeds: int | None = None,
    draw_seed: int = 0,
    test: bool = False,
    samples: int = 32,
    jobs: int | None = None,
    backend: str | None = None,
    address: str | None = None,
    progress: bool = True,
) -> Sweep:
    """Run every setting that `vary` makes, beside the values in `fixed`, and rank them by `metric`.

    `runs` counts draws of what is random, `seeds` runs each setting with the seeds `fixed["seed"]` and up. `better` is
    "lower" or "higher"; left out, it follows from the metric, and is "lower" for one that only you know. A `function`
    is called with the values by keyword and returns numbers by name; it is told apart by its name. `test` also scores
    recipes on test data.
    """
    fixed, out = dict(fixed or {}), Path(out)
    metric = _metric(metric, function)
    cluster.check(backend, address, jobs)
    both = ", ".join(name for name in vary if name in fixed)
    if both:
        raise InputError(f"{both}: both fixed and varied; keep one of the two.")
    plan.check_seeds(seeds, vary)
    first = fixed.get("seed") or 0
    planned = list(
        plan.seeded(
            plan.settings(vary, runs, draw_seed, fields.whole if function is None else lambda name: False),
            int(first),
            seeds,
        )
    )
    cells: dict[Cell, plan.Values] = {}
    for values in planned:
        cells.setdefault(_cell(fixed | values, function, samples, test), values)
    known = _check_builds(list(cells), metric) if function is None else measure(metric.removeprefix("val_")).better
    better = better or known or "lower"
    log = tuple(name for name, how in vary.items() if isinstance(how, LogUniform))
    watched = _Watched(cells, Sweep(out, [], tuple(planned[0]), metric, better, log))
    about: dict[str, Any] = {"varied": list(planned[0]), "metric": metric, "better": better, "log": log, "fixed": fixed}
    about |= {"vary": {name: repr(how) for name, how in vary.items()}, "draw_seed": draw_seed}
    text = strict.dumps(about | {"function": None if function is None else name_of(function)}, indent=1) + "\n"
    write_atomically(out / "sweep.json", lambda path: path.write_text(text, encoding="utf-8"))
    try:
        with cluster.workers(backend, address, jobs):
            finish(cells, out / "cells", jobs, progress, watched)
    finally:
        watched.write()
    done = watched.sweep()
    page(done).write(out / "page.html")
    return done


class _Watched:
    """The table as it grows, with what an earlier call has finished in it."""

    def __init__(self, cells: Mapping[Cell, plan.Values], empty: Sweep) -> None:
        self._cells, self._empty = cells, empty
        self._ended: dict[Cell, Record | str] = {}
        self._written, self._best = -_SECONDS_PER_TABLE, Table()
        for cell in cells:
            found = record.read(cell, empty.out / "cells")
            if found is not None:
                self._end(cell, found)

    def __call__(self, cell: Cell, outcome: Record | str) -> Table:
        self._end(cell, outcome)
        if time.monotonic() - self._written > _SECONDS_PER_TABLE:  # both take longer the more runs there are
            self.write()
            self._best = shown(self.sweep(), "best so far", _SHOWN)
        return self._best

    def _end(self, cell: Cell, outcome: Record | str) -> None:
        self._ended[cell] = outcome
        if isinstance(outcome, Record) and self._empty.metric not in outcome.result:
            there = ", ".join(outcome.result)
            raise InputError(f"metric={self._empty.metric!r}: a run returned {there}; choose one of these.")

    def sweep(self) -> Sweep:
        """As far as it is."""
        rows = [
            _row(number, values, self._ended[cell])
            for number, (cell, values) in enumerate(self._cells.items())
            if cell in self._ended
        ]
        return dataclasses.replace(self._empty, rows=rows)

    def write(self) -> None:
        """Bring the files up to date."""
        self._written = time.monotonic()
        table.write(self.sweep().rows, self._empty.out)


def _metric(metric: str | None, function: Function | None) -> str:
    """What ranks the runs: of recipes the NLL on validation data, if nothing else is asked for."""
    if metric is None and function is not None:
        raise InputError("which of the numbers that the function returns ranks the runs? Name it: metric='nll'.")
    if function is None and metric is not None and metric.startswith("test_"):
        raise InputError(
            f"metric={metric!r}: a setting that is chosen on test data has seen them. Rank by {metric[5:]!r} on"
            f" validation data, metric='val_{metric[5:]}'; with test=True the table holds the test scores beside it."
        )
    return metric or "val_nll"


def _row(number: int, values: plan.Values, outcome: Record | str) -> table.Row:
    if isinstance(outcome, str):
        return {"run": number, **values, "seconds": None, "error": " ".join(outcome.split())}
    return {"run": number, **values, **outcome.result, "seconds": outcome.seconds, "error": None}


def _cell(values: plan.Values, function: Function | None, samples: int, test: bool) -> Cell:
    if function is not None:
        return Call(name_of(function), tuple(sorted(values.items())), function)
    typed: dict[str, Any] = {name: fields.typed(name, value) for name, value in values.items()}
    return Train(Recipe(**typed), samples, test)


def _check_builds(cells: Sequence[Cell], metric: str) -> Better:
    """Which way the metric is better; one run of each kind is built, so that what cannot be is said before any starts.

    The data must be there, have a validation part, fit the model, and be scored by the metric.
    """
    kinds: dict[tuple[str | bool, ...], Recipe] = {}
    for cell in cells:
        assert isinstance(cell, Train)
        recipe = cell.recipe
        kind = (recipe.data, recipe.model, recipe.method, recipe.prior, recipe.family, recipe.random, recipe.noise)
        kinds.setdefault((*kind, recipe.members == 1), recipe)
    with torch.random.fork_rng(devices=[]):
        for recipe in kinds.values():
            built = recipe.build()
            validation(built)
            known = scores(built)
            if metric not in known:
                close = difflib.get_close_matches(metric, known, n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise InputError(
                    f"metric={metric!r}: {recipe.method} on {recipe.data} is not ranked by it.{hint} There are"
                    f" {', '.join(known)}."
                )
    return known[metric]
