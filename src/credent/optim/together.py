"""Several optimisers that step as one: each parameter group may have a rule of its own.

    Together(SGD(means, lr=0.1, momentum=0.9), Adam(scales, lr=1e-3))

is an `Optimizer` like any other: schedulers see the groups of all, `state_dict` holds the states of all, and a closure
is called once, before any of them moves.

>>> a, b = (torch.ones(1, requires_grad=True) for _ in range(2))
>>> both = Together(torch.optim.SGD([a], lr=0.1), torch.optim.Adam([b], lr=0.1))
>>> (a + 2 * b).sum().backward()
>>> both.step()
>>> [round(p.item(), 4) for p in (a, b)]                  # SGD moves by lr g, Adam first by lr
[0.9, 0.9]
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from credent.errors import InputError


class Together(Optimizer):
    """Optimisers of different parameters, as one."""

    def __init__(self, *optimizers: Optimizer) -> None:
        if not optimizers:
            raise InputError("Together() of no optimisers: give at least one, such as torch.optim.Adam(...).")
        held = [p for each in optimizers for group in each.param_groups for p in group["params"]]
        if len({id(p) for p in held}) < len(held):
            raise InputError(
                "Together: a parameter is in several of the optimisers, and would be moved by each of them: give each"
                " its own group of objective.param_groups(lr=...)."
            )
        self.optimizers = optimizers
        super().__init__([{"params": held}], {})
        self.param_groups = [group for each in optimizers for group in each.param_groups]  # theirs, for schedulers

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Each moves its own."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for each in self.optimizers:
            each.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of all, in order."""
        return {"optimizers": [each.state_dict() for each in self.optimizers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from there."""
        states = state_dict["optimizers"]
        if len(states) != len(self.optimizers):
            raise InputError(f"a state of {len(states)} optimisers does not fit Together of {len(self.optimizers)}.")
        for each, state in zip(self.optimizers, states, strict=True):
            each.load_state_dict(state)
        self.param_groups = [group for each in self.optimizers for group in each.param_groups]
