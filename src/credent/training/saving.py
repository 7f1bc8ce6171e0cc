"""A posterior as one safetensors file: everything that prediction needs, and nothing that executes.

The file holds the objective's tensors by their names in its `state_dict` (the network's parameters and buffers, the
scales, a learnt noise), or for a chain every draw under `draws/`. Its bytes depend on nothing but these numbers.

    save(objective, "posterior.safetensors");   posterior = load(objective, "posterior.safetensors")
"""

import json
import os
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from credent.errors import CheckpointError
from credent.families import Draws, Posterior
from credent.files import write_atomically
from credent.objectives import Objective

_DRAWS = "draws/"


def save(objective: Objective, path: str | os.PathLike[str], draws: Draws | None = None) -> None:
    """Write the posterior of a trained objective, or the draws of a chain over it."""
    tensors = _tensors(objective)
    if draws is not None:
        for i in range(len(draws)):
            tensors |= {f"{_DRAWS}{i}/{k}": w.contiguous() for k, w in draws[i].items()}
    about = {
        "credent": 1,
        "objective": type(objective).__name__,
        "family": type(objective.posterior).__name__,
    }
    # one metadata entry: several would be written in no fixed order
    write_atomically(Path(path), lambda p: save_file(tensors, p, metadata={"credent": json.dumps(about)}))


def load(objective: Objective, path: str | os.PathLike[str]) -> Posterior:
    """Fill an objective built as the saved one was, and return its posterior."""
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("credent", "null"))
            tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118  (not a dict)
    except FileNotFoundError:
        raise CheckpointError(f"there is no {path}; a finished run has one, an unfinished one can --resume.") from None
    except Exception as error:
        raise CheckpointError(f"{path} is not a whole safetensors file ({error}).") from error
    if not isinstance(about, dict) or about.get("credent") != 1:
        raise CheckpointError(f"{path} holds tensors, but not a posterior that this version of credent wrote.")
    drawn: dict[int, dict[str, Tensor]] = {}
    for key in [k for k in tensors if k.startswith(_DRAWS)]:
        index, name = key.removeprefix(_DRAWS).split("/", 1)
        drawn.setdefault(int(index), {})[name] = tensors.pop(key)
    own = _tensors(objective)
    kinds = [about["objective"], about["family"]], [type(objective).__name__, type(objective.posterior).__name__]
    if kinds[0] != kinds[1] or own.keys() != tensors.keys():
        different = sorted(own.keys() ^ tensors.keys())[:4]
        raise CheckpointError(
            f"{path} is of {' with '.join(kinds[0])} and does not fit this {' with '.join(kinds[1])}"
            f" (they differ in {', '.join(different) or 'their kind'}): build the objective as the saved one was."
        )
    shapes = [k for k in own if own[k].shape != tensors[k].shape]
    if shapes:
        raise CheckpointError(f"{path} is of another network: {shapes[0]} has shape {tuple(tensors[shapes[0]].shape)}.")
    objective.load_state_dict(tensors | {k: v for k, v in objective.state_dict().items() if k not in tensors})
    return Draws([drawn[i] for i in sorted(drawn)]) if drawn else objective.posterior


def _tensors(objective: Objective) -> dict[str, Tensor]:
    """The state without positions of random streams, each tensor of its own memory."""
    state: dict[str, Any] = objective.state_dict()
    return {k: v.detach().cpu().contiguous().clone() for k, v in state.items() if not k.endswith("_extra_state")}
