"""`credent reproduce`: run a paper's table or figure, or all of a paper."""

import difflib
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from credent import papers
from credent.cli.common import AsJson, DataDir, console, guarded
from credent.errors import InputError
from credent.papers import Experiment, Scale, reproduce_paper
from credent.papers import reproduce as reproduce_one
from credent.papers.reproduce import SMOKE, Reproduction
from credent.papers.verdict import Outcome

_LEGEND = "At each scale: cells · about how long on 2 cores; --json says it in full."


@guarded
def reproduce(
    name: Annotated[str | None, typer.Argument(help="PAPER/TABLE, or PAPER for all of it; --list names them.")] = None,
    scale: Annotated[
        Scale, typer.Option(help="smoke: seconds, numbers mean nothing · cpu: minutes to hours · paper: for a GPU.")
    ] = Scale.SMOKE,
    out: Annotated[Path, typer.Option(help="Directory for results: OUT/PAPER/SCALE/.")] = Path("results"),
    jobs: Annotated[int | None, typer.Option(help="Cells to run side by side. Default: one per core.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Say which experiments there are, and stop.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Rerun a paper's table or figure, and say whether its claims hold.

    What is finished is kept: stopped or failed, the same command goes on where it was.

    Example: credent reproduce vl/table1 --scale cpu --out results
    """
    if data_dir is not None:
        os.environ["CREDENT_DATA"] = str(data_dir.resolve())  # worker processes inherit it
    if list_them:
        _list(as_json)
        return
    chosen = _choose(name)
    if scale is Scale.SMOKE:
        console.print(f"[bold]{SMOKE}[/] --scale cpu gives numbers.", highlight=False)
    page: Path
    done: tuple[Reproduction, ...]
    if name in papers.EXPERIMENTS:
        one = reproduce_one(chosen[0], scale, out, jobs, progress=not as_json)
        page, done = one.page, (one,)
    else:
        page, done = reproduce_paper(chosen, scale, out, jobs, progress=not as_json)
    _tell(page, done, as_json)
    if any(each.failures for each in done):
        raise typer.Exit(1)


def _choose(name: str | None) -> list[Experiment]:
    """The experiment of that name, or all of the paper's."""
    known = papers.EXPERIMENTS
    there = ", ".join(known) or "none"
    if name is None:
        raise InputError(f"which one? There are {there}; a paper's name alone runs all of it.")
    chosen = [each for each in known.values() if name in (each.name, each.paper)]
    if not chosen:
        close = difflib.get_close_matches(name, [*known, *(each.paper for each in known.values())], n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"{name!r}: there is no such experiment.{hint} There are {there}.")
    return chosen


def _list(as_json: bool) -> None:
    """Every experiment with, at each scale, how many cells it has and how long it takes where that is known."""
    known = papers.EXPERIMENTS.values()
    if as_json:
        rows = [
            {"name": each.name, "title": each.title, **{scale.value: _size(each, scale) for scale in Scale}}
            for each in known
        ]
        typer.echo(json.dumps(rows))
        return
    table = Table(title="experiments", caption=_LEGEND, box=None, title_justify="left", caption_justify="left")
    for column in ("name", "title", *(scale.value for scale in Scale)):
        table.add_column(column, no_wrap=column != "title")
    for each in known:
        table.add_row(each.name, each.title, *(_short(each, scale) for scale in Scale))
    Console().print(table)


def _size(experiment: Experiment, scale: Scale) -> str:
    cells = len(set(experiment.cells(scale)))
    return " · ".join(filter(None, (f"{cells} cells", experiment.takes.get(scale))))


def _short(experiment: Experiment, scale: Scale) -> str:
    """The same without words, for a column: what is said of cores and of shared cells is left to --json."""
    cells, _, takes = _size(experiment, scale).partition(" cells")
    return cells + re.split(" on |,", takes)[0]


def _tell(page: Path, done: tuple[Reproduction, ...], as_json: bool) -> None:
    if as_json:
        told = [json.loads(each.summary.read_text()) | {"page": str(each.page)} for each in done]
        typer.echo(json.dumps({"page": str(page), "experiments": told}))
        return
    Console().print(_claims(done[0]) if len(done) == 1 else _counts(done))
    typer.echo(f"page, with the evidence: {page}")


def _claims(one: Reproduction) -> Table:
    table = Table(title=one.experiment.name, box=None, title_justify="left")
    for column in ("verdict", "claim"):
        table.add_column(column, no_wrap=column == "verdict")
    for verdict in one.verdicts:
        table.add_row(verdict.outcome, escape(verdict.claim))
    return table


def _counts(done: tuple[Reproduction, ...]) -> Table:
    table = Table(title="claims", box=None, title_justify="left")
    outcomes = get_args(Outcome)
    for column in ("experiment", *outcomes):
        table.add_column(column)
    for each in done:
        found = Counter(verdict.outcome for verdict in each.verdicts)
        table.add_row(each.experiment.name, *(str(found[outcome] or "") for outcome in outcomes))
    return table
