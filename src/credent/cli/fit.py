"""`credent fit`: train a network and write the run to a directory."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from credent.cli import fields
from credent.cli.common import AsJson, DataDir, console, guarded, say
from credent.errors import CheckpointError, InputError
from credent.families import Draws
from credent.files import write_atomically
from credent.recipe import Recipe


@guarded
def fit(
    out: Annotated[Path, typer.Option(help="Run directory to write: config, history, checkpoints, posterior.")],
    data: Annotated[str, fields.DATA] = "digits",
    model: Annotated[str, fields.MODEL] = "mlp",
    method: Annotated[str, fields.METHOD] = "vi",
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
    prior: Annotated[str, fields.PRIOR] = "gaussian",
    prior_scale: Annotated[str | None, fields.PRIOR_SCALE] = None,
    family: Annotated[str, fields.FAMILY] = "gaussian",
    noise: Annotated[str, fields.NOISE] = "learnt",
    random: Annotated[str, fields.RANDOM] = "*",
    split: Annotated[int, fields.SPLIT] = 0,
    seed: Annotated[int, fields.SEED] = 0,
    data_dir: DataDir = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a network and write the run to a directory.

    Example: credent fit --data digits --model mlp --method vi --epochs 5 --seed 0 --out runs/x
    """
    given = dict(locals())
    chosen = {f.name: given[f.name] for f in dataclasses.fields(Recipe)}
    recipe = Recipe(**chosen)
    config = out / "config.json"
    if resume and not config.exists():
        raise CheckpointError(f"{out} holds no run to go on with: leave --resume out to begin one there.")
    if resume:
        saved = Recipe.from_json(config.read_text())
        if saved != recipe:
            changed = [k for k, v in dataclasses.asdict(saved).items() if chosen[k] not in (v, None)]
            own = f", with its own {', '.join(changed)} and not this command's" if changed else ""
            console.print(f"resuming {out} as it was begun{own}", markup=False, emoji=False)
        recipe = saved
    built = recipe.build(data_dir)
    tempered = "" if recipe.temperature is None else f", temperature {recipe.temperature:g}"
    several = "" if recipe.members == 1 else f" in each of {recipe.members} members"
    console.print(
        f"[bold]{recipe.method}[/] of {recipe.model} on {recipe.data}: {len(built.data.train):,} examples,"
        f" {built.objective.layout.num_params:,} random weights{several}, beta {recipe.beta:g}{tempered},"
        f" seed {recipe.seed}",
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
        **({"draws": len(result.posterior)} if isinstance(result.posterior, Draws) else {}),
        **{k: v for row in result.history[-1:] for k, v in row.items() if k.startswith("val_")},
    }
    say(summary, as_json, f"wrote {out}; next: credent evaluate {out}")


def _device(name: str) -> torch.device:
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    try:
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"--device {name}: this machine, or this build of torch, has none ({why}).") from error
    return torch.device(chosen)
