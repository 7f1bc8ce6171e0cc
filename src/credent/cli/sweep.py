"""`credent sweep`: many runs that differ in a few values, and which of them is best."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from credent.cli import fields
from credent.cli.common import AsJson, DataDir, Samples, guarded
from credent.errors import InputError
from credent.sweeps import Choice, Jitter, LogUniform, Sweep, Uniform, read
from credent.sweeps import sweep as sweep_all
from credent.sweeps.done import shown
from credent.sweeps.fields import NAMES
from credent.sweeps.table import number
from credent.sweeps.vary import Varied

_RANKED = 20


@guarded
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
    data: Annotated[str | None, fields.DATA] = None,
    model: Annotated[str | None, fields.MODEL] = None,
    method: Annotated[str | None, fields.METHOD] = None,
    epochs: Annotated[int | None, fields.EPOCHS] = None,
    batch_size: Annotated[int | None, fields.BATCH_SIZE] = None,
    lr: Annotated[float | None, fields.LR] = None,
    scale_lr: Annotated[float | None, fields.SCALE_LR] = None,
    optimiser: Annotated[str | None, fields.OPTIMISER] = None,
    schedule: Annotated[str | None, fields.SCHEDULE] = None,
    beta: Annotated[float | None, fields.BETA] = None,
    temperature: Annotated[float | None, fields.TEMPERATURE] = None,
    weight_samples: Annotated[int | None, fields.WEIGHT_SAMPLES] = None,
    members: Annotated[int | None, fields.MEMBERS] = None,
    prior: Annotated[str | None, fields.PRIOR] = None,
    prior_scale: Annotated[str | None, fields.PRIOR_SCALE] = None,
    family: Annotated[str | None, fields.FAMILY] = None,
    noise: Annotated[str | None, fields.NOISE] = None,
    random: Annotated[str | None, fields.RANDOM] = None,
    split: Annotated[int | None, fields.SPLIT] = None,
    seed: Annotated[int | None, fields.SEED] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make many runs that differ in a few values, and rank them on validation data.

    What is finished is kept: stopped or failed, the same command goes on where it was, and with more runs, seeds or
    values it adds what is new. Fields that are not varied are those of `credent fit`.

    Example: credent sweep --data digits --grid method=map,vi --draw lr=log:1e-4:1e-1 --runs 20 --out runs/rates
    """
    given = dict(locals())
    if show:
        _tell(read(out), as_json)
        return
    if data_dir is not None:
        os.environ["CREDENT_DATA"] = str(data_dir.resolve())  # worker processes inherit it
    done = sweep_all(
        _varied(grid or [], draw or [], jitter or []),
        out,
        fixed={name: given[name] for name in NAMES if given[name] is not None},
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
        ("--grid", grid, lambda name, text: _values(text)),
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


def _values(text: str) -> list[float | int | str]:
    return [number(value.strip()) for value in text.split(",")]


def _drawn(name: str, text: str) -> Varied:
    how, _, rest = text.partition(":")
    if how == "choice":
        return Choice(_values(rest))
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
    typer.echo(title)
    Console().print(shown(done, "", _RANKED))
    typer.echo(f"table: {done.out / 'runs.csv'}")
    if page.exists():
        typer.echo(f"page: {page}")
