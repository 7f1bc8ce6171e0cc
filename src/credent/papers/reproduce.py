"""Reproducing: run an experiment's cells, then write its page and its summary.

    OUT/PAPER/SCALE/cells/*.json     one file per finished cell, shared by all of the paper's experiments
    OUT/PAPER/SCALE/PART.html        the page: verdicts, tables with published numbers beside ours, figures
    OUT/PAPER/SCALE/PART.json        the same for machines: verdicts, table rows, where the numbers come from
    OUT/PAPER/SCALE/index.html       the whole paper on one page

A page is a function of the files in cells/: made again, it is the same.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from credent import data
from credent.cells import Cell, Finished, Record, finish, strict
from credent.data.directory import HOW_TO_GET_DATA, data_directory
from credent.errors import InputError
from credent.files import write_atomically
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.verdict import Verdict
from credent.report import Card, Column, Note, Page, Section, Table

SMOKE = "A smoke run: it shows that everything runs, and its numbers mean nothing."


@dataclass(frozen=True)
class Reproduction:
    """What came of an experiment: its files, its verdicts, and why cells failed, if any did."""

    experiment: Experiment
    scale: Scale
    page: Path
    summary: Path
    verdicts: tuple[Verdict, ...]
    sections: tuple[Section, ...]
    records: Mapping[Cell, Record]
    failures: Mapping[Cell, str]


def reproduce(
    experiment: Experiment, scale: Scale, out: str | Path, jobs: int | None = None, progress: bool = True
) -> Reproduction:
    """Run what is not yet run of the experiment at this scale, and write its page and summary."""
    (only,) = _reproduce([experiment], scale, Path(out), jobs, progress)
    return only


def reproduce_paper(
    experiments: Sequence[Experiment], scale: Scale, out: str | Path, jobs: int | None = None, progress: bool = True
) -> tuple[Path, tuple[Reproduction, ...]]:
    """All experiments of one paper, their cells in one go; also a page with all of them."""
    done = _reproduce(experiments, scale, Path(out), jobs, progress)
    index = done[0].page.with_name("index.html")
    sections = [
        Section(f"{each.experiment.part}: {section.title}", section.parts) for each in done for section in each.sections
    ]
    _page(f"Paper {experiments[0].paper}", scale, done, sections).write(index)
    return index, done


def _reproduce(
    experiments: Sequence[Experiment], scale: Scale, out: Path, jobs: int | None, progress: bool
) -> tuple[Reproduction, ...]:
    _check_data(experiments, scale)
    directory = out / experiments[0].paper / scale.value
    wanted = [list(dict.fromkeys(experiment.cells(scale))) for experiment in experiments]
    finished = finish([cell for cells in wanted for cell in cells], directory / "cells", jobs, progress)
    pairs = zip(experiments, wanted, strict=True)
    done = tuple(_made(experiment, scale, cells, finished, directory) for experiment, cells in pairs)
    for each in done:
        _page(each.experiment.title, scale, [each], each.sections).write(each.page)
        _write(each.summary, strict.dumps(_summary(each), indent=1) + "\n")
    return done


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def _check_data(experiments: Sequence[Experiment], scale: Scale) -> None:
    """All that will be read must be there before anything starts."""
    there = {each.name: each.available for each in data.names()}
    for experiment in experiments:
        missing = [name for name in experiment.needs(scale) if not there[name]]
        if missing:
            raise InputError(
                f"{experiment.name} at scale {scale.value} needs {', '.join(missing)}, which the data directory"
                f" {data_directory(None)} (DIR below) does not hold. {HOW_TO_GET_DATA}"
            )


def _made(
    experiment: Experiment, scale: Scale, cells: Sequence[Cell], finished: Finished, directory: Path
) -> Reproduction:
    failures = {cell: finished.failures[cell] for cell in cells if cell in finished.failures}
    records = {cell: finished.records[cell] for cell in cells if cell not in failures}
    results: Results = {cell: records[cell].result if cell in records else {} for cell in cells}
    try:
        sections, verdicts = experiment.sections(scale, results), experiment.verdicts(scale, results)
    except Exception as error:
        if not failures:
            raise
        said = f"They cannot be drawn without the cells that failed ({type(error).__name__}: {error})."
        sections, verdicts = (Section("Results", (Note(said),)),), ()
    if scale is Scale.SMOKE:
        verdicts = tuple(Verdict(each.claim, "not testable at this scale", "A smoke run.") for each in verdicts)
    return Reproduction(
        experiment,
        scale,
        directory / f"{experiment.part}.html",
        directory / f"{experiment.part}.json",
        verdicts,
        sections,
        records,
        failures,
    )


def _page(title: str, scale: Scale, done: Sequence[Reproduction], sections: Sequence[Section]) -> Page:
    """Verdicts first, then what was run and what failed, then the results, then where they come from."""
    verdicts = tuple((v.claim, v.outcome, v.evidence) for each in done for v in each.verdicts)
    records = {cell: record for each in done for cell, record in each.records.items()}
    failures = {cell: told for each in done for cell, told in each.failures.items()}
    about = [Note(text) for each in done for text in (each.experiment.about, each.experiment.setting(scale))]
    parts = [
        Section("Verdicts", (Table("Claims of the paper", _columns("claim", "verdict", "evidence"), verdicts),)),
        Section("What was run", tuple(about)),
        *sections,
        Section("Where the numbers come from", (_provenance_table(records),)),
    ]
    if failures:
        rows = tuple((str(cell), told) for cell, told in failures.items())
        missing = Table(
            f"{len(failures)} cells failed; the same command tries them again", _columns("cell", "why"), rows
        )
        parts.insert(1, Section("Missing", (missing,)))
    held = sum(outcome == "replicated" for _, outcome, _ in verdicts)
    facts = (
        Card("Claims replicated", f"{held} of {len(verdicts)}", meaning="The verdicts below have the numbers."),
        Card("Compute time", _time(sum(r.seconds for r in records.values())), meaning="Summed over all cells."),
        Card("Cells", f"{len(records)} of {len(records) + len(failures)}", meaning="Runs that ended with numbers."),
    )
    said = f"Scale: {scale.value}. " + (SMOKE if scale is Scale.SMOKE else "Mean ± standard error over seeds.")
    versions = ", ".join(sorted({record.origin.credent for record in records.values()}))
    return Page(title, said, facts, tuple(parts), f"credent {versions}".strip())


def _provenance(records: Mapping[Cell, Record]) -> dict[str, Any]:
    def each(name: str) -> list[Any]:
        return sorted({getattr(record.origin, name) for record in records.values()} - {None})

    return {
        "cells": len(records),
        "seeds": sorted({cell.seed for cell in records if "seed" in vars(cell)}),  # type: ignore[attr-defined]
        "credent": each("credent"),
        "commits": each("commit"),
        "torch": each("torch"),
        "cores": each("cores"),
        "seconds": round(sum(record.seconds for record in records.values()), 3),
        "finished": max((record.finished for record in records.values()), default=None),
    }


def _provenance_table(records: Mapping[Cell, Record]) -> Table:
    rows = tuple(
        (name, (", ".join(map(str, value)) or None) if isinstance(value, list) else value)
        for name, value in _provenance(records).items()
    )
    return Table("All cells together", _columns("what", "value"), rows)


def _summary(made: Reproduction) -> dict[str, Any]:
    tables = [
        {"section": section.title, **_plain(part)}
        for section in made.sections
        for part in section.parts
        if isinstance(part, Table)
    ]
    return {
        "experiment": made.experiment.name,
        "title": made.experiment.title,
        "scale": made.scale.value,
        "verdicts": [dataclasses.asdict(each) for each in made.verdicts],
        "tables": tables,
        "failures": [{"cell": str(cell), "error": told} for cell, told in made.failures.items()],
        "provenance": _provenance(made.records),
    }


def _plain(table: Table) -> dict[str, Any]:
    found = dataclasses.asdict(table)  # an estimate becomes {"value": ..., "error": ...}
    return {"caption": found["caption"], "columns": found["columns"], "rows": found["rows"]}


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _columns(*labels: str) -> tuple[Column, ...]:
    return tuple(Column(label) for label in labels)
