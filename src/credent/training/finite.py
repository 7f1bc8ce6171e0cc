"""Errors for runs that met a NaN or an infinity: what broke, at which step, and what is still whole."""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from credent.errors import NonFiniteError
from credent.families.draws import DrawFiles
from credent.network import Params
from credent.objectives import Objective
from credent.samplers import Langevin
from credent.training import batches


def remedy(optimizer: Optimizer) -> str:
    """What helps against a run that diverges."""
    if not isinstance(optimizer, Langevin):
        return "lower the learning rate, or clip=1.0"
    rate = max(float(group["lr"]) for group in optimizer.param_groups)
    return (
        f"take a smaller step than {type(optimizer).__name__}(lr={rate:.3g}), with which the chain diverges: write"
        f" lr={rate / 10:.1g}, in a run_dir of its own"
    )


def raise_if_broken(objective: Objective, optimizer: Optimizer, step: int, run_dir: Path | None) -> None:
    """Name the first parameter that is not finite, if there is one."""
    for name, p in objective.state_dict().items():  # which has the scales of each layer under its name
        if isinstance(p, Tensor) and p.is_floating_point() and not bool(p.isfinite().all()):
            raise NonFiniteError(
                f"parameter {name} is no longer finite at step {step}: {remedy(optimizer)}.{_kept(run_dir)}"
            )


def raise_bad_gradient(objective: Objective, optimizer: Optimizer, batch: Any, step: int, run_dir: Path | None) -> None:
    """Name the data, or the first parameter whose gradient is not finite; the step has not been taken."""
    _raise_if_bad_data(batch, step, run_dir)
    raise_if_broken(objective, optimizer, step, run_dir)
    gradients: Params = {}
    for name, p in objective.named_parameters():
        if p.grad is not None and name.endswith("scales.rho"):
            gradients |= {f"{name}.{k}": g for k, g in objective.layout.unflatten(p.grad).items()}
        elif p.grad is not None:
            gradients[name] = p.grad
    bad = [name for name, g in gradients.items() if not bool(g.isfinite().all())]
    raise NonFiniteError(
        f"the gradient of {bad[0] if bad else 'the loss'} is not finite at step {step}; the step was not taken. Scale"
        f" the inputs, look for a division by zero in the network, or {remedy(optimizer)}.{_kept(run_dir)}"
    )


def raise_non_finite(objective: Objective, optimizer: Optimizer, batch: Any, step: int, run_dir: Path | None) -> None:
    """Say why a loss or gradient is not finite: the data, a parameter, or the network's arithmetic."""
    _raise_if_bad_data(batch, step, run_dir)
    raise_if_broken(objective, optimizer, step, run_dir)
    size, name = max((float(p.detach().abs().max()), name) for name, p in objective.named_parameters() if p.numel())
    raise NonFiniteError(
        f"the loss or its gradient is not finite at step {step}, though data and parameters are: the network overflows"
        f" (its largest weight is {size:.1e}, in {name}). Scale the inputs, or {remedy(optimizer)}.{_kept(run_dir)}"
    )


def _raise_if_bad_data(batch: Any, step: int, run_dir: Path | None) -> None:
    bad = batches.first_bad(batch)
    if bad is not None:
        raise NonFiniteError(
            f"the loss is not finite at step {step}, because the data are not: {bad} has NaN or infinity."
            f" Clean or drop such rows.{_kept(run_dir)}"
        )


def _kept(run_dir: Path | None) -> str:
    if run_dir is None:
        return ""
    draws = len(DrawFiles(run_dir / "draws"))
    kept = f" {draws} finished draws are in {run_dir / 'draws'}." if draws else ""
    return f" The last good checkpoint is in {run_dir / 'checkpoint'}.{kept}"
