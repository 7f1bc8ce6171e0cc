"""The two pages people ask for: one run, and several runs side by side.

>>> run_page("VI on digits", {"accuracy": 0.98, "nll": None}).facts[0].label
'Accuracy'
>>> page = comparison_page("Two methods", {"VI": {"nll": 0.08}, "MAP": {"nll": 0.11}})
>>> [section.title for section in page.sections]
['Scores', 'Side by side']
"""

import math
from collections.abc import Iterable, Mapping

from credent.report.measures import measure
from credent.report.numbers import Value, centre, spread
from credent.report.page import Page
from credent.report.parts import Card, Column, Figure, Section, Table
from credent.report.plots.dots import dot_plot

Scores = Mapping[str, Value]


def run_page(
    title: str,
    scores: Scores,
    figures: Iterable[Figure] = (),
    settings: Mapping[str, Value] | None = None,
    *,
    more: Iterable[Section] = (),
    subtitle: str = "",
    footer: str = "",
) -> Page:
    """A run's scores as cards, its figures by topic, `more` sections, and its settings; known scores are explained."""
    cards = tuple(measure(name).card(value) for name, value in scores.items())
    sections = [*_by_topic(figures), *more]
    if settings:
        rows = tuple(settings.items())
        sections.append(Section("Settings", (Table("What was run", (Column("setting"), Column("value")), rows),)))
    return Page(title, subtitle, cards, tuple(sections), footer)


def comparison_page(
    title: str,
    runs: Mapping[str, Scores],
    figures: Iterable[Figure] = (),
    published: Mapping[str, Mapping[str, float]] | None = None,
    *,
    subtitle: str = "",
    footer: str = "",
) -> Page:
    """Runs by name in one table and, per measure, one dot plot; `published[run][measure]` stands beside ours.

    A score given as an `Estimate` carries its standard error into the table, the plots and the marking of the best.
    """
    names = list(dict.fromkeys(name for scores in runs.values() for name in scores))
    columns = (Column("method"), *(measure(name).column() for name in names))
    rows = tuple((run, *(scores.get(name) for name in names)) for run, scores in runs.items())
    plots = tuple(
        dot_plot(
            measure(name).label,
            {run: scores.get(name) for run, scores in runs.items()},
            measure(name).unit,
            measure(name).better,
            {run: claims[name] for run, claims in (published or {}).items() if name in claims},
            f"{measure(name).meaning} Bars are one standard error, where several seeds were run.".strip(),
        )
        for name in names
    )
    sections = [Section("Scores", (Table("All methods, all measures", columns, rows),)), Section("Side by side", plots)]
    sections += _by_topic(figures)
    return Page(title, subtitle, _winners(runs, names), tuple(sections), footer)


def _by_topic(figures: Iterable[Figure]) -> list[Section]:
    topics: dict[str, list[Figure]] = {}
    for figure in figures:
        topics.setdefault(figure.topic, []).append(figure)
    return [Section(topic, tuple(parts)) for topic, parts in topics.items()]


def _winners(runs: Mapping[str, Scores], names: list[str]) -> tuple[Card, ...]:
    """For each measure with a better direction, who leads and with what."""
    cards = []
    for name in names:
        known = [(number, run) for run, scores in runs.items() if (number := centre(scores.get(name))) is not None]
        what = measure(name)
        if what.better and known:
            top, run = min(known, key=lambda k: k[0]) if what.better == "lower" else max(known, key=lambda k: k[0])
            error = spread(runs[run][name])
            tied = [r for v, r in known if r != run and abs(v - top) <= 2 * math.hypot(error, spread(runs[r][name]))]
            leads = (
                f"{run} leads." if not tied else f"{' and '.join([run, *tied])} are tied within two standard errors."
            )
            meaning = f"{leads} {what.meaning}".strip()
            cards.append(Card(f"Best: {what.label}", runs[run][name], what.unit, meaning))
    return tuple(cards)
