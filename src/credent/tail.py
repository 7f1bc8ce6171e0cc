"""A network at many draws of its last layers, with what lies before them run once.

    f(x; w) = g(h(x); w)

The tail g is the smallest module of the network that holds every random parameter and whose outputs are the network's.
It is found by watching the network: the first draw runs all of it and keeps h(x), the others run the tail alone. Where
that would change a result, because h draws random numbers or uses a random weight itself, a few inputs show it, and
each draw runs the whole network.

Shapes: those of `Network`.

>>> net, x = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1, bias=False)), torch.ones(100, 1)
>>> lengths = []
>>> hook = net[0].register_forward_hook(lambda layer, inputs, output: lengths.append(len(output)))
>>> tail = Tail(Network(net), x)
>>> for weight in (1.0, 2.0, 3.0, 4.0):
...     params = {"1.weight": torch.tensor([[weight]])}
...     tail.meet(params)
...     outputs = tail.on(0, x)(params)
>>> lengths                                          # eight inputs for each of two draws, and all of them once
[8, 100, 8]
>>> torch.equal(outputs, 4 * net[0](x))
True
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from credent.network import Network, Params, each_tensor, take

_FEW = 8  # inputs at which a tail is looked for and tested
_MOST = 256 << 20  # bytes of h(x) that are kept; what is beyond them goes through the whole network


class Tail:
    """A network at one draw after another, on inputs in numbered chunks."""

    def __init__(self, network: Network, x: Any) -> None:
        self._network, self._few = network, take(x, slice(_FEW))
        self._module: nn.Module | None = None
        self._shown: list[Tensor] = []
        self._names: set[str] = set()
        self._draws = 0
        self._kept: dict[int, _Call] = {}

    def meet(self, params: Params) -> None:
        """A new draw: a tail is looked for at the first, and tested at the second."""
        self._draws += 1
        if self._draws == 1:
            self._names = set(params)
            self._find(params)
        elif self._module is not None and (
            params.keys() != self._names or (self._draws == 2 and not self._stands(params))
        ):
            self._module = None
            self._kept.clear()

    def on(self, number: int, x: Any) -> Callable[[Params], Tensor]:
        """The network's outputs for this chunk, as a function of the draw that was met or of its tangent."""

        def outputs(params: Params) -> Tensor:
            if number in self._kept:
                return self._alone(self._kept[number], params)
            if self._module is None or self._draws > 1:
                return self._network(params, x)
            found, call = self._watched([self._module], params, x)
            if call is not None and call.size + sum(kept.size for kept in self._kept.values()) <= _MOST:
                self._kept[number] = call
            return found

        return outputs

    def _find(self, params: Params) -> None:
        holders = self._network.holders(params)
        while holders:
            outputs, call = self._watched(holders, params, self._few)
            if call is None:
                return
            if self._repeats(call, params, outputs):
                self._module, self._shown = call.module, call.tensors()
                return
            holders = holders[holders.index(call.module) + 1 :]

    def _repeats(self, call: "_Call", params: Params, outputs: Tensor) -> bool:
        try:
            return _same(self._alone(call, params), outputs)
        except Exception:  # a module may work only where its network calls it, as within an autocast of the network's
            return False

    def _stands(self, params: Params) -> bool:
        """Whether another draw leaves what goes into the tail as it was."""
        assert self._module is not None
        _, call = self._watched([self._module], params, self._few)
        return call is not None and all(map(_same, call.tensors(), self._shown))

    def _alone(self, call: "_Call", params: Params) -> Tensor:
        return self._network.part(call.module, params, *call.arguments, **call.keywords)

    def _watched(self, modules: Sequence[nn.Module], params: Params, x: Any) -> tuple[Tensor, "_Call | None"]:
        """The network's outputs, and the call of the first of these modules whose outputs they are."""
        with _watching(modules) as calls:
            outputs = self._network(params, x)
        call = next((calls[m] for m in modules if m in calls and calls[m].returned(outputs)), None)
        return outputs, call and replace(call, output=None)


@dataclass
class _Call:
    """What a module was called with and what it returned."""

    module: nn.Module
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Tensor | None = None
    version: int = 0

    def returned(self, outputs: Tensor) -> bool:
        """Whether it returned this very tensor, and nobody has written to it since."""
        return self.output is outputs and outputs._version == self.version

    def tensors(self) -> list[Tensor]:
        """Everything that went in."""
        found: list[Tensor] = []

        def note(t: Tensor) -> Tensor:
            found.append(t)
            return t

        each_tensor((self.arguments, self.keywords), note)
        return found

    @property
    def size(self) -> int:
        """Bytes of what went in."""
        return sum(t.nbytes for t in self.tensors())


@contextmanager
def _watching(modules: Sequence[nn.Module]) -> Iterator[dict[nn.Module, _Call]]:
    """Within: the latest call of each of these modules."""
    calls: dict[nn.Module, _Call] = {}

    def enter(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        calls[module] = _Call(module, arguments, keywords)

    def leave(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor) and not output.is_inference():  # such a tensor does not count writes to it
            calls[module].output, calls[module].version = output, output._version

    hooks = [m.register_forward_pre_hook(enter, prepend=True, with_kwargs=True) for m in modules]
    hooks += [m.register_forward_hook(leave) for m in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)
