"""`credent evaluate`: score runs on their test data and write a page for each."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from credent import __version__, evaluation
from credent.cli.common import AsJson, DataDir, Samples, guarded, load_run
from credent.families import Posterior
from credent.files import write_atomically
from credent.pictures import page, shown, tempered
from credent.recipe import Built
from credent.report import comparison_page


@guarded
def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run directories; several are compared on one page.")],
    samples: Samples = 32,
    out: Annotated[Path, typer.Option(help="Several runs: the page that compares them.")] = Path("comparison.html"),
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Score runs on their test data and write a page for each: RUN/page.html.

    Example: credent evaluate runs/x --json, or credent evaluate runs/map runs/vi --out comparison.html
    """
    summaries = [_evaluate(run, samples, data_dir) for run in runs]
    if len(runs) > 1:
        named = {str(run): shown(each["scores"]) for run, each in zip(runs, summaries, strict=True)}
        sets = ", ".join(dict.fromkeys(each["data"] for each in summaries))
        comparison_page(
            f"{len(runs)} runs on {sets}",
            named,
            subtitle=f"Test data, up to {samples} draws.",
            footer=f"credent {__version__}",
        ).write(out)
    if as_json:
        typer.echo(json.dumps(summaries[0] if len(runs) == 1 else summaries, allow_nan=False))
        return
    for run, each in zip(runs, summaries, strict=True):
        _table(f"{run} on the test data, draws: {each['samples']}", each["scores"])
        typer.echo(f"page: {each['page']}")
    if len(runs) > 1:
        typer.echo(f"compared: {out}")


def _evaluate(run: Path, samples: int, data_dir: Path | None) -> dict[str, Any]:
    """Scores in RUN/evaluation.json, the page in RUN/page.html, and both in one answer."""
    built, posterior = load_run(run, data_dir)
    found = evaluation.evaluate(built.objective, posterior, built.data, samples)
    scores = {k: v if math.isfinite(v) else None for k, v in found.scores.items()}
    write_atomically(run / "evaluation.json", lambda path: path.write_text(json.dumps(scores, indent=2) + "\n"))
    written = _page(run, built, posterior, found)
    return {
        "run": str(run),
        "samples": found.predictive.num_draws,
        "calibrated_temperature": tempered(built.objective),
        **dataclasses.asdict(built.recipe),
        "scores": scores,
        "page": str(written),
    }


def _page(run: Path, built: Built, posterior: Posterior, found: evaluation.Evaluation) -> Path:
    recipe = built.recipe
    made = page(
        built.objective,
        posterior,
        built.data,
        built.history(run),
        found,
        title=f"{recipe.method.upper()} on {recipe.data}",
        subtitle=f"{recipe.model}, " + _several(recipe.members),
        settings={k: v for k, v in dataclasses.asdict(recipe).items() if v is not None},
        footer=f"credent {__version__}",
    )
    return made.write(run / "page.html")


def _several(members: int | None) -> str:
    return "" if members == 1 else f"{members} members averaged (curves and scales are the first one's), "


def _table(title: str, scores: dict[str, float | None]) -> None:
    table = Table(title=title, box=None, title_justify="left")
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, value in scores.items():
        table.add_row(name, "-" if value is None else f"{value:.4f}")
    Console().print(table)
