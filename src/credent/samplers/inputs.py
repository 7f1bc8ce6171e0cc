"""What goes into each layer while it trains: mean and variance by channel, from the forward pass that happens anyway.

    mean_c = (1/n) sum_i h_ic,        variance_c = (1/n) sum_i (h_ic - mean_c)^2

i runs over the batch and over the positions of an image or a sequence. Both come from one read of h, in parts, about
the mean of the first part, k: variance = (1/n) sum_i (h_ic - k_c)^2 - (mean_c - k_c)^2. The mean of a share 1/p of the
rows has (mean - k)^2 < p variance, so little cancels, whatever the scale of the inputs. Norms over positions are many
times faster than `torch.var_mean`.

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

_PART = 2**18  # numbers that are centred at a time: they stay in the cache, and need no fresh memory


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
        """Note the moments of `h`, unless this layer was seen already or is not training."""
        if self.watching and layer.training and torch.is_grad_enabled() and layer not in self._seen:
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
    count = h.shape[0] * h.shape[2]
    parts = torch.split(h, max(_PART // (h.shape[1] * h.shape[2]), 1))
    near = parts[0].mean((0, 2), keepdim=True)  # variance is taken about it, and mended: h is read only once
    first, second = [], []
    for part in parts:
        centred = part - near
        first.append(centred.sum((0, 2)))
        second.append(torch.linalg.vector_norm(centred, dim=2).square_().sum(0))
    off = torch.stack(first).sum(0) / count
    variance = torch.stack(second).sum(0) / count - off.square()
    return Moments(near.flatten() + off, variance.clamp_(min=0), rows, positions)


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
