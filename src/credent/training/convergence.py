"""Did the scales of q converge? Before training: how far can they move; after it: where do they still pull.

Adam moves a parameter by at most about its learning rate in a step, so log sigma can travel at most

    reach = sum_t lr_t

over training, and a scale that starts at exp(-3) of the prior's needs 3 to come back to it. At the optimum of VI and VL
under a Gaussian prior the gradient of the loss by log sigma_i, times N / beta, is sigma_i^2 / sigma_opt_i^2 - 1, which
is zero: `pull` below is that number, positive where a scale is still too wide, negative where it is too narrow.
[Unlu & Aitchison 2021, section 5.1]

>>> schedule = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1e-4)
>>> round(reach(schedule, None, 0, steps=391), 4)         # an epoch of 50,000 in batches of 128 at the paper's rate
0.0391
"""

import copy
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from credent.errors import ConvergenceWarning, InputError
from credent.families.location_scale import LocationScale
from credent.objectives import Objective
from credent.optim.plateau import Plateau
from credent.priors import Prior
from credent.training.batches import split, to

_ADAPTIVE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax)
_FASTEST = 0.1  # a rate of scales that may still be advised
_MOVING = 0.2  # a pull that stands for a scale 10 % off its optimum


@dataclass(frozen=True)
class Convergence:
    """How the scales of one parameter tensor stand at the end of training."""

    name: str
    size: int
    log_ratio: float
    """Mean of log sigma less log of the prior's standard deviation; NaN where the prior has none."""
    pull: float
    """Mean over the tensor of sigma^2 / sigma_opt^2 - 1: zero when converged."""
    error: float
    """Standard error of `pull` over batches."""
    moving: float
    """Share of the tensor's scales whose own pull exceeds 0.2 by more than three of its standard errors."""

    @property
    def converged(self) -> bool:
        """Whether the mean pull is within noise of zero, or below 0.2."""
        return abs(self.pull) <= max(_MOVING, 3 * self.error)


def convergence(objective: Objective, batches: Iterable[Any], count: int = 16) -> tuple[Convergence, ...]:
    """The pull on every tensor's scales, from `count` training batches (x, y); nothing moves.

    Batches are gone through again when there are fewer; the noise of drawn weights or labels differs each time.
    """
    q = objective.posterior
    if not isinstance(q, LocationScale):
        raise InputError(f"convergence asks about scales, and the posterior of {type(objective).__name__} has none.")
    if not isinstance(objective.penalty, Prior):
        raise InputError(
            f"convergence asks where a prior with a density holds the scales up, and {objective.described} is none: see"
            " how they move with fit(..., monitors=[cr.training.ScaleRatio(objective)])."
        )
    device, layout, rho = objective.layout.first().device, q.layout, q.scales.rho
    total, squares = torch.zeros_like(rho), torch.zeros_like(rho)
    means: list[Tensor] = []
    state, modes = copy.deepcopy(objective.state_dict()), [(m, m.training) for m in objective.modules()]
    last = objective.last
    objective.train()
    try:
        with objective.steady():
            for x, y in (to(split(batch), device) for batch in _repeated(batches, count)):
                loss = objective(x, y)
                assert objective.last is not None
                if objective.last.beta == 0:
                    raise InputError("beta is 0: without the prior nothing holds the scales up, and they only shrink.")
                unit = objective.num_data / objective.last.beta
                (gradient,) = torch.autograd.grad(loss, rho)
                pull = gradient * unit
                total += pull
                squares += pull.square()
                means.append(torch.stack([part.mean() for part in layout.unflatten(pull).values()]))
    finally:
        objective.load_state_dict(state)  # running statistics, counters and noise go back to where they were
        objective.last = last
        for module, mode in modes:
            module.training = mode
    n = len(means)
    mean = total / n
    error = ((squares / n - mean.square()).clamp_min(0) / max(n - 1, 1)).sqrt()
    moving = (mean.abs() - 3 * error > _MOVING).to(mean.dtype)
    by_tensor = torch.stack(means)
    errors = by_tensor.std(0) / n**0.5 if n > 1 else torch.full_like(by_tensor[0], torch.inf)
    spread = {k: s if math.isfinite(s) else math.nan for k, s in (objective.penalty.stddev() or {}).items()}
    shares, scales = layout.unflatten(moving), layout.unflatten(rho.detach())
    return tuple(
        Convergence(
            name,
            layout.shapes[name].numel(),
            float(scales[name].mean()) - math.log(spread.get(name, math.nan)),
            float(by_tensor[:, i].mean()),
            float(errors[i]),
            float(shares[name].mean()),
        )
        for i, name in enumerate(layout.names)
    )


def reach(optimizer: Optimizer, scheduler: LRScheduler | ReduceLROnPlateau | None, group: int, steps: int) -> float:
    """The sum of a group's learning rates over so many steps of the scheduler: as far as Adam can move a parameter."""
    rates = [float(g["lr"]) for g in optimizer.param_groups]
    if scheduler is None or isinstance(scheduler, ReduceLROnPlateau | Plateau):
        return rates[group] * steps
    stand_in = torch.optim.SGD(
        [{"params": [nn.Parameter(torch.zeros(()))], **_plain(g)} for g in optimizer.param_groups]
    )
    ahead = copy.deepcopy(scheduler, {id(optimizer): stand_in})  # with every scheduler that it holds
    total = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the stand-in never takes a step of its own
        for _ in range(steps):
            total += float(stand_in.param_groups[group]["lr"])
            ahead.step()
    return total


def warn_of_short_reach(
    objective: Objective, optimizer: Optimizer, scheduler: LRScheduler | ReduceLROnPlateau | None, steps: int, per: int
) -> None:
    """Warn when Adam cannot bring the scales back to the prior; the scheduler moves every `per` optimiser steps."""
    q, penalty = objective.posterior, objective.penalty
    if not (isinstance(q, LocationScale) and isinstance(penalty, Prior) and isinstance(optimizer, _ADAPTIVE)):
        return
    spread = penalty.stddev()
    index = next((i for i, g in enumerate(optimizer.param_groups) if any(p is q.scales.rho for p in g["params"])), None)
    if spread is None or index is None or math.inf in spread.values():
        return
    far = reach(optimizer, scheduler, index, max(1, steps // per)) * per
    need = max(
        float((torch.tensor(spread[k]).log() - r).max()) for k, r in q.layout.unflatten(q.scales.rho.detach()).items()
    )
    if far < need:
        rate = optimizer.param_groups[index]["lr"]
        short = need / max(far, 1e-6)
        wanted = rate * 2 * short
        raised = f", or raise scale_lr to {wanted:.1g}" if wanted <= _FASTEST else ""
        warnings.warn(
            f"the scales cannot converge: log sigma starts {need:.1f} below the prior's, and in {steps} steps at"
            f" {rate:.2g} and below Adam moves it by at most {far:.1f}. Train for {math.ceil(steps * short):,} steps or"
            f" more{raised}.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _plain(group: dict[str, Any]) -> dict[str, Any]:
    """What schedulers read: everything but the parameters."""
    return {k: v for k, v in group.items() if k != "params"}


def _repeated(batches: Iterable[Any], count: int) -> Iterable[Any]:
    done = 0
    while done < count:
        before = done
        for batch in batches:
            yield batch
            done += 1
            if done == count:
                return
        if done == before:
            raise InputError("convergence got no batches.")
