"""Squared norms of every example's gradient in one layer, from the layer's inputs and the gradient of its outputs.

With a_l the input and d_l the gradient of the output at position l of one example (a pixel, a token; often one only):

    linear    G = sum_l d_l a_l'          |G|^2 = sum_{l,m} (d_l . d_m) (a_l . a_m)           bias   |sum_l d_l|^2
    conv      the same with the patch that the kernel sees as a_l, within each group
    norm      gain  |sum_l d_l z_l|^2     shift |sum_l d_l|^2                                 z the normalised input

|G|^2 is taken over the matrix G itself or over the two Gram matrices of the right-hand side, whichever multiplies less:
with i inputs, o outputs and L positions the Gram form wins where L (i + o) < i o. A kernel's columns are copied, its
rows are views: an image is read as often as the kernel is wide, not as often as it has entries.

Shapes: inputs and gradients (n, ...), as the layer has them; results (n,) for each attribute of the layer.

>>> layer = nn.Linear(2, 1)
>>> squared_norms(layer, ("weight", "bias"), torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0]]))
{'weight': tensor([100.]), 'bias': tensor([4.])}
"""

import math
from collections.abc import Callable, Collection
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
BatchNorm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

KINDS = (nn.Linear, *_CONVOLUTIONS, *_BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""Layers with a closed form; a subclass may compute something else, and has none."""


def squared_norms(layer: nn.Module, attributes: Collection[str], a: Tensor, d: Tensor) -> dict[str, Tensor]:
    """|d loss_i / d attribute|^2 of every example i, where `d` is the gradient of the summed loss by the output."""
    axes = _parameter_axes(layer, d)
    found = {}
    if "weight" in attributes:
        if isinstance(layer, nn.Linear):
            found["weight"] = _outer(*(t.reshape(len(t), -1, t.shape[-1]).mT for t in (a, d)))
        elif isinstance(layer, _CONVOLUTIONS):
            found["weight"] = _convolution(layer, a, d)
        else:
            found["weight"] = _square(_normalised(layer, a).mul_(d), axes)
    if "bias" in attributes:
        found["bias"] = _square(d, axes)
    return found


def _parameter_axes(layer: nn.Module, d: Tensor) -> tuple[int, ...]:
    """The axes of an output along which the layer has parameters of their own; over the others it shares them."""
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        return tuple(range(d.ndim - len(layer.normalized_shape), d.ndim))
    return (d.ndim - 1,) if isinstance(layer, nn.Linear) else (1,)


def _square(d: Tensor, axes: tuple[int, ...]) -> Tensor:
    """|sum over shared axes|^2 of each row."""
    shared = [axis for axis in range(1, d.ndim) if axis not in axes]
    if shared:
        d = d.sum(shared)
    return d.reshape(len(d), -1).square().sum(1)


def _normalised(layer: nn.Module, a: Tensor) -> Tensor:
    """What the gain multiplies."""
    if isinstance(layer, _BATCH_NORMS):
        return functional.batch_norm(a, layer.running_mean, layer.running_var, eps=layer.eps)
    if isinstance(layer, nn.GroupNorm):
        return functional.group_norm(a, layer.num_groups, eps=layer.eps)
    if isinstance(layer, nn.LayerNorm):
        return functional.layer_norm(a, layer.normalized_shape, eps=layer.eps)
    assert isinstance(layer, nn.RMSNorm)
    return functional.rms_norm(a, list(layer.normalized_shape), eps=layer.eps)


def _outer(a: Tensor, d: Tensor) -> Tensor:
    """|sum_l d_l a_l'|^2 for a (n, i, L) and d (n, o, L)."""
    if gram_is_cheaper(a.shape[1], d.shape[1], a.shape[2]):
        return (torch.bmm(a.mT, a) * torch.bmm(d.mT, d)).sum((1, 2))
    return torch.bmm(d, a.mT).square().sum((1, 2))


def gram_is_cheaper(inputs: int, outputs: int, positions: int) -> bool:
    """Whether L^2 (i + o) multiplications are fewer than L i o."""
    return positions * (inputs + outputs) < inputs * outputs


def _convolution(layer: Convolution, a: Tensor, d: Tensor) -> Tensor:
    n, groups = len(a), layer.groups
    d = d.reshape(n * groups, d.shape[1] // groups, -1)
    rows = _rows(layer, a)
    first, *others = layer.kernel_size
    inputs = layer.in_channels // groups * math.prod(others)
    if gram_is_cheaper(inputs * first, d.shape[1], d.shape[2]):
        patches = torch.cat([rows(i) for i in range(first)], 1)
        each = (torch.bmm(patches.mT, patches) * torch.bmm(d.mT, d)).sum((1, 2))
    else:
        each = torch.bmm(d, rows(0).mT).square().sum((1, 2))
        for i in range(1, first):
            each += torch.bmm(d, rows(i).mT).square().sum((1, 2))
    return each.reshape(n, groups).sum(1)


def _rows(layer: Convolution, a: Tensor) -> Callable[[int], Tensor]:
    """By row i of the kernel, all that this row sees: (n groups, channels of a group x columns of the kernel, L)."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padding = layer._reversed_padding_repeated_twice
    a = functional.pad(a, padding, mode) if any(padding) else a
    last = a.ndim
    for axis, (size, step, spread) in enumerate(zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), 2):
        if axis > 2:
            a = a.unfold(axis, (size - 1) * spread + 1, step)[..., ::spread]
    # (n, channels, rows, *columns, *kernel columns): what a row of the kernel multiplies goes next to the channels
    a = a.permute(0, 1, *range(last, a.ndim), *range(2, last)).contiguous()
    at = a.ndim - (last - 2)
    size, step, spread = layer.kernel_size[0], layer.stride[0], layer.dilation[0]
    height = (a.shape[at] - (size - 1) * spread - 1) // step + 1

    def row(i: int) -> Tensor:
        seen = a.movedim(at, 0)[i * spread : i * spread + step * (height - 1) + 1 : step].movedim(0, at)
        return seen.reshape(len(a) * layer.groups, -1, seen.shape[at:].numel())

    return row
