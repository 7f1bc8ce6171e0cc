"""What commands have in common: options of the same name and meaning, how errors end, how answers are given."""

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from credent.errors import CheckpointError, CredentError, NonFiniteError
from credent.families import Posterior
from credent.recipe import Built, Recipe

DataDir = Annotated[Path | None, typer.Option(help="Directory with data sets; else the variable CREDENT_DATA.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, for machines.")]
Samples = Annotated[int, typer.Option(help="Draws of the weights to average over; of a sampler's, those there are.")]

console = Console(stderr=True)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Errors that credent raises on purpose become one line and an exit code; others keep their traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except CredentError as error:
            console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True, emoji=False)
            codes = {CheckpointError: 3, NonFiniteError: 4}
            raise typer.Exit(codes.get(type(error), 2)) from error
        except KeyboardInterrupt:
            console.print(
                "[bold]interrupted[/]; what is finished is kept: the same command goes on from it, `fit` with --resume."
            )
            raise typer.Exit(130) from None

    return run


def load_run(run: Path, data_dir: Path | None) -> tuple[Built, Posterior]:
    """A run directory's recipe, built, with what it learnt, and its posterior: a sampler's are the draws it kept."""
    if not (run / "config.json").exists():
        raise CheckpointError(f"{run} is not a run: it has no config.json. `credent fit --out {run}` would make one.")
    built = Recipe.from_json((run / "config.json").read_text()).build(data_dir)
    return built, built.load(run)


def say(summary: dict[str, Any], as_json: bool, text: str) -> None:
    """The answer, for machines or in words."""
    typer.echo(json.dumps(summary) if as_json else text)
