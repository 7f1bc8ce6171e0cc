"""A posterior as one safetensors file: everything that prediction needs, and nothing that executes.

The file holds the objective's tensors by their names in its `state_dict` (the network's parameters and buffers, the
scales, a learnt noise, what a prior has learnt), without what a prior remembers while training. A prior that changes
what weights are drawn from is named in the file, and must be the same where it is loaded. The draws of a chain lie
beside it in `draws/`, a file each, and are read one at a time when they are asked for; the file says how many belong to
it. Its bytes depend on nothing but these numbers.

    save(objective, "posterior.safetensors");   posterior = load(objective, "posterior.safetensors")
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from credent.errors import CheckpointError, InputError
from credent.families import Draws, Posterior
from credent.families.draws import DrawFiles
from credent.files import write_atomically
from credent.objectives import Objective
from credent.training.mixing import posterior_of

_TEMPERATURE = "likelihood.temperature"
_DRAWS = "draws"  # the directory beside the file


def save(objective: Objective, path: str | os.PathLike[str], draws: Draws | None = None) -> None:
    """Write the posterior of a trained objective, with the draws of a chain over it in `draws/` beside the file."""
    _check_objective(
        objective,
        "save(objective, path)",
        "; a mixture has a file for each member's, and a chain's draws are its third",
    )
    tensors = _tensors(objective)
    about: dict[str, Any] = {
        "credent": 1,
        "objective": type(objective).__name__,
        "family": type(objective.posterior).__name__,
        "likelihood": type(objective.likelihood).__name__,
    }
    if objective.penalty.changes_q:
        about["prior"] = objective.described
    if draws is not None and not isinstance(draws, Draws):
        raise InputError(
            f"save(objective, path, draws) keeps the draws of a chain, and here is a {type(draws).__name__}. Of a"
            " mixture each member's objective is saved to a file of its own: Mixture([load(a, 'a.safetensors'), ...])."
        )
    if draws is not None:
        about["draws"] = len(draws)
        _write_draws(draws, Path(path).parent / _DRAWS)
    # one metadata entry: several would be written in no fixed order
    write_atomically(Path(path), lambda p: save_file(tensors, p, metadata={"credent": json.dumps(about)}))


def load(objective: Objective, path: str | os.PathLike[str]) -> Posterior:
    """Fill an objective built as the saved one was, and return its posterior."""
    _check_objective(objective, "load(objective, path)")
    if Path(path).is_dir():
        raise InputError(f"{path} is a directory: the posterior of a run is {Path(path) / 'posterior.safetensors'}.")
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
    own = _tensors(objective)
    if _TEMPERATURE in own:  # files from before there was one
        tensors.setdefault(_TEMPERATURE, torch.ones(()))
    there = " with ".join(str(about.get(kind)) for kind in ("objective", "family", "likelihood"))
    here = " with ".join(type(each).__name__ for each in (objective, objective.posterior, objective.likelihood))
    if there != here or own.keys() != tensors.keys():
        different = sorted(own.keys() ^ tensors.keys())[:4]
        raise CheckpointError(
            f"{path} is of {there} and does not fit this {here}"
            f" (they differ in {', '.join(different) or 'their kind'}): build the objective as the saved one was."
        )
    prior = objective.described if objective.penalty.changes_q else None
    if about.get("prior") != prior:
        raise CheckpointError(
            f"{path} has weights drawn from what a prior makes of q ({about.get('prior') or 'q itself'}), and this"
            f" objective ({prior or 'q itself'}) would draw them from another distribution: build it with the prior"
            " that the saved one had."
        )
    shapes = [k for k in own if own[k].shape != tensors[k].shape]
    if shapes:
        raise CheckpointError(f"{path} is of another network: {shapes[0]} has shape {tuple(tensors[shapes[0]].shape)}.")
    drawn = None if about.get("draws") is None else _find_draws(Path(path), about["draws"], objective)
    objective.load_state_dict(tensors | {k: v for k, v in objective.state_dict().items() if k not in tensors})
    return objective.posterior if drawn is None else posterior_of(objective, drawn)


def recall_temperature(objective: Objective, path: Path) -> None:
    """Set the temperature that a file of this very posterior has; one of other weights, or none, has nothing to say."""
    own = _tensors(objective)
    try:
        with safe_open(path, framework="pt") as file:
            theirs = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118  (not a dict)
    except Exception:  # whatever is wrong with it, it is written anew
        return
    rest = own.keys() - {_TEMPERATURE}
    if _TEMPERATURE in own and theirs.keys() == own.keys() and all(torch.equal(own[k], theirs[k]) for k in rest):
        objective.likelihood.get_buffer("temperature").copy_(theirs[_TEMPERATURE])


def _check_objective(given: object, call: str, more: str = "") -> None:
    if not isinstance(given, Objective):
        kind = type(given).__name__
        raise InputError(f"{call} takes the objective, such as VI or MAP, and here is a {kind}{more}.")


def _write_draws(draws: Draws, directory: Path) -> None:
    """Each draw to a file of its own, unless that is where they are."""
    if draws.directory is not None and draws.directory.resolve() == directory.resolve():
        return
    files = DrawFiles(directory)
    if len(files) > 0:
        raise InputError(
            f"{directory} already holds {len(files)} draws of another posterior: save this one to a directory of its"
            " own, or delete those."
        )
    for params in draws.draws():
        files.append(params)


def _find_draws(path: Path, count: int, objective: Objective) -> DrawFiles:
    """The draws that belong to a posterior file, none of them read but the first."""
    params = objective.layout.params()
    files = DrawFiles(path.parent / _DRAWS, count, objective.layout.first().device)
    if len(files) < count:
        raise CheckpointError(
            f"{path} has {count} draws, and {files.directory} holds {len(files)}: the directory belongs to the file, so"
            f" copy it along. What is left can be used as cr.families.Draws({str(files.directory)!r})."
        )
    first = {k: tuple(w.shape) for k, w in files[0].items()}
    if first != {k: tuple(p.shape) for k, p in params.items()}:
        raise CheckpointError(f"{files.directory} holds draws of another network than {path}: give each its own.")
    return files


def _tensors(objective: Objective) -> dict[str, Tensor]:
    """The state without positions of random streams and the penalty's memory, each tensor of its own memory."""
    state: dict[str, Any] = objective.state_dict()
    memory = {f"penalty.{k}" for k, _ in objective.penalty.named_buffers()}
    kept = {k: v for k, v in state.items() if not k.endswith("_extra_state") and k not in memory}
    return {k: v.detach().cpu().contiguous().clone() for k, v in kept.items()}
