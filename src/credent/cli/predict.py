"""`credent predict`: what a run says about new inputs, and what it does not know about each."""

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from credent.cli.common import AsJson, DataDir, Samples, console, guarded, load_run
from credent.data import Data
from credent.errors import InputError
from credent.evaluation import statistics_for
from credent.files import write_atomically
from credent.predict import predict as ask
from credent.predictive import ClassPredictive, GaussianPredictive


@guarded
def predict(
    run: Annotated[Path, typer.Argument(help="A run directory that `credent fit --out` wrote.")],
    inputs: Annotated[
        Path, typer.Argument(help="Inputs in original units: .npy (n, ...), or .csv, a row each, under names or not.")
    ],
    out: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    samples: Samples = 32,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Predict new inputs, with what the network does not know about each.

    Columns for classes: label, probability, entropy, mutual_information, and p_0 to p_C. For regression: mean, stddev,
    epistemic, aleatoric, and the ends of the 95 % interval, in the target's units.
    """
    built, posterior = load_run(run, data_dir)
    objective, about = built.objective, built.data
    raw = _read_inputs(inputs, about.shape)
    seen = about.train[:][0]
    x = (raw - about.mean) / about.std
    low, high = seen.min(), seen.max()
    if bool(((x < low - (high - low)) | (x > high + (high - low))).any()):
        console.print(
            "[bold]warning[/]: some inputs lie far outside the range of the training data; are they in the same units?"
        )
    answer = ask(
        objective.net,
        posterior,
        objective.likelihood,
        x,
        samples=samples,
        how=objective.how,
        statistics=statistics_for(objective, posterior, about),
    )
    assert isinstance(answer, ClassPredictive | GaussianPredictive)
    if answer.num_draws == 1 < samples:
        console.print(
            f"one network answers, as {built.recipe.method} does here: what draws would disagree about is 0 throughout",
            highlight=False,
            soft_wrap=True,
        )
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


def _read_inputs(path: Path, shape: tuple[int, ...]) -> torch.Tensor:
    try:
        array = np.load(path, allow_pickle=False) if path.suffix == ".npy" else _read_table(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path} ({error}): give numbers only, as .npy or .csv, which may have one row of names on top."
        ) from error
    size = int(np.prod(shape))
    if array.ndim == 0 or len(array) == 0 or array.size != len(array) * size:
        raise InputError(
            f"{path} has shape {array.shape}; each row must hold {size} numbers, as in shape (n, {shape})."
        )
    if not np.isfinite(array).all():
        raise InputError(f"{path} has NaN or infinity in row {int(np.argwhere(~np.isfinite(array))[0][0])}.")
    return torch.from_numpy(array.astype(np.float32)).reshape(-1, *shape)


def _read_table(path: Path) -> NDArray[np.float64]:
    """Rows of numbers; a first row of names, none of which is a number, is passed over and said to be."""
    lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]  # a spreadsheet's mark
    names = [cell.strip().strip('"') for cell in lines[0].split(",")] if lines else []
    if lines and not any(map(_is_number, names)):
        del lines[0]
        some = f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
        console.print(
            f"the first row of {path} is a header ({some}) and no input", markup=False, soft_wrap=True, emoji=False
        )
    if not lines:
        raise ValueError("it holds no row of numbers")
    return np.loadtxt(lines, delimiter=",", ndmin=2)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _rows(answer: ClassPredictive | GaussianPredictive, about: Data) -> list[dict[str, float]]:
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
