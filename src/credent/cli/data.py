"""`credent list` and `credent data download`: what there is, and getting more."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from credent import data
from credent.cli.common import AsJson, DataDir, guarded
from credent.recipe import FAMILIES, METHODS, MODELS, PRIORS


@guarded
def list_all(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """What there is: data sets, models, methods, priors and families."""
    sets = data.names(data_dir)
    if as_json:
        there = {"data": [s._asdict() for s in sets], "models": MODELS, "methods": METHODS}
        typer.echo(json.dumps({**there, "priors": list(PRIORS), "families": list(FAMILIES)}))
        return
    table = Table(title="data sets", box=None, title_justify="left")
    for column in ("name", "what", "here"):
        table.add_column(column)
    for each in sets:
        table.add_row(each.name, each.description, "yes" if each.available else "no")
    console = Console()
    console.print(table)
    for title, named in (("models", MODELS), ("methods", METHODS)):
        console.print(f"\n{title}")
        for name, text in named.items():
            console.print(f"  {name}: {text}", highlight=False)
    console.print(f"\npriors: {', '.join(PRIORS)}\nfamilies: {', '.join(FAMILIES)}")


@guarded
def download(
    name: Annotated[str, typer.Argument(help="mnist or fashion_mnist.")],
    data_dir: DataDir = None,
    mirror: Annotated[str | None, typer.Option(help="Address to fetch from instead of the usual one.")] = None,
) -> None:
    """Fetch a data set and check every file against its known checksum."""
    typer.echo(f"in {data.download(name, data_dir, mirror)}")
