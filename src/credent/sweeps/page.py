"""The page of a sweep: its ranking, the score against each setting and over each pair of them, and what failed."""

import math
from itertools import combinations
from typing import Any

from credent.report import Card, Column, Estimate, Figure, Note, Page, Section, Table
from credent.report.measures import Measure, measure
from credent.report.numbers import Value
from credent.report.plots import dot_plot, landscape
from credent.report.plots.scatter import scatter
from credent.sweeps.done import Sweep
from credent.sweeps.ranking import Setting

_RANKED = 50
_PAIRS = 6
_WORST = 0.1  # this share of the runs, the worst, does not set the colours: a few diverge, and by orders


def page(done: Sweep) -> Page:
    """All of it; pairs of settings are the first few that hold numbers."""
    told = _measure(done.metric)
    varied = [name for name in done.varied if name != "seed"]
    numeric = [name for name in varied if _numbers(done, name)]
    pairs = list(combinations(numeric, 2))[:_PAIRS]
    slices = [_slice(done, name, told) if name in numeric else _dots(done, name, told) for name in varied]
    sections = [
        Section("Ranking", (_ranking(done, varied, told),)),
        Section(
            "Landscapes", tuple(_landscape(done, *pair, told) for pair in pairs) or (Note("One number was varied."),)
        ),
        Section("One by one", tuple(slices)),
    ]
    failures = done.failures
    if failures:
        rows = tuple((_settings(row, done.varied), str(row["error"])) for row in failures)
        sections.append(
            Section("Failed", (Table("The same command tries them again", (Column("run"), Column("why")), rows),))
        )
    first = done.ranking[0] if done.ranking else None
    score = first.score if first else math.nan
    facts = (
        Card(f"Best {told.label}", score, told.unit, _settings(first.values, varied) if first else "", told.better),
        Card("Runs", f"{len(done.rows) - len(failures)} of {len(done.rows)}", meaning="That ended with numbers."),
        Card("Compute time", sum(row.get("seconds") or 0 for row in done.rows), "s", "Summed over all runs."),
    )
    where = "Ranked on validation data." if done.metric.startswith("val_") else f"Ranked by {done.metric}."
    return Page(f"Sweep of {', '.join(varied) or 'seeds'}", where, facts, tuple(sections))


def _measure(metric: str) -> Measure:
    known = measure(metric.removeprefix("val_").removeprefix("test_"))
    part = {"val_": "Validation: ", "test_": "Test: "}.get(metric[: metric.find("_") + 1], "")
    return Measure(part + known.label, known.unit, known.better, known.meaning)


def _numbers(done: Sweep, name: str) -> bool:
    return all(isinstance(row.get(name), int | float) for row in done.rows)


def _log(done: Sweep, name: str) -> bool:
    """A logarithmic axis, if the field was drawn on one or spans a decade."""
    values = [row[name] for row in done.rows]
    return bool(values) and min(values) > 0 and (name in done.log or max(values) >= 10 * min(values))


def _column(done: Sweep, name: str) -> list[Any]:
    return [value if isinstance(value := row.get(name), int | float) else math.nan for row in done.rows]


def _clip(done: Sweep) -> tuple[float, float]:
    return (0.0, 1 - _WORST) if done.better == "lower" else (_WORST, 1.0)


def _unit(told: Measure) -> str:
    return told.label if told.unit in ("", "%") else f"{told.label}, {told.unit}"


def _landscape(done: Sweep, x: str, y: str, told: Measure) -> Figure:
    return landscape(
        f"{x} and {y}",
        _column(done, x),
        _column(done, y),
        _column(done, done.metric),
        x,
        y,
        _unit(told),
        f"{told.label} over {x} and {y}; {done.better} is better, the ring is the best place, a cross is a run that "
        "failed. Where several runs share a place, their mean is shown. The worst tenth shares one colour.",
        log_x=_log(done, x),
        log_y=_log(done, y),
        clip=_clip(done),
        better=done.better,
    )


def _slice(done: Sweep, name: str, told: Measure) -> Figure:
    caption = f"Each dot is a run; {done.better} is better. A wide cloud means that other settings matter more."
    at = _column(done, name), _column(done, done.metric)
    return scatter(f"Against {name}", *at, name, _unit(told), caption, log_x=_log(done, name), clip=_clip(done))


def _dots(done: Sweep, name: str, told: Measure) -> Figure:
    """The best setting with each word."""
    best: dict[str, Value] = {}
    for each in done.ranking:
        best.setdefault(f"{each.values[name]}", _score(each))
    return dot_plot(f"By {name}", best, told.unit, done.better, caption=f"The best setting with each {name}.")


def _ranking(done: Sweep, varied: list[str], told: Measure) -> Table:
    labels = (*(Column(name) for name in varied), Column(told.label, told.unit, done.better))
    rows = tuple(
        (
            *(each.values[name] for name in varied),
            _score(each),
            each.runs,
            each.failed,
        )
        for each in done.ranking[:_RANKED]
    )
    return Table(
        f"The best {len(rows)} of {len(done.ranking)} settings; those of which a run failed come last",
        (*labels, Column("runs"), Column("failed")),
        rows,
    )


def _score(setting: Setting) -> Value:
    return Estimate(setting.score, setting.error) if setting.error else setting.score


def _settings(row: Any, names: Any) -> str:
    texts = {n: f"{row[n]:.4g}" if isinstance(row[n], float) else str(row[n]) for n in names}
    return ", ".join(f"{name} {text}" for name, text in texts.items())
