"""A network at many draws of its last layers, with what lies before them run twice and not for every draw.

    f(x; w) = g(h(x); w)

The tail g is the smallest module of the network that holds every random parameter and whose outputs are the network's.
It is found by watching the network at the first draw, which keeps h(x). At the next draw that differs, the tail and
the whole network are both run, on all inputs: if they agree to the bit, the tail alone is run from then on, else the
whole network always, as where h uses a random weight itself, draws random numbers or leaves the tail something to read.

Shapes: those of `Network`.

>>> net, x = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1, bias=False)), torch.ones(100, 1)
>>> passes = []
>>> hook = net[0].register_forward_hook(lambda layer, inputs, output: passes.append(len(output)))
>>> tail = Tail(Network(net))
>>> for weight in (1.0, 2.0, 3.0, 4.0):
...     params = {"1.weight": torch.tensor([[weight]])}
...     tail.meet(params)
...     outputs = tail.on(0, x)(params)
>>> passes
[100, 100]
>>> torch.equal(outputs, 4 * net[0](x))
True
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from credent.network import Network, Params, each_tensor

_MOST = 256 << 20  # bytes of h(x) that are kept; what is beyond them goes through the whole network


class Tail:
    """A network at one draw after another, on inputs in numbered chunks."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._mode: Literal["watch", "wait", "test", "tail", "whole"] = "whole"
        self._first: Params | None = None
        self._holders: list[nn.Module] = []
        self._kept: dict[int, _Call] = {}

    def meet(self, params: Params) -> None:
        """The next draw, for all chunks."""
        if self._first is None:
            self._first, self._holders = params, self._network.holders(params)
            self._mode = "watch" if self._holders and not _compiled(self._network.module) else "whole"
        elif self._mode != "whole" and (not self._kept or params.keys() != self._first.keys()):
            self._give_up()
        elif self._mode in ("watch", "wait"):
            again = all(torch.equal(w, self._first[k]) for k, w in params.items())
            self._mode = "wait" if again else "test"  # the same weights would prove nothing
        elif self._mode == "test":
            self._mode = "tail"

    def on(self, number: int, x: Any) -> Callable[[Params], Tensor]:
        """The network's outputs for this chunk, as a function of the draw that was met or of its tangent."""

        def outputs(params: Params) -> Tensor:
            if self._mode == "watch":
                return self._watched(number, params, x)
            if self._mode == "wait" or number not in self._kept:
                return self._network(params, x)
            if self._mode == "tail":
                return self._alone(number, params)
            found, whole = self._tried(number, params), self._network(params, x)
            if found is None or not _same(found, whole):
                self._give_up()
            return whole

        return outputs

    def _give_up(self) -> None:
        self._mode = "whole"
        self._kept.clear()

    def _watched(self, number: int, params: Params, x: Any) -> Tensor:
        """The network's outputs; what the tail was given for them is kept."""
        before = torch.get_rng_state()
        with _watching(self._holders) as calls:
            outputs = self._network(params, x)
        if not torch.equal(torch.get_rng_state(), before):
            self._give_up()
            return outputs
        call = next((calls[m] for m in self._holders if m in calls and calls[m].returned(outputs)), None)
        if call is not None and call.size + sum(kept.size for kept in self._kept.values()) <= _MOST:
            self._kept[number] = call.kept()
            self._holders = [call.module]
        return outputs

    def _tried(self, number: int, params: Params) -> Tensor | None:
        """What the tail makes of a chunk, before the whole network is run on it and could leave it something to read.

        Nothing, if it works only where its network calls it, as within an autocast of the network's.
        """
        try:
            return self._alone(number, params)
        except Exception:
            return None

    def _alone(self, number: int, params: Params) -> Tensor:
        call = self._kept[number]
        return self._network.part(call.module, params, *call.arguments, **call.keywords)


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

    @property
    def size(self) -> float:
        """Bytes of what went in; infinite where that is not made of plain tensors and numbers."""
        return sum(map(_size, _leaves((self.arguments, self.keywords))))

    def kept(self) -> "_Call":
        """The call without its output, and without the memory that its tensors are small parts of."""

        def own(t: Tensor) -> Tensor:
            return t.clone() if t.untyped_storage().nbytes() > t.nbytes else t

        return _Call(self.module, each_tensor(self.arguments, own), each_tensor(self.keywords, own))


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


def _leaves(given: Any) -> Iterator[Any]:
    if isinstance(given, Mapping):
        given = tuple(given.values())
    if isinstance(given, tuple | list):
        for each in given:
            yield from _leaves(each)
    else:
        yield given


def _size(leaf: Any) -> float:
    if isinstance(leaf, Tensor) and leaf.layout == torch.strided and not leaf.is_nested:
        return leaf.nbytes
    return 0.0 if leaf is None or isinstance(leaf, bool | int | float | str) else math.inf


def _same(a: Tensor, b: Tensor) -> bool:
    """To the bit, in values and in tangents."""
    (value, tangent), (other, its) = forward_ad.unpack_dual(a), forward_ad.unpack_dual(b)  # type: ignore[no-untyped-call]
    if (tangent is None) != (its is None) or value.dtype != other.dtype:
        return False
    return torch.equal(value, other) and (tangent is None or torch.equal(tangent, its))


def _compiled(module: nn.Module) -> bool:
    """Whether a part of it comes from torch.compile, which hooks would compile anew."""
    return any("_orig_mod" in name.split(".") for name, _ in module.named_modules())
