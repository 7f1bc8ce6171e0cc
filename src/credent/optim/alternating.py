"""Means and scales in turn: while one group is trained, the others that have a turn rest.

    Alternating(optimizer, {"means": 5 * len(loader), "scales": len(loader)})

trains the means for five epochs, then the scales for one, and so on. A group that rests has its gradients taken away
for that step, so that its momentum and moments rest, too; groups without a turn (a learnt noise) always move.

>>> a, b = (torch.zeros(1, requires_grad=True) for _ in range(2))
>>> groups = [{"name": "means", "params": [a]}, {"name": "scales", "params": [b]}]
>>> optimizer = Alternating(torch.optim.SGD(groups, lr=1.0), {"means": 2, "scales": 1})
>>> for _ in range(4):
...     a.grad, b.grad = torch.ones(1), torch.ones(1)
...     optimizer.step()
>>> a.item(), b.item()
(-3.0, -1.0)
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from credent.errors import InputError


class Alternating(Optimizer):
    """An optimiser whose named groups take turns of so many steps."""

    def __init__(self, optimizer: Optimizer, turns: Mapping[str, int]) -> None:
        names = [group.get("name") for group in optimizer.param_groups]
        unknown = [name for name in turns if name not in names]
        if unknown or not turns or min(turns.values()) < 1:
            raise InputError(
                f"Alternating(turns={dict(turns)}): steps from 1 for each of the optimiser's groups that takes turns;"
                f" its groups are {', '.join(repr(n) for n in names)}. objective.param_groups(lr=...) has named ones."
            )
        self.optimizer, self.turns, self.steps = optimizer, dict(turns), 0
        super().__init__([p for group in optimizer.param_groups for p in group["params"]], {})
        self.param_groups = optimizer.param_groups  # the same, for schedulers

    @property
    def turn(self) -> str:
        """The name of the group whose turn the next step is."""
        at = self.steps % sum(self.turns.values())
        for name, length in self.turns.items():
            if at < length:
                return name
            at -= length
        raise AssertionError("turns cover their sum")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The groups that rest keep their gradients, and do not move."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        resting = [
            p
            for group in self.param_groups
            if group.get("name") in self.turns and group["name"] != self.turn
            for p in group["params"]
        ]
        grads = [p.grad for p in resting]
        for p in resting:
            p.grad = None
        self.optimizer.step()
        for p, grad in zip(resting, grads, strict=True):
            p.grad = grad
        self.steps += 1
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The optimiser's state, and whose turn it is."""
        return {"optimizer": self.optimizer.state_dict(), "steps": self.steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.steps = state_dict["steps"]
        self.param_groups = self.optimizer.param_groups
