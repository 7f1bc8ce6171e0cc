"""Passes over all weights in compiled loops, where the installation found a C compiler.

What torch does in ten calls and as many vectors, a loop in C does in one pass, on the threads of torch's own pool.
Every loop has a twin in torch, in the file that calls it: that says what it computes, serves other types and devices,
and runs where nothing was compiled. `kernels` is None there, and steps take longer; nothing else changes, but that
normal numbers are torch's own, so that a seed draws others.

>>> kernels is None or callable(kernels.normal)
True
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

kernels: Any
try:
    from credent.native import _kernels as kernels
except ImportError:
    kernels = None

_PLAIN = (Tensor, nn.Parameter)


def suits(*tensors: Tensor) -> bool:
    """Whether compiled loops can work on the memory of these: float32 on a CPU, and nothing in between."""
    if kernels is None or torch.compiler.is_compiling():
        return False
    return all(t.dtype is torch.float32 and t.is_cpu and type(t) in _PLAIN for t in tensors)


def alike(*streams: Sequence[Tensor]) -> bool:
    """Whether compiled loops can run along these lists: tensors of each place have their numbers in the same order."""
    if not suits(*(t for stream in streams for t in stream)):
        return False
    first, *others = streams
    strides = [t.stride() for t in first]
    return all(map(dense, first)) and all([t.stride() for t in other] == strides for other in others)


def dense(t: Tensor) -> bool:
    """Whether its numbers fill a stretch of memory."""
    return t.is_contiguous() or (t.ndim == 4 and t.is_contiguous(memory_format=torch.channels_last))


def addresses(tensors: Sequence[Tensor]) -> list[int]:
    """Where their numbers begin."""
    return [t.data_ptr() for t in tensors]


def pass_along(loop: Any, streams: Sequence[Sequence[Tensor]], *numbers: float) -> None:
    """Run a loop that knows nothing of priors along lists of tensors that are `alike`."""
    sizes = [t.numel() for t in streams[0]]
    loop(torch.get_num_threads(), sizes, [], [], tuple(map(addresses, streams)), numbers)


def scalar(value: float) -> Tensor:
    """What a loop found, as torch's own calls would have returned it."""
    return torch.full((), value, dtype=torch.float32, device="cpu")
