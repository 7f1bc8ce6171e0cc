"""Passes over all weights in compiled loops, where the installation found a C compiler.

What torch does in ten calls and as many vectors, a loop in C does in one pass, on the threads of torch's own pool.
Every loop has a twin in torch, in the file that calls it: that says what it computes, serves other types and devices,
and runs where nothing was compiled. `kernels` is None there, and steps take longer; nothing else changes, but that
normal numbers are torch's own, so that a seed draws others.

>>> kernels is None or callable(kernels.normal)
True
"""

import hashlib
import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def sources(folder: Path) -> str:
    """A digest of what loops are compiled from; setup.py leaves one in the module, so that a stale one is noticed."""
    texts = [path.read_bytes() for path in sorted(folder.glob("*.[ch]"))]
    return hashlib.sha256(b"".join(texts)).hexdigest() if texts else ""


def _loaded() -> Any:
    try:
        found = importlib.import_module("credent.native._kernels")
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        warnings.warn(f"credent's compiled loops do not load ({error}): torch's own calls are used.", stacklevel=2)
        return None
    here = sources(Path(__file__).parent)
    if here and here != found.SOURCES:
        warnings.warn(
            "credent's compiled loops are of other sources than those beside them, so torch's own calls are used:"
            " build them again with `pip install -e .` in the project's folder.",
            stacklevel=2,
        )
        return None
    return found


kernels: Any = _loaded()

_PLAIN = (Tensor, nn.Parameter)


def suits(*tensors: Tensor) -> bool:
    """Whether compiled loops can work on the memory of these: float32 on a CPU, and nothing in between."""
    if kernels is None or torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(t.dtype is torch.float32 and t.is_cpu and type(t) in _PLAIN and not t.is_neg() for t in tensors)


def alike(*streams: Sequence[Tensor]) -> bool:
    """Whether compiled loops can run along these lists: tensors of each place have their numbers in the same order.

    It is asked at every step, and written so as to take little of it.
    """
    if not suits(*(t for stream in streams for t in stream)):
        return False
    first, *others = streams
    for k, t in enumerate(first):
        strides = t.stride()
        if not dense(t):
            return False
        for other in others:
            if not t.is_same_size(other[k]) or (other[k].stride() != strides and not _same_order(t, other[k])):
                return False
    return True


def dense(t: Tensor) -> bool:
    """Whether its numbers fill a stretch of memory."""
    return t.is_contiguous() or (t.ndim == 4 and t.is_contiguous(memory_format=torch.channels_last))


def _same_order(a: Tensor, b: Tensor) -> bool:
    """Along a dimension of one number any stride will do."""
    longer = [k for k, size in enumerate(a.shape) if size > 1]
    return [a.stride(k) for k in longer] == [b.stride(k) for k in longer]


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
