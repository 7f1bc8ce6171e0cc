"""The one loop: any objective, any torch optimiser or sampler, any loader.

    for batch: loss = objective(x, y); loss.backward(); optimizer.step()

and around it what long runs need: progress, validation, accumulation, clipping, mixed precision, schedules, draws,
history, and checkpoints from which a run goes on bit for bit, mid-epoch included. A hand-written loop gives the same
training; nothing here changes what is optimised.

>>> from credent import likelihoods, objectives
>>> x = torch.linspace(-1, 1, 64)[:, None]
>>> net = torch.nn.Linear(1, 1)
>>> objective = objectives.MAP(net, likelihoods.Gaussian(scale=0.1), num_data=64)
>>> result = fit(objective, None, [(x, 2 * x)], steps=4, progress=False)
>>> result.steps, sorted(result.history[-1])[:3]
(4, ['beta', 'epoch', 'loss'])
"""

import random
import time
import warnings
from collections.abc import Iterable, Sequence, Sized
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from credent.errors import InputError
from credent.noise import fresh_seed
from credent.objectives import Objective
from credent.optim.average import Average
from credent.optim.plateau import Plateau
from credent.predictive import Predictive
from credent.samplers import Langevin
from credent.training import batches
from credent.training.convergence import warn_of_short_reach
from credent.training.distributed import own_device
from credent.training.history import Row
from credent.training.interrupt import Interrupt
from credent.training.monitor import Monitor
from credent.training.natural import check_natural, naturals, warn_of_budget
from credent.training.progress import Report, Tell
from credent.training.result import Result
from credent.training.run import Run
from credent.training.sampling import check_sampler, noises, warn_of_burn_in, warn_of_no_draws
from credent.training.thin import Thin

_INTERVAL = 15.0  # seconds


def fit(
    objective: Objective,
    optimizer: Optimizer | None,
    loader: Iterable[Any],
    *,
    epochs: int | None = None,
    steps: int | None = None,
    val: Iterable[Any] | None = None,
    val_samples: int = 10,
    val_every: int = 1,
    run_dir: str | Path | None = None,
    resume: bool = False,
    seed: int | None = None,
    scheduler: LRScheduler | None = None,
    schedule: Literal["step", "epoch"] = "epoch",
    accumulate: int = 1,
    clip: float | None = None,
    autocast: torch.dtype | None = None,
    device: str | torch.device | None = None,
    keep: Thin | None = None,
    average: Average | None = None,
    monitors: Sequence[Monitor] = (),
    checkpoint_every: int | None = None,
    log_every: int = 100,
    progress: bool | Tell = True,
) -> Result:
    """Train `objective` for so many `epochs` or optimiser `steps`.

    optimizer: None is Adam, fused, at 1e-3 for the means and 1e-2 for the scales.
    val: a loader that is scored with `val_samples` draws, after every `val_every` epochs and at the end.
    run_dir: where history, checkpoints and the posterior go; `resume=True` goes on with what is there.
    seed: seeds torch, numpy, Python and the own streams of objective and sampler; the first weights are the caller's.
    scheduler: stepped after every "epoch" or every "step"; ReduceLROnPlateau sees the validation NLL, optim.Plateau the
        epoch's numbers.
    accumulate, clip: batches per optimiser step; the largest norm of a step's gradient.
    autocast: `torch.bfloat16` runs the network in mixed precision.
    keep: which weights of the run become the posterior's draws, for samplers.
    average: `optim.Average(objective)`, which is validated, and which the objective is set to at the end.
    monitors: look at the objective while it trains, every so many steps; their numbers are rows of the history.
    checkpoint_every: steps between checkpoints; None is every 15 seconds, and always at the end or when interrupted.
    progress: a live line, or none; or a function that is told (steps done, of how many) after every step.
    """
    if autocast not in (None, torch.bfloat16):
        raise InputError(f"autocast={autocast}: torch.bfloat16 needs no loss scaling and is the one that is supported.")
    if min(accumulate, log_every, val_every, val_samples) < 1:
        raise InputError("accumulate, log_every, val_every and val_samples count from 1.")
    if isinstance(scheduler, Plateau) and schedule == "step":
        raise InputError("optim.Plateau looks at an epoch's numbers: write schedule='epoch'.")
    if isinstance(scheduler, ReduceLROnPlateau) and (val is None or schedule == "step"):
        raise InputError("ReduceLROnPlateau follows the validation NLL: give val=loader, and schedule='epoch'.")
    if min(epochs or 1, steps or 1) < 1 or epochs == 0 or steps == 0:
        raise InputError(f"epochs={epochs}, steps={steps}: train for at least one.")
    if device is not None:
        objective.to(own_device(device))
    if isinstance(optimizer, type):
        raise InputError(
            f"fit(optimizer={optimizer.__name__}) is a class: build it, as in"
            f" {optimizer.__name__}(objective.param_groups(lr=1e-3)), or give None for Adam."
        )
    if optimizer is None:
        optimizer = torch.optim.Adam(objective.param_groups(lr=1e-3, scale_lr=1e-2), fused=True)
    if seed is not None:
        _seed(objective, optimizer, seed)
    _warn_of_num_data(objective, loader)
    _warn_of_idle_parameters(objective, optimizer)
    _check_average(average, objective, optimizer, keep)
    if isinstance(optimizer, Langevin):
        check_sampler(objective, optimizer, clip)
        warn_of_no_draws(optimizer, keep)
    check_natural(optimizer, clip)
    if scheduler is not None and scheduler.optimizer is not optimizer:
        raise InputError("this scheduler moves the rates of another optimiser: build it on the one that fit gets.")
    probe = None if val is None else batches.joined(val)
    run = Run(objective, optimizer, loader, scheduler, epochs, steps, accumulate, keep, run_dir, monitors, average)
    if isinstance(optimizer, Langevin) and keep is not None:
        warn_of_burn_in(optimizer, keep, run.total)
    run.begin(resume)
    if run.total and not run.step:
        per = 1 if schedule == "step" or epochs is None else run.total // epochs
        warn_of_short_reach(objective, optimizer, scheduler, run.total, per)
    wrapped = run.group.wrap(objective)
    saved = time.monotonic()
    with Report(progress if run.first else False, run.total, run.step) as report, Interrupt() as interrupt:
        while run.unfinished():
            for group in run.groups():
                numbers = run.train(wrapped, group, clip, autocast)
                if scheduler is not None and schedule == "step":
                    scheduler.step()
                run.keep()
                report.step(run.epoch, numbers)
                if run.batch % log_every == 0:
                    run.log({})
                late = time.monotonic() - saved > _INTERVAL
                if interrupt.requested or (late if checkpoint_every is None else run.step % checkpoint_every == 0):
                    run.save()
                    saved = time.monotonic()
                if interrupt.requested:
                    raise KeyboardInterrupt
                if not run.unfinished():
                    break
            wanted = (run.epoch + 1) % val_every == 0 or run.last_epoch()
            scores: Row = {}
            if probe is not None and wanted:
                with nullcontext() if average is None else average.applied():
                    scores = _validate(objective, probe, val_samples)
            row = run.log(scores)
            report.epoch(run.epoch, row, run.last_epoch())
            if run.exhausted:
                if isinstance(scheduler, Plateau):
                    scheduler.step(numbers | row)  # the row has no means where one was just written
                elif isinstance(scheduler, ReduceLROnPlateau):
                    if scores:  # val_every may pass over an epoch
                        scheduler.step(float(scores["val_nll"]))
                elif scheduler is not None and schedule == "epoch":
                    scheduler.step()
                run.close_epoch()
    result = run.end()
    warn_of_budget(optimizer)
    return result


def _validate(objective: Objective, probe: tuple[Any, Tensor], samples: int) -> Row:
    device = objective.layout.first().device
    x, y = batches.to(probe[0], device), batches.to(probe[1], device)
    return validated(objective.predict(x, samples=samples), y)


def validated(pred: Predictive, y: Tensor) -> Row:
    """What a history says of predictions of validation data."""
    name, value = pred.score(y)
    return {"val_nll": -pred.log_prob(y).double().mean().item(), f"val_{name}": value}


def _seed(objective: Objective, optimizer: Optimizer, seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (what users' transforms draw from)
    random.seed(seed)
    for noise in noises(objective, optimizer):
        noise.seed(fresh_seed())  # a stream of its own, not the global one over again


def _check_average(average: Average | None, objective: Objective, optimizer: Optimizer, keep: Thin | None) -> None:
    if average is None:
        return
    if average.module is not objective:
        raise InputError("this average is of another module: build it on this objective, optim.Average(objective).")
    if keep is not None or isinstance(optimizer, Langevin):
        raise InputError(
            "average= makes one setting of a run's iterates, and a sampler's are draws, to be kept as they are: leave"
            " average= out, or train with an optimiser and no keep=."
        )


def _warn_of_idle_parameters(objective: Objective, optimizer: Optimizer) -> None:
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    idle = [name for name, p in objective.named_parameters() if p.requires_grad and id(p) not in moved]
    if idle:
        advice = "build it with objective.param_groups(lr=...), which has the scales and a learnt noise too."
        if isinstance(optimizer, Langevin):
            advice = (
                f"{type(optimizer).__name__} draws random parameters alone, and the rest stays at its value. Fix a"
                " noise that you know, as in likelihoods.Gaussian(scale=0.1), and train other parameters beforehand."
            )
        if naturals(optimizer):
            advice = (
                "optim.Natural moves q alone. Give the rest an optimiser of its own, as in optim.Together(natural,"
                " torch.optim.Adam(objective.likelihood.parameters())), or fix it, as in likelihoods.Gaussian(0.1)."
            )
        warnings.warn(
            f"the optimiser does not move {', '.join(idle[:3])}{', ...' if len(idle) > 3 else ''}: {advice}",
            stacklevel=3,
        )


def _warn_of_num_data(objective: Objective, loader: Any) -> None:
    if isinstance(loader, DataLoader) and isinstance(loader.dataset, Sized):
        size = len(loader.dataset)
        if size != objective.num_data:
            warnings.warn(
                f"num_data={objective.num_data}, but the loader's data set has {size} examples: the penalty is weighed"
                f" as for {objective.num_data}. Write num_data=len(loader.dataset) unless you mean it.",
                stacklevel=3,
            )
