"""Rates that fall when progress stops, each parameter group by a number of its own.

    Plateau(optimizer, {"means": "nll", "scales": "kl"}, factor=0.1, patience=5)

After every epoch each group looks at its number; when the best so far has not been beaten for more than `patience`
epochs, by at least the share `threshold`, the group's rate is multiplied by `factor`. Numbers are those of a row of the
run's history: `nll`, `kl` and `loss` of training, `val_nll` of validation. Lower is better for all of them.

>>> p = torch.zeros(1, requires_grad=True)
>>> schedule = Plateau(torch.optim.SGD([{"name": "means", "params": [p]}], lr=1.0), {"means": "nll"}, patience=1)
>>> for nll in (3.0, 2.0, 2.0, 2.0):
...     schedule.step({"nll": nll})
>>> schedule.optimizer.param_groups[0]["lr"]
0.1
"""

import math
from collections.abc import Mapping
from typing import Any

import torch  # noqa: F401  (the doctest's)
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from credent.errors import InputError


class Plateau(LRScheduler):
    """A plateau schedule for each of several named groups."""

    def __init__(
        self,
        optimizer: Optimizer,
        follows: Mapping[str, str],
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
    ) -> None:
        names = [group.get("name") for group in optimizer.param_groups]
        if not follows or any(name not in names for name in follows):
            raise InputError(
                f"Plateau(follows={dict(follows)}): a number for each group that follows one; the optimiser's"
                f" groups are {', '.join(repr(n) for n in names)}. objective.param_groups(lr=...) has named ones."
            )
        if not 0 < factor < 1 or patience < 0 or threshold < 0:
            raise InputError(
                f"Plateau(factor={factor}, patience={patience}, threshold={threshold}): a factor between 0 and 1, and"
                " neither of the others negative."
            )
        self.optimizer, self.follows = optimizer, dict(follows)
        self.factor, self.patience, self.threshold = factor, patience, threshold
        self.best = dict.fromkeys(follows, math.inf)
        self.waited = dict.fromkeys(follows, 0)

    def step(self, numbers: Mapping[str, Any] | None = None) -> None:  # type: ignore[override]
        """Look at an epoch's numbers; one that is missing, or not finite, is a wait."""
        for name, metric in self.follows.items():
            if numbers is None or metric not in numbers:
                raise InputError(
                    f"Plateau: the group {name!r} follows {metric!r}, and the epoch has"
                    f" {', '.join(map(repr, numbers or ())) or 'no numbers'}. 'val_nll' needs fit(val=loader)."
                )
            value = numbers[metric]
            if value is not None and value < self.best[name] - self.threshold * abs(self._finite(name)):
                self.best[name], self.waited[name] = float(value), 0
            else:
                self.waited[name] += 1
            if self.waited[name] > self.patience:
                self.waited[name] = 0
                for group in self.optimizer.param_groups:
                    if group.get("name") == name:
                        group["lr"] *= self.factor

    def _finite(self, name: str) -> float:
        return self.best[name] if math.isfinite(self.best[name]) else 0.0

    def get_last_lr(self) -> list[float | Tensor]:
        """The rates as they are."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The best so far, and how long ago it was."""
        return {"best": dict(self.best), "waited": dict(self.waited)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there; the rates are in the optimiser's state."""
        self.best, self.waited = dict(state_dict["best"]), dict(state_dict["waited"])
