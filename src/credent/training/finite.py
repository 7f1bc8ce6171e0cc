"""Errors for runs that met a NaN or an infinity: what broke, at which step, and what is still whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor
from torch.optim import Optimizer

from credent.errors import NonFiniteError
from credent.families.draws import DrawFiles
from credent.network import Params
from credent.objectives import Objective
from credent.samplers import Langevin
from credent.training import batches


class Watch:
    """Over one run; `draws` are those that it has kept so far, which an error hands on."""

    def __init__(
        self, objective: Objective, optimizer: Optimizer, run_dir: Path | None, draws: Sequence[Params]
    ) -> None:
        self._objective, self._optimizer, self._run_dir, self._draws = objective, optimizer, run_dir, draws

    def parameters(self, step: int) -> None:
        """Name the first parameter that is not finite, if there is one."""
        for name, p in self._objective.state_dict().items():  # which has the scales of each layer under its name
            if isinstance(p, Tensor) and p.is_floating_point() and not bool(p.isfinite().all()):
                self._raise(f"parameter {name} is no longer finite at step {step}: {self._remedy()}.")

    def bad_gradient(self, batch: Any, step: int) -> NoReturn:
        """Name the data, or the first parameter whose gradient is not finite; the step has not been taken."""
        self._data(batch, step)
        self.parameters(step)
        gradients: Params = {}
        for name, p in self._objective.named_parameters():
            if p.grad is not None and name.endswith("scales.rho"):
                gradients |= {f"{name}.{k}": g for k, g in self._objective.layout.unflatten(p.grad).items()}
            elif p.grad is not None:
                gradients[name] = p.grad
        bad = [name for name, g in gradients.items() if not bool(g.isfinite().all())]
        self._raise(
            f"the gradient of {bad[0] if bad else 'the loss'} is not finite at step {step}; the step was not taken."
            f" Scale the inputs, look for a division by zero in the network, or {self._remedy()}."
        )

    def bad_loss(self, batch: Any, step: int) -> NoReturn:
        """Say why a loss is not finite: the data, a parameter, or the network's arithmetic."""
        self._data(batch, step)
        self.parameters(step)
        named = self._objective.named_parameters()
        size, name = max((float(p.detach().abs().max()), name) for name, p in named if p.numel())
        self._raise(
            f"the loss or its gradient is not finite at step {step}, though data and parameters are: the network"
            f" overflows (its largest weight is {size:.1e}, in {name}). Scale the inputs, or {self._remedy()}."
        )

    def _data(self, batch: Any, step: int) -> None:
        bad = batches.first_bad(batch)
        if bad is not None:
            self._raise(
                f"the loss is not finite at step {step}, because the data are not: {bad} has NaN or infinity."
                " Clean or drop such rows."
            )

    def _remedy(self) -> str:
        """What helps against a run that diverges."""
        if not isinstance(self._optimizer, Langevin):
            return "lower the learning rate, or clip=1.0"
        rate = max(float(group["lr"]) for group in self._optimizer.param_groups)
        return (
            f"take a smaller step than {type(self._optimizer).__name__}(lr={rate:.3g}), with which the chain diverges:"
            f" write lr={rate / 10:.1g}, in a run_dir of its own"
        )

    def _raise(self, what: str) -> NoReturn:
        count, where = len(self._draws), "this error's `draws`"
        if isinstance(self._draws, DrawFiles):
            where = str(self._draws.directory)
        if self._run_dir is not None and any(self._run_dir.glob("checkpoint/step-*.pt")):
            what += f" The last good checkpoint is in {self._run_dir / 'checkpoint'}."
        if count:
            what += f" {count} finished draws are in {where}; the last of them may already be on the way to infinity."
        error = NonFiniteError(what)
        error.draws = self._draws
        raise error
