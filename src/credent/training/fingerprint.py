"""What must be the same for a run to go on: everything that a checkpoint's numbers belong to.

Memory order counts as shape does: noise is laid over the weights as they lie in memory, so in another memory format
the same stream would give other draws. So it would where compiled loops are missing, or have come.

>>> changed({"optimizer": "Adam", "shape of w": [2]}, {"optimizer": "Adam", "shape of w": [3]})
('shape of w', [2], [3])
"""

from collections.abc import Sequence
from typing import Any

from torch import Generator, Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from credent import native
from credent.likelihoods import Likelihood
from credent.objectives import Objective
from credent.optim.average import Average
from credent.optim.natural import Natural
from credent.samplers import Langevin, Preconditioner
from credent.training.generators import samplers
from credent.training.natural import naturals
from credent.training.thin import Thin

Fingerprint = dict[str, Any]


def fingerprint(
    objective: Objective,
    optimizer: Optimizer,
    scheduler: LRScheduler | None,
    loader: Any,
    accumulate: int,
    generators: Sequence[Generator],
    thin: Thin | None,
    average: Average | None,
) -> Fingerprint:
    """Plain numbers and words, each under a name that a person knows; of a run that has not begun."""
    tensors = {k: v for k, v in objective.state_dict().items() if isinstance(v, Tensor)}
    return {
        "objective": type(objective).__name__,
        "posterior": type(objective.posterior).__name__,
        "likelihood": type(objective.likelihood).__name__,
        **{f"{k} of the likelihood": v for k, v in _settings(objective.likelihood).items()},
        "prior": objective.described,
        "beta": None if callable(objective.beta) else float(objective.beta),
        "num_data": objective.num_data,
        **{f"shape of {k}": list(v.shape) for k, v in tensors.items()},
        **{f"memory order of {k}": list(stride) for k, stride in objective.layout.strides.items()},
        "source of normal numbers": "torch" if native.kernels is None else "compiled loops",
        "optimizer": type(optimizer).__name__,
        "number of parameters in each group": [len(group["params"]) for group in optimizer.param_groups],
        "scheduler": None if scheduler is None else type(scheduler).__name__,
        **(_sampler(optimizer, scheduler) if isinstance(optimizer, Langevin) else {}),
        **{f"{name} of Natural": value for each in naturals(optimizer) for name, value in _natural(each).items()},
        "batch size": _batch_size(loader),
        "number of batches in a step": accumulate,
        "number of generators in the loader": len(generators),
        "power of the average": None if average is None else float(average.power),
        "plan of draws": None if thin is None else type(thin).__name__,  # which steps, `Kept` compares
    }


def _natural(optimizer: Natural) -> Fingerprint:
    return {"budget": optimizer.budget, "steps": optimizer.steps, "curvature": optimizer.curvature}


def _settings(likelihood: Likelihood) -> Fingerprint:
    """What a likelihood was built with; what it learns is among the tensors."""
    own = {k: v for k, v in vars(likelihood).items() if not k.startswith("_") and k != "training"}
    return {k: v for k, v in own.items() if v is None or isinstance(v, int | float | str)}


def _sampler(sampler: Langevin, scheduler: LRScheduler | None) -> Fingerprint:
    """What decides the law of a chain: an optimiser may go on with another rate, a chain would be another one."""
    schedule = {} if scheduler is None else _plain(scheduler.state_dict())
    moves = {"last_epoch"} | {k for k in schedule if k.startswith("_")}
    return {
        "lr": [float(group.get("initial_lr", group["lr"])) for group in sampler.param_groups],  # before any schedule
        **{f"{k} of the scheduler": v for k, v in schedule.items() if k not in moves},
        "temperature": [float(group["temperature"]) for group in sampler.param_groups],
        "momentum": [float(group["momentum"]) for group in sampler.param_groups],
        "burn_in": sampler.burn_in,
        "num_data of the sampler": sampler.num_data,
        **_preconditioner(sampler.preconditioner, "preconditioner"),
    }


def _preconditioner(preconditioner: Preconditioner, name: str) -> Fingerprint:
    found: Fingerprint = {name: type(preconditioner).__name__}
    for key, value in vars(preconditioner).items():  # a preconditioner is a frozen description: fields, no memory
        if isinstance(value, Preconditioner):
            found |= _preconditioner(value, key)
        elif value is None or isinstance(value, int | float | str | tuple):
            found[f"{key} of the {name}"] = list(value) if isinstance(value, tuple) else value
    return found


def _plain(value: Any) -> Any:
    """What a checkpoint gives back as it was: numbers, words, and lists and dicts of them; None for all else."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, bool | int | float | str) else None


def _batch_size(loader: Any) -> int | None:
    """Rows of a batch, where the loader says so."""
    sizes = [getattr(each, "batch_size", None) for each in [loader, *samplers(loader)]]
    return next((size for size in sizes if isinstance(size, int)), None)


def changed(theirs: Fingerprint, mine: Fingerprint) -> tuple[str, Any, Any] | None:
    """The first thing that is not the same, and what it was and is; None where all is."""
    for key in {**mine, **theirs}:
        if mine.get(key) != theirs.get(key):
            return key, theirs.get(key), mine.get(key)
    return None
