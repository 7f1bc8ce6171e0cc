"""`credent fit`: train a network and write the run to a directory."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from credent.cli.common import AsJson, DataDir, console, guarded, say
from credent.errors import CheckpointError, InputError
from credent.families import Draws
from credent.files import write_atomically
from credent.recipe import FAMILIES, METHODS, MODELS, PRIORS, Recipe


@guarded
def fit(
    out: Annotated[Path, typer.Option(help="Run directory to write: config, history, checkpoints, posterior.")],
    data: Annotated[str, typer.Option(help="Data set; `credent list` names them.")] = "digits",
    model: Annotated[str, typer.Option(help=" · ".join(MODELS))] = "mlp",
    method: Annotated[str, typer.Option(help=" · ".join(f"{k}: {v}" for k, v in METHODS.items()))] = "vi",
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data. Default: by data set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step. Default: by data set.")] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of the means, or a sampler's eps. Default: by data.")
    ] = None,
    scale_lr: Annotated[float | None, typer.Option(help="Learning rate of the scales. Default: by data set.")] = None,
    beta: Annotated[
        float | None, typer.Option(help="Weight of the penalty; 1 is Bayes' rule. Default: by data.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Samplers: 1 is the posterior, less is colder. Default: beta.")
    ] = None,
    weight_samples: Annotated[int | None, typer.Option(help="Draws of the weights per step. Default: by data.")] = None,
    prior: Annotated[str, typer.Option(help=" · ".join(PRIORS))] = "gaussian",
    prior_scale: Annotated[
        str | None, typer.Option(help="fan_in, kaiming, glorot, or a number. Default: kaiming, where there is a scale.")
    ] = None,
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
    if scale_lr is not None and method not in ("vi", "vl"):
        raise InputError(f"--scale-lr {scale_lr:g}: --method {method} learns no scales; leave it out.")
    recipe = Recipe(**fields)
    config = out / "config.json"
    if resume and not config.exists():
        raise CheckpointError(f"{out} holds no run to go on with: leave --resume out to begin one there.")
    if resume:
        saved = Recipe.from_json(config.read_text())
        if saved != recipe:
            changed = [k for k, v in dataclasses.asdict(saved).items() if fields[k] not in (v, None)]
            console.print(f"resuming {out} as it was begun" + (f" (its own {', '.join(changed)})" if changed else ""))
        recipe = saved
    built = recipe.build(data_dir)
    tempered = "" if recipe.temperature is None else f", temperature {recipe.temperature:g}"
    console.print(
        f"[bold]{recipe.method}[/] of {recipe.model} on {recipe.data}: {len(built.data.train):,} examples,"
        f" {built.objective.layout.num_params:,} random weights, beta {recipe.beta:g}{tempered}, seed {recipe.seed}",
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
