"""`credent sweep`: many runs that differ in a few values, and which of them is best."""

import inspect
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from credent.cli.common import AsJson, DataDir, Samples, guarded
from credent.cli.fit import fit
from credent.errors import InputError
from credent.sweeps import Choice, Jitter, LogUniform, Sweep, Uniform, read
from credent.sweeps import sweep as sweep_all
from credent.sweeps.done import shown
from credent.sweeps.fields import NAMES, typed
from credent.sweeps.vary import Varied

_RANKED = 20


def with_fields_of_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command what `credent fit` takes, field by field; they arrive as its keyword arguments."""
    shared = [parameter for name, parameter in inspect.signature(fit).parameters.items() if name in NAMES]
    own = [each for each in inspect.signature(command).parameters.values() if each.kind is not each.VAR_KEYWORD]
    hints = get_type_hints(fit, include_extras=True)
    command.__annotations__ = get_type_hints(command, include_extras=True) | {p.name: hints[p.name] for p in shared}
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
    command.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    return command


@guarded
@with_fields_of_a_run
def sweep(
    out: Annotated[Path, typer.Option(help="Directory for the runs, the table and the page.")],
    grid: Annotated[list[str] | None, typer.Option(help="FIELD=A,B,...: each value in turn.")] = None,
    draw: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=uniform:LOW:HIGH, FIELD=log:LOW:HIGH or FIELD=choice:A,B,...: drawn for each run."),
    ] = None,
    jitter: Annotated[
        list[str] | None, typer.Option(help="FIELD=A,B,...: drawn around each value v, from N(v, v/2) above 0.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Draws of what is random, for each combination of the rest.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Run each setting with so many seeds, from --seed on.")] = None,
    draw_seed: Annotated[int, typer.Option(help="What is drawn follows from it.")] = 0,
    metric: Annotated[str, typer.Option(help="What ranks the runs: val_nll, val_accuracy, val_rmse, ...")] = "val_nll",
    test: Annotated[bool, typer.Option("--test", help="Score on test data too; the ranking stays as it is.")] = False,
    samples: Samples = 32,
    jobs: Annotated[int | None, typer.Option(help="Runs side by side. Default: one per core.")] = None,
    backend: Annotated[str | None, typer.Option(help="Run on a cluster: dask or ray.")] = None,
    address: Annotated[str | None, typer.Option(help="Where the cluster is, such as tcp://host:8786.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing: print the ranking of the sweep in --out.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    **recipe: Any,
) -> None:
    """Make many runs that differ in a few values, and rank them on validation data.

    What is finished is kept: stopped or failed, the same command goes on where it was, and with more runs, seeds or
    values it adds what is new. Fields that are not varied are those of `credent fit`.

    Example: credent sweep --data digits --grid method=map,vi --draw lr=log:1e-4:1e-1 --runs 20 --out runs/rates
    """
    if show:
        _tell(read(out), as_json)
        return
    if data_dir is not None:
        os.environ["CREDENT_DATA"] = str(data_dir.resolve())  # worker processes inherit it
    usual = {name: each.default for name, each in inspect.signature(fit).parameters.items()}
    done = sweep_all(
        _varied(grid or [], draw or [], jitter or []),
        out,
        fixed={name: value for name, value in recipe.items() if value != usual[name]},
        metric=metric,
        runs=runs,
        seeds=seeds,
        draw_seed=draw_seed,
        test=test,
        samples=samples,
        jobs=jobs,
        backend=backend,
        address=address,
        progress=not as_json,
    )
    _tell(done, as_json)
    if done.failures:
        raise typer.Exit(1)


def _varied(grid: list[str], draw: list[str], jitter: list[str]) -> dict[str, Varied]:
    """What the options vary, by field."""
    found: dict[str, Varied] = {}
    ways: tuple[tuple[str, list[str], Callable[[str, str], Varied]], ...] = (
        ("--grid", grid, _values),
        ("--draw", draw, _drawn),
        ("--jitter", jitter, lambda name, text: Jitter([_number(f"--jitter {name}", v) for v in text.split(",")])),
    )
    for option, given, way in ways:
        for each in given:
            name, equals, text = each.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or not text:
                raise InputError(f"{option} {each}: write FIELD=VALUES, such as {option} lr={_example(option)}.")
            if name in found:
                raise InputError(f"{option} {each}: {name} is varied twice; keep one of the two.")
            found[name] = way(name, text)
    return found


def _example(option: str) -> str:
    return "log:1e-4:1e-1" if option == "--draw" else "1e-3,1e-2"


def _values(name: str, text: str) -> list[Any]:
    return [typed(name, value.strip()) for value in text.split(",")]


def _drawn(name: str, text: str) -> Varied:
    how, _, rest = text.partition(":")
    if how == "choice":
        return Choice(_values(name, rest))
    ends = rest.split(":")
    if how not in ("uniform", "log") or len(ends) != 2:
        raise InputError(
            f"--draw {name}={text}: write {name}=uniform:LOW:HIGH, {name}=log:LOW:HIGH or {name}=choice:A,B."
        )
    low, high = (_number(f"--draw {name}", end) for end in ends)
    return Uniform(low, high) if how == "uniform" else LogUniform(low, high)


def _number(where: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is no number.") from None


def _tell(done: Sweep, as_json: bool) -> None:
    """The ranking, for machines or in words."""
    page = done.out / "page.html"
    if as_json:
        ranked = [
            {**each.values, done.metric: each.score if math.isfinite(each.score) else None}
            | {"error": each.error, "runs": each.runs, "failed": each.failed}
            for each in done.ranking
        ]
        typer.echo(json.dumps({"out": str(done.out), "page": str(page), "ranking": ranked}, allow_nan=False))
        return
    title = f"{done.out}: {len(done.rows)} runs, {len(done.failures)} failed; the best by {done.metric}"
    Console().print(shown(done, title, _RANKED))
    typer.echo(f"table: {done.out / 'runs.csv'}")
    if page.exists():
        typer.echo(f"page: {page}")
