"""The average of a run's iterates, in the place of the last one: what a rate that falls to zero is for.

    avg_t = avg_{t-1} + (p + 1) / (t + p) (w_t - avg_{t-1}),        so that  avg_t = sum_s c_s w_s,   c_s ~ s^p

At a constant rate the weights wander about a mode; their average lies in the middle of where they have been, which is
flatter, predicts better and doubts more honestly than where they happen to end. Later iterates count more: at any time
the average reaches back over a share 1 / (p + 1) of the run so far, so that p does not depend on how long that will be.
[Polyak & Juditsky 1992; Shamir & Zhang 2013; Izmailov et al. 2018]

Parameters that are trained are averaged, scales of q among them, and so are the running statistics of norm layers;
these are nearly those of the averaged weights where the average reaches back a small part of the run.

>>> net = torch.nn.Linear(1, 1, bias=False)
>>> average = Average(net, power=1.0)
>>> for w in (1.0, 2.0, 3.0):
...     _ = net.weight.data.fill_(w)
...     average.update()
>>> with average.applied():                                  # (1 x 1 + 2 x 2 + 3 x 3) / (1 + 2 + 3)
...     round(net.weight.item(), 4)
2.3333
>>> net.weight.item()
3.0
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from credent.errors import InputError
from credent.network import owners


class Average:
    """The average of what a module's optimiser has moved it through: call `update()` after every step.

    power: p; the average reaches back over 1 / (p + 1) of the run so far, and 0 counts all iterates alike.
    """

    def __init__(self, module: nn.Module, power: float = 8.0) -> None:
        if not 0 <= power < float("inf"):
            raise InputError(f"Average(power={power}): iterate s counts as s^power, so it is a number >= 0, such as 8.")
        self.module, self.power, self.steps = module, power, 0
        self._learnt, self._seen = _places(module)
        self._held = {name: _wide(t).clone() for name, t in self._tensors().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the iterate that the module is at now."""
        self.steps += 1
        now = {name: _wide(t) for name, t in self._tensors().items()}
        # a module may be moved or converted, and a parameter that is trained from now on begins with what it is
        self._held = {name: _like(self._held.get(name), t) for name, t in now.items()}
        weight = (self.power + 1) / (self.steps + self.power)
        torch._foreach_lerp_(list(self._held.values()), list(now.values()), weight)

    @torch.no_grad()
    def apply(self) -> None:
        """Set the module to the average."""
        for name, tensor in self._tensors().items():
            if name in self._held:
                tensor.copy_(self._held[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within: the module is at the average; afterwards, also after an exception, where it was."""
        own = {name: t.clone() for name, t in self._tensors().items()}
        try:
            self.apply()
            yield
        finally:
            with torch.no_grad():
                for name, tensor in self._tensors().items():
                    tensor.copy_(own[name])

    def state_dict(self) -> dict[str, Any]:
        """The average so far, and of how many iterates it is."""
        return {"steps": self.steps, "average": dict(self._held)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if state["average"].keys() != self._held.keys():
            different = sorted(state["average"].keys() ^ self._held.keys())[:4]
            raise InputError(f"this average is of another module: they differ in {', '.join(different)}.")
        self.steps = state["steps"]
        self._held = {name: state["average"][name].to(t, copy=True) for name, t in self._held.items()}

    def _tensors(self) -> dict[str, Tensor]:
        """What is averaged, as it is now."""
        learnt = ((name, held[key]) for name, held, key in self._learnt)
        seen = ((name, held[key]) for name, held, key in self._seen)
        found = {name: p.detach() for name, p in learnt if p is not None and p.requires_grad}
        return found | {name: b for name, b in seen if b is not None}


_Places = list[tuple[str, dict[str, Any], str]]


def _places(module: nn.Module) -> tuple[_Places, _Places]:
    """Where parameters and running statistics are kept, by name; to look for them takes longer than to average them."""
    learnt = [(name, first[0]._parameters, first[1]) for name, (first, *_) in owners(module).items()]
    norms = [(p, m) for p, m in module.named_modules() if isinstance(m, _NormBase) and m.track_running_stats]
    seen = [(f"{p}.{k}", m._buffers, k) for p, m in norms for k, b in m.named_buffers() if b.is_floating_point()]
    return learnt, seen


def _like(held: Tensor | None, now: Tensor) -> Tensor:
    if held is None:
        return now.clone()
    return held if (held.dtype, held.device) == (now.dtype, now.device) else held.to(now)


def _wide(tensor: Tensor) -> Tensor:
    """Small shares of many iterates are lost in 16 bits."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
