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
from itertools import chain
from operator import attrgetter
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

_CPU = torch.device("cpu")
_PLAIN = {Tensor, nn.Parameter}
_dtype, _on_cpu, _shape = map(attrgetter, ("dtype", "is_cpu", "shape"))


def suits(*tensors: Tensor) -> bool:
    """Whether compiled loops can work on the memory of these: float32 on a CPU, and nothing in between.

    It is asked of all parameters at every step, and so are the next: hence calls for whole lists, and no loops.
    """
    if kernels is None or torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    plain = _PLAIN.issuperset(map(type, tensors)) and set(map(_dtype, tensors)) == {torch.float32}
    return plain and all(map(_on_cpu, tensors)) and not any(map(Tensor.is_neg, tensors))


def alike(*streams: Sequence[Tensor]) -> bool:
    """Whether compiled loops can run along these lists: tensors of each place have their numbers in the same order."""
    if not suits(*chain.from_iterable(streams)):
        return False
    first, *others = streams
    if not (all(map(Tensor.is_contiguous, first)) or all(map(dense, first))):
        return False
    shapes, strides = list(map(_shape, first)), list(map(Tensor.stride, first))
    return all(
        list(map(_shape, other)) == shapes
        and (list(map(Tensor.stride, other)) == strides or all(map(_same_order, first, other)))
        for other in others
    )


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


def pass_along(
    loop: Any, streams: Sequence[Sequence[Tensor]], *numbers: float, noise: Sequence[tuple[int, ...]] = ()
) -> None:
    """Run a loop that knows nothing of priors along lists that are `alike`, and along noise that it draws."""
    sizes = [t.numel() for t in streams[0]]
    loop(torch.get_num_threads(), sizes, [], [], (*map(addresses, streams), *noise), numbers)


def scalar(value: float) -> Tensor:
    """What a loop found, as torch's own calls would have returned it."""
    return torch.tensor(value, dtype=torch.float32, device=_CPU)  # infinite where float32 has no such number
