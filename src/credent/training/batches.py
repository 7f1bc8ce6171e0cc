"""What a loader hands out, taken apart: inputs x as the network takes them, and targets y.

    (x, y)   ·   (x1, x2, ..., y)   ·   {"labels": y, **keywords}

>>> x, y = split((torch.zeros(2, 1), torch.zeros(2, 3), torch.ones(2)))
>>> type(x).__name__, y
('tuple', tensor([1., 1.]))
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from credent.errors import InputError


def split(batch: Any) -> tuple[Any, Tensor]:
    """Inputs and targets of one batch."""
    x: Any = None
    y: Any = None
    if isinstance(batch, Mapping) and "labels" in batch:
        x, y = {k: v for k, v in batch.items() if k != "labels"}, batch["labels"]
    elif isinstance(batch, tuple | list) and len(batch) >= 2:
        x, y = (batch[0] if len(batch) == 2 else tuple(batch[:-1])), batch[-1]
    if not isinstance(y, Tensor):
        raise InputError(
            f"the loader gave {type(batch).__name__}; training needs (x, y), (x1, x2, ..., y) or a dict with 'labels'."
        )
    if y.ndim == 0 or y.shape[0] == 0:
        raise InputError(
            f"the loader gave targets of shape {tuple(y.shape)}, and a batch holds at least one row: its first axis"
            " counts rows, as DataLoader(dataset, batch_size=32) gives them."
        )
    return x, y


def each(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(x, Mapping):
        return {k: each(v, change) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return tuple(each(v, change) for v in x)
    return change(x) if isinstance(x, Tensor) else x


def rows(x: Any, index: Tensor) -> Any:
    """These rows of every tensor."""
    return each(x, lambda t: t[index.to(t.device)])


def to(x: Any, device: torch.device) -> Any:
    """Every tensor on this device."""
    return each(x, lambda t: t.to(device, non_blocking=True))


def first_bad(x: Any) -> str | None:
    """What is not finite in x, in words, or None."""
    found: list[str] = []

    def look(t: Tensor) -> Tensor:
        if t.is_floating_point() and not bool(t.isfinite().all()):
            row = int((~t.isfinite()).reshape(t.shape[0], -1).any(1).nonzero()[0])
            found.append(f"row {row} of a tensor {tuple(t.shape)}")
        return t

    each(x, look)
    return found[0] if found else None


def joined(loader: Iterable[Any]) -> tuple[Any, Tensor]:
    """All batches of a loader as one."""
    parts = [split(batch) for batch in loader]
    if not parts:
        raise InputError("the validation loader is empty: give it data, or leave val= out.")
    return _cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def steps(loader: Any, epochs: int, accumulate: int) -> int | None:
    """Optimiser steps of so many epochs, or None where the loader does not know its length."""
    try:
        return epochs * -(-len(loader) // accumulate)
    except TypeError:  # a generator, or a DataLoader over an IterableDataset
        return None


def _cat(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {k: torch.cat([part[k] for part in parts]) for k in parts[0]}
    if isinstance(parts[0], tuple):
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))
    return torch.cat(list(parts))
