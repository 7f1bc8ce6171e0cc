"""The command line: fit a network, look at what it does not know, and ask it about new inputs.

A command is a function in a file of its own; here each gets its name.

Exit codes: 0 done · 1 parts of an experiment failed · 2 the request cannot be carried out as written · 3 a saved run
cannot be read · 4 training met a NaN or infinity · 130 interrupted (what is finished is kept).
"""

import warnings
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.markup import escape

from credent.cli.calibrate import calibrate
from credent.cli.common import console
from credent.cli.data import download, list_all
from credent.cli.demo import demo
from credent.cli.equivalence import equivalence
from credent.cli.evaluate import evaluate
from credent.cli.fit import fit
from credent.cli.predict import predict
from credent.cli.reproduce import reproduce
from credent.cli.sweep import sweep

__all__ = ["app", "main"]

app = typer.Typer(
    help="Make a PyTorch network Bayesian, and see what it does not know.\n\n"
    "Start with `credent demo`, then `credent fit --data digits --out runs/first`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(fit)
app.command()(evaluate)
app.command()(calibrate)
app.command()(predict)
app.command(name="list")(list_all)
app.command()(demo)
app.command()(reproduce)
app.command()(sweep)
app.command()(equivalence)

datasets = typer.Typer(help="Data sets that are read from files.", no_args_is_help=True)
datasets.command()(download)
app.add_typer(datasets, name="data")


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"credent {metadata.version('credent')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """What holds for all commands."""


def main() -> None:
    """Run the command line and exit with a code that means something."""
    warnings.showwarning = _say  # one line, without the place in our source
    app()


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    console.print(f"[bold]warning[/]: {escape(str(message))}", highlight=False, soft_wrap=True, emoji=False)
