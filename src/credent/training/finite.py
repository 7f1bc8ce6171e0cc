"""Errors for runs that met a NaN or an infinity: what broke, at which step, and what is still whole."""

from pathlib import Path
from typing import Any

from torch import Tensor

from credent.errors import NonFiniteError
from credent.network import Params
from credent.objectives import Objective
from credent.training import batches


def raise_if_broken(objective: Objective, step: int, run_dir: Path | None) -> None:
    """Name the first parameter that is not finite, if there is one."""
    for name, p in objective.state_dict().items():  # which has the scales of each layer under its name
        if isinstance(p, Tensor) and p.is_floating_point() and not bool(p.isfinite().all()):
            raise NonFiniteError(
                f"parameter {name} is no longer finite at step {step}: lower the learning rate, or clip=1.0."
                f"{_kept(run_dir)}"
            )


def raise_bad_gradient(objective: Objective, batch: Any, step: int, run_dir: Path | None) -> None:
    """Name the data, or the first parameter whose gradient is not finite; the step has not been taken."""
    _raise_if_bad_data(batch, step, run_dir)
    raise_if_broken(objective, step, run_dir)
    gradients: Params = {}
    for name, p in objective.named_parameters():
        if p.grad is not None and name.endswith("scales.rho"):
            gradients |= {f"{name}.{k}": g for k, g in objective.layout.unflatten(p.grad).items()}
        elif p.grad is not None:
            gradients[name] = p.grad
    bad = [name for name, g in gradients.items() if not bool(g.isfinite().all())]
    raise NonFiniteError(
        f"the gradient of {bad[0] if bad else 'the loss'} is not finite at step {step}; the step was not taken. Scale"
        f" the inputs, lower the learning rate, or look for a division by zero in the network.{_kept(run_dir)}"
    )


def raise_non_finite(objective: Objective, batch: Any, step: int, run_dir: Path | None) -> None:
    """Say why a loss or gradient is not finite: the data, a parameter, or the network's arithmetic."""
    _raise_if_bad_data(batch, step, run_dir)
    raise_if_broken(objective, step, run_dir)
    size, name = max((float(p.detach().abs().max()), name) for name, p in objective.named_parameters() if p.numel())
    raise NonFiniteError(
        f"the loss or its gradient is not finite at step {step}, though data and parameters are: the network overflows"
        f" (its largest weight is {size:.1e}, in {name}). Scale the inputs, lower the learning rate, or clip=1.0."
        f"{_kept(run_dir)}"
    )


def _raise_if_bad_data(batch: Any, step: int, run_dir: Path | None) -> None:
    bad = batches.first_bad(batch)
    if bad is not None:
        raise NonFiniteError(
            f"the loss is not finite at step {step}, because the data are not: {bad} has NaN or infinity."
            f" Clean or drop such rows.{_kept(run_dir)}"
        )


def _kept(run_dir: Path | None) -> str:
    return "" if run_dir is None else f" The last good checkpoint is in {run_dir / 'checkpoint'}."
