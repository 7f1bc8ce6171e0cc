"""`credent calibrate`: set the temperature of a run's predictions by its validation data."""

from pathlib import Path
from typing import Annotated

import typer

from credent.cli.common import AsJson, DataDir, guarded, load_run, say


@guarded
def calibrate(
    run: Annotated[Path, typer.Argument(help="Run directory of a classifier.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Set the temperature of a run's predictions by its validation data.

    The run is saved with it, and `evaluate` and `predict` follow; going on with its training sets it back to one.

    Example: credent calibrate runs/x
    """
    built, _ = load_run(run, data_dir)
    before, after, temperature = built.calibrate(run)
    summary = {
        "run": str(run),
        "temperature": temperature,
        "val_nll_before": before["val_nll"],
        "val_nll": after["val_nll"],
    }
    found = f"temperature {temperature:.3f}, validation NLL {after['val_nll']:.4f} instead of {before['val_nll']:.4f}"
    say(summary, as_json, f"{found}; wrote {run}; next: credent evaluate {run}")
