"""The command line: fit a network, look at what it does not know, and ask it about new inputs.

Exit codes: 0 done · 2 the request cannot be carried out as written · 3 a saved run cannot be read · 4 training met a
NaN or infinity · 130 interrupted (a checkpoint is written; --resume goes on).
"""

import csv
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from credent import __version__, data
from credent.demo import build as build_demo
from credent.errors import CheckpointError, CredentError, InputError, NonFiniteError
from credent.evaluation import Evaluation, evaluate, statistics_for
from credent.files import write_atomically
from credent.pictures import figures, shown
from credent.predict import predict
from credent.predictive import ClassPredictive, GaussianPredictive
from credent.recipe import FAMILIES, METHODS, MODELS, PRIORS, Built, Recipe
from credent.report import comparison_page, run_page
from credent.training import load
from credent.training.history import read

app = typer.Typer(
    help="Make a PyTorch network Bayesian, and see what it does not know.\n\n"
    "Start with `credent demo`, then `credent fit --data digits --out runs/first`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
datasets = typer.Typer(help="Data sets that are read from files.", no_args_is_help=True)
app.add_typer(datasets, name="data")
_console = Console(stderr=True)

DataDir = Annotated[Path | None, typer.Option(help="Directory with data sets; else the variable CREDENT_DATA.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, for machines.")]
Run = Annotated[Path, typer.Argument(help="A run directory that `credent fit --out` wrote.")]
Samples = Annotated[int, typer.Option(help="Draws of the weights to average over.")]


def main() -> None:
    """Run the command line and exit with a code that means something."""
    app()


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Errors that credent raises on purpose become one line and an exit code; others keep their traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except CredentError as error:
            _console.print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
            codes = {CheckpointError: 3, NonFiniteError: 4}
            raise typer.Exit(codes.get(type(error), 2)) from error
        except KeyboardInterrupt:
            _console.print("[bold]interrupted[/]; a run that was being fitted goes on with --resume.")
            raise typer.Exit(130) from None

    return run


@app.command()
@_guarded
def fit(
    out: Annotated[Path, typer.Option(help="Run directory to write: config, history, checkpoints, posterior.")],
    data: Annotated[str, typer.Option(help="Data set; `credent list` names them.")] = "digits",
    model: Annotated[str, typer.Option(help=" · ".join(MODELS))] = "mlp",
    method: Annotated[str, typer.Option(help=" · ".join(f"{k}: {v}" for k, v in METHODS.items()))] = "vi",
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data. Default: by data set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step. Default: by data set.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the means. Default: by data set.")] = None,
    scale_lr: Annotated[float | None, typer.Option(help="Learning rate of the scales. Default: by data set.")] = None,
    beta: Annotated[
        float | None, typer.Option(help="Weight of the penalty; 1 is Bayes' rule. Default: by data.")
    ] = None,
    weight_samples: Annotated[int | None, typer.Option(help="Draws of the weights per step. Default: by data.")] = None,
    prior: Annotated[str, typer.Option(help=" · ".join(PRIORS))] = "gaussian",
    prior_scale: Annotated[str, typer.Option(help="fan_in, kaiming, glorot, or a number.")] = "kaiming",
    family: Annotated[str, typer.Option(help=" · ".join(FAMILIES))] = "gaussian",
    noise: Annotated[str, typer.Option(help="Regression noise: learnt, heteroscedastic, or a number.")] = "learnt",
    random: Annotated[str, typer.Option(help="Which parameters are random, such as 'head.*'.")] = "*",
    split: Annotated[int, typer.Option(help="UCI sets: which standard split.")] = 0,
    seed: Annotated[int, typer.Option(help="Initial weights, data order and noise all follow from it.")] = 0,
    data_dir: DataDir = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a network and write the run to a directory.

    Example: credent fit --data digits --model mlp --method vi --epochs 5 --seed 0 --out runs/x
    """
    given = dict(locals())
    fields = {f.name: given[f.name] for f in dataclasses.fields(Recipe)}
    recipe = Recipe(**fields)
    config = out / "config.json"
    if resume and not config.exists():
        raise CheckpointError(f"{out} holds no run to go on with: leave --resume out to begin one there.")
    if resume:
        saved = Recipe.from_json(config.read_text())
        if saved != recipe:
            changed = [k for k, v in dataclasses.asdict(saved).items() if fields[k] not in (v, None)]
            _console.print(f"resuming {out} as it was begun" + (f" (its own {', '.join(changed)})" if changed else ""))
        recipe = saved
    built = recipe.build(data_dir)
    _console.print(
        f"[bold]{recipe.method}[/] of {recipe.model} on {recipe.data}: {len(built.data.train):,} examples,"
        f" {built.objective.layout.num_params:,} random weights, beta {recipe.beta:g}, seed {recipe.seed}",
        highlight=False,
    )
    started = time.monotonic()
    where = _device(device)
    if not resume and out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty: --resume goes on with the run in it; a new run wants another --out.")
    write_atomically(config, lambda path: path.write_text(recipe.to_json()))
    result = built.train(out, resume, device=where, progress=not as_json)
    summary = {
        "run": str(out),
        "steps": result.steps,
        "seconds": round(time.monotonic() - started, 1),
        "beta": recipe.beta,
        **{k: v for row in result.history[-1:] for k, v in row.items() if k.startswith("val_")},
    }
    _say(summary, as_json, f"wrote {out}; next: credent evaluate {out}")


@app.command(name="evaluate")
@_guarded
def evaluate_command(
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
            subtitle=f"Test data, {samples} draws.",
            footer=f"credent {__version__}",
        ).write(out)
    if as_json:
        typer.echo(json.dumps(summaries[0] if len(runs) == 1 else summaries, allow_nan=False))
        return
    for run, each in zip(runs, summaries, strict=True):
        _table(f"{run} on the test data, {samples} draws", each["scores"])
        typer.echo(f"page: {each['page']}")
    if len(runs) > 1:
        typer.echo(f"compared: {out}")


def _evaluate(run: Path, samples: int, data_dir: Path | None) -> dict[str, Any]:
    """Scores in RUN/evaluation.json, the page in RUN/page.html, and both in one answer."""
    built = _load(run, data_dir)
    found = evaluate(built.objective, built.objective.posterior, built.data, samples)
    scores = {k: v if math.isfinite(v) else None for k, v in found.scores.items()}
    write_atomically(run / "evaluation.json", lambda path: path.write_text(json.dumps(scores, indent=2) + "\n"))
    page = _page(run, built, found, samples)
    return {
        "run": str(run),
        "samples": samples,
        **dataclasses.asdict(built.recipe),
        "scores": scores,
        "page": str(page),
    }


@app.command(name="predict")
@_guarded
def predict_command(
    run: Run,
    inputs: Annotated[Path, typer.Argument(help="Inputs in original units: .npy (n, ...) or .csv, a row each.")],
    out: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    samples: Samples = 32,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Predict new inputs, with what the network does not know about each.

    Columns for classes: label, probability, entropy, mutual_information, and p_0 to p_C. For regression: mean, stddev,
    epistemic, aleatoric, and the ends of the 95 % interval, in the target's units.
    """
    built = _load(run, data_dir)
    objective, about = built.objective, built.data
    raw = _read_inputs(inputs, about.shape)
    seen = about.train[:][0]
    x = (raw - about.mean) / about.std
    low, high = seen.min(), seen.max()
    if bool(((x < low - (high - low)) | (x > high + (high - low))).any()):
        _console.print(
            "[bold]warning[/]: some inputs lie far outside the range of the training data; are they in the same units?"
        )
    answer = predict(
        objective.net,
        objective.posterior,
        objective.likelihood,
        x,
        samples=samples,
        statistics=statistics_for(objective, objective.posterior, about),
    )
    assert isinstance(answer, ClassPredictive | GaussianPredictive)
    rows = _rows(answer, about)
    if out is None:
        typer.echo(json.dumps(rows)) if as_json else _write_csv(sys.stdout, rows)
        return

    def write(path: Path) -> None:
        if as_json:
            path.write_text(json.dumps(rows))
            return
        with open(path, "w", newline="") as file:
            _write_csv(file, rows)

    write_atomically(out, write)
    typer.echo(f"wrote {len(rows)} predictions to {out}")


@app.command(name="list")
@_guarded
def list_command(data_dir: DataDir = None, as_json: AsJson = False) -> None:
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


@app.command()
@_guarded
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the page.")] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Train MAP and VI on the built-in digits and VI on two curves, and write a page to open. About a minute."""
    page, scores = build_demo(progress=not as_json, footer=f"credent {__version__}")
    written = page.write(out / "page.html")
    plain = {name: {k: e.value for k, e in each.items()} for name, each in scores.items()}
    _say({"page": str(written), "scores": plain}, as_json, f"open {written}")


@datasets.command()
@_guarded
def download(
    name: Annotated[str, typer.Argument(help="mnist or fashion_mnist.")],
    data_dir: DataDir = None,
    mirror: Annotated[str | None, typer.Option(help="Address to fetch from instead of the usual one.")] = None,
) -> None:
    """Fetch a data set and check every file against its known checksum."""
    typer.echo(f"in {data.download(name, data_dir, mirror)}")


def _device(name: str) -> torch.device:
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    try:
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"--device {name}: this machine, or this build of torch, has none ({why}).") from error
    return torch.device(chosen)


def _load(run: Path, data_dir: Path | None) -> Built:
    if not (run / "config.json").exists():
        raise CheckpointError(f"{run} is not a run: it has no config.json. `credent fit --out {run}` would make one.")
    built = Recipe.from_json((run / "config.json").read_text()).build(data_dir)
    load(built.objective, run / "posterior.safetensors")
    return built


def _page(run: Path, built: Built, evaluation: Evaluation, samples: int) -> Path:
    recipe = built.recipe
    drawn = figures(built.objective, built.objective.posterior, built.data, evaluation, read(run / "history.jsonl"))
    settings = {**dataclasses.asdict(recipe), "draws at test time": samples}
    page = run_page(
        f"{recipe.method.upper()} on {recipe.data}",
        shown(evaluation.scores),
        drawn,
        settings,
        subtitle=f"{recipe.model}, {len(built.data.train):,} training and {len(built.data.test):,} test examples.",
        footer=f"credent {__version__}",
    )
    return page.write(run / "page.html")


def _read_inputs(path: Path, shape: tuple[int, ...]) -> torch.Tensor:
    try:
        table = path.suffix != ".npy"
        array = np.loadtxt(path, delimiter=",", ndmin=2) if table else np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} ({error}): give numbers only: .npy, or .csv without a header.") from error
    size = int(np.prod(shape))
    if array.ndim == 0 or len(array) == 0 or array.size != len(array) * size:
        raise InputError(
            f"{path} has shape {array.shape}; each row must hold {size} numbers, as in shape (n, {shape})."
        )
    if not np.isfinite(array).all():
        raise InputError(f"{path} has NaN or infinity in row {int(np.argwhere(~np.isfinite(array))[0][0])}.")
    return torch.from_numpy(array.astype(np.float32)).reshape(-1, *shape)


def _rows(answer: ClassPredictive | GaussianPredictive, about: data.Data) -> list[dict[str, float]]:
    if isinstance(answer, ClassPredictive):
        top = answer.probs.max(-1).values
        columns = {
            "label": answer.label,
            "probability": top,
            "entropy": answer.entropy,
            "mutual_information": answer.mutual_information,
            **{f"p_{c}": answer.probs[:, c] for c in range(answer.probs.shape[1])},
        }
    else:
        unit, centre = about.target_std, about.target_mean
        lower, upper = answer.interval(0.95)
        columns = {
            "mean": unit * answer.mean + centre,
            "stddev": unit * answer.stddev,
            "epistemic": unit * answer.epistemic,
            "aleatoric": unit * answer.aleatoric,
            "lower_95": unit * lower + centre,
            "upper_95": unit * upper + centre,
        }
    lists = {name: column.flatten().tolist() for name, column in columns.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _write_csv(file: Any, rows: list[dict[str, float]]) -> None:
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)


def _table(title: str, scores: dict[str, float | None]) -> None:
    table = Table(title=title, box=None, title_justify="left")
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, value in scores.items():
        table.add_row(name, "-" if value is None else f"{value:.4f}")
    Console().print(table)


def _say(summary: dict[str, Any], as_json: bool, text: str) -> None:
    typer.echo(json.dumps(summary) if as_json else text)
