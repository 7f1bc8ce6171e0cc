"""Checkpoints that are there whole or not at all.

A run directory's `checkpoint/` holds `step-NNNNNNNNN.pt` files, each a complete state, written to a temporary name,
forced to disk and renamed; the newest two are kept, and what a killed process left half-written is removed. A file
that cannot be read is passed over for the one before it. Reading never executes code (`weights_only=True`).
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from credent.errors import CheckpointError
from credent.files import write_atomically

_NAME = re.compile(r"step-(\d{9})\.pt")
_MARK = "credent checkpoint 3"
_KEPT = 2


def save(directory: Path, step: int, state: dict[str, Any]) -> None:
    """Write the state after `step` steps, then forget all but the newest two."""
    write_atomically(directory / f"step-{step:09d}.pt", lambda path: torch.save({"mark": _MARK, **_plain(state)}, path))
    for path in _files(directory)[:-_KEPT]:
        path.unlink()
    for path in directory.glob(".step-*.part"):
        path.unlink()


def load(directory: Path) -> dict[str, Any] | None:
    """The newest whole state, or None where there is no checkpoint yet."""
    paths = _files(directory)
    problems = []
    for path in reversed(paths):
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds on a damaged file
            problems.append(f"{path.name}: {(str(error).splitlines() or ['cannot be read'])[0]}")
            continue
        if isinstance(state, dict) and state.get("mark") == _MARK:
            return state
        problems.append(f"{path.name}: not written by this version of credent")
    if problems:
        raise CheckpointError(
            f"no checkpoint in {directory} can be read ({'; '.join(problems)}): start anew in another directory."
        )
    return None


def size(directory: Path) -> int:
    """Bytes of the newest checkpoint, about those of the next; 0 where there is none."""
    return next((path.stat().st_size for path in reversed(_files(directory))), 0)


def size_of(state: Any) -> int:
    """Bytes of the tensors in a state that has not been written yet."""
    if isinstance(state, dict | list | tuple):
        return sum(size_of(each) for each in (state.values() if isinstance(state, dict) else state))
    return state.nbytes if isinstance(state, torch.Tensor) else 0


def _plain(value: Any) -> Any:
    """The same without numpy's scalars, which `weights_only` would refuse to read back."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob("step-*.pt") if _NAME.fullmatch(p.name))
