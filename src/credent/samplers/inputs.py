"""What goes into each layer while it trains: mean and variance by channel, from the forward pass that happens anyway.

    mean_c = (1/n) sum_i h_ic,        variance_c = (1/n) sum_i (h_ic - mean_c)^2

i runs over the batch and over the positions of an image or a sequence. Compiled, both come from one read of h about
each channel's first number, and from a second about the mean where that number was far from it. In torch, both come for
large inputs from one read in parts that stay in the cache, as variance = (1/n) sum_i h_ic^2 - mean_c^2; sums and norms
over positions are many times faster than `torch.var_mean`. Where a mean is so large that this cancels, and where inputs
are so small that calls cost more than numbers, h is centred first. So inputs may have any scale.

Only the first training pass since the last look counts: evaluation, passes without gradients, later passes of the same
step and copies of the network leave no trace.

>>> layer = nn.Linear(1, 1)
>>> inputs = LayerInputs([layer])
>>> _ = layer(torch.tensor([[1.0], [1.0], [3.0], [3.0]]))
>>> inputs.take()[layer]
Moments(mean=tensor([2.]), variance=tensor([1.]), rows=4, positions=1)
"""

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from credent import native

_PART = 2**18  # numbers that are read at a time: the second sum finds them in the cache
_CANCELS = 0.1  # variance / mean^2 under which float32 would lose more than a digit of the variance


@dataclass(frozen=True)
class Moments:
    """Of one layer's inputs, by channel; `rows` of the batch, and `positions` at which each row is read."""

    mean: Tensor
    variance: Tensor
    rows: int
    positions: int


class LayerInputs:
    """Moments of the inputs of linear and convolutional layers, gathered by hooks that end with this object."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        self.watching = True
        self._seen: dict[nn.Module, Moments] = {}
        handles = [layer.register_forward_hook(_Hook(self), with_kwargs=True) for layer in layers]
        weakref.finalize(self, _remove, handles)

    def observe(self, layer: nn.Module, h: Tensor, output: Tensor) -> None:
        """Note the moments of `h`, unless it is empty, or this layer was seen already or is not training."""
        looking = self.watching and layer.training and torch.is_grad_enabled()
        if looking and layer not in self._seen and h.numel():
            self._seen[layer] = moments(layer, h.detach(), output)

    def take(self) -> dict[nn.Module, Moments]:
        """What was seen since the last time."""
        seen, self._seen = self._seen, {}
        return seen


@torch.no_grad()
def moments(layer: nn.Module, h: Tensor, output: Tensor) -> Moments:
    """Moments of `h` over everything but the channels, in the type of the layer's weights."""
    h = h.to(layer.weight.dtype)  # type: ignore[arg-type]  # under autocast
    if isinstance(layer, nn.Linear):
        rows = h.shape[0] if h.ndim > 1 else 1
        positions = h.numel() // h.shape[-1] // rows
        h = h.reshape(-1, h.shape[-1], 1)
    else:
        dimensions = len(layer.kernel_size)  # type: ignore[arg-type]
        h = h.reshape(-1, *h.shape[-dimensions - 1 :]).flatten(2)  # torch lets a single image go without its batch
        rows, positions = h.shape[0], output.shape[-dimensions:].numel()
    if native.suits(h) and (h.is_contiguous() or h.transpose(1, 2).is_contiguous()):
        return Moments(*_compiled(h), rows, positions)
    mean, variance = _in_parts(h) if h.numel() > _PART else _about(h, h.mean((0, 2)))
    return Moments(mean, variance, rows, positions)


def _compiled(h: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of h (n, C, positions) by channel, (C,), from one read, about each channel's first number."""
    count, channels, positions = h.shape
    rows = (count, positions) if h.is_contiguous() else (count * positions, 1)
    mean, variance = h.new_empty(channels), h.new_empty(channels)
    at = mean.data_ptr(), variance.data_ptr()
    native.kernels.moments(torch.get_num_threads(), h.data_ptr(), rows[0], channels, rows[1], *at)
    return mean, variance


def _about(h: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of h (n, C, positions) by channel, (C,), in few calls, about something near the mean."""
    centred = h - near[:, None]
    off = centred.mean((0, 2))
    return near + off, centred.square_().mean((0, 2)).addcmul_(off, off, value=-1).clamp_(min=0)


def _in_parts(h: Tensor) -> tuple[Tensor, Tensor]:
    """The same from one read, unless a mean is so large that its square cancels."""
    count, rows = h.shape[0] * h.shape[2], max(_PART // h[0].numel(), 1)
    sums, norms = h.new_empty(h.shape[:2]), h.new_empty(h.shape[:2])
    for part, total, norm in zip(*(torch.split(each, rows) for each in (h, sums, norms)), strict=True):
        torch.sum(part, 2, out=total)
        torch.linalg.vector_norm(part, dim=2, out=norm)
    mean = sums.sum(0) / count
    variance = (norms.square_().sum(0) / count).addcmul_(mean, mean, value=-1)
    cancels = float((variance - _CANCELS * mean.square()).min()) < 0
    return _about(h, mean) if cancels else (mean, variance)


class _Hook:
    """Tells a `LayerInputs` that is still there; a copied or pickled network gets one that tells nobody."""

    def __init__(self, inputs: LayerInputs) -> None:
        self._inputs = weakref.ref(inputs)

    def __call__(self, layer: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        inputs = self._inputs()
        if inputs is not None:
            inputs.observe(layer, next(iter((*arguments, *keywords.values()))), output)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Silent, ()


class _Silent:
    """The hook in a copy of the network."""

    def __call__(self, *_: Any) -> None:
        pass


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
