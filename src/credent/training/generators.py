"""Every generator that training draws from, as plain numbers that a checkpoint can hold.

The objective's and the sampler's own streams are in their state dicts; here are the global ones (torch, numpy,
Python) and those that a DataLoader shuffles with. Restoring them and reading the same batches again gives the same run.

>>> torch.manual_seed(0); state = capture([]); a = torch.rand(1)
<torch._C.Generator object at ...>
>>> restore(state, []); bool(torch.rand(1) == a)
True
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader


def samplers(loader: Any) -> list[Any]:
    """What decides the order of a DataLoader: its samplers, and those that they hold."""
    if not isinstance(loader, DataLoader):
        return []
    outer = [loader.sampler, loader.batch_sampler]
    return [*outer, *(getattr(each, "sampler", None) for each in outer)]  # a BatchSampler holds the one that shuffles


def of_loader(loader: Any) -> list[torch.Generator]:
    """The generators inside a DataLoader: its own and those of its samplers."""
    found = [getattr(each, "generator", None) for each in [loader, *samplers(loader)]]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def capture(generators: Sequence[torch.Generator]) -> dict[str, Any]:
    """The state of the global generators and of these."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002  (what users' code draws from)
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
        "loader": [g.get_state() for g in generators],
    }


def restore(state: dict[str, Any], generators: Sequence[torch.Generator]) -> None:
    """Put the state that `capture` saw back."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    for generator, own in zip(generators, state["loader"], strict=True):
        generator.set_state(own)
