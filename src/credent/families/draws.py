"""A posterior that is a set of draws, in memory or streamed from disk.

    q(w) = (1/n) sum_i delta(w - w_i)

On disk every draw is a safetensors file of its own, written whole or not at all, so a chain that is cut short keeps
each finished draw. Reading is memory-mapped: a thousand draws of a large network cost the memory of one. Maps of small
draws, 256 MB of them at most, are kept for the next prediction, unless somebody wrote to their tensors: making a map
takes as long as reading it.

>>> q = Draws([{"w": torch.tensor([0.0])}, {"w": torch.tensor([2.0])}])
>>> q
Draws(2 draws)
>>> q.mean()["w"], q.stddev()["w"]
(tensor([1.]), tensor([1.]))
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from credent.errors import CheckpointError, InputError
from credent.families.posterior import Posterior
from credent.files import write_atomically
from credent.network import Params

_KEPT_BYTES, _KEPT_MAPS = 2**28, 1024


class Draws(Posterior):
    """An equally weighted set of weights; iterate it, index it, or hand it to `predict`.

    draws: the weights themselves, or the directory of a run that holds them, `Draws("runs/x/draws")`.
    """

    def __init__(self, draws: "Sequence[Params] | str | os.PathLike[str]") -> None:
        if isinstance(draws, str | os.PathLike):
            draws = DrawFiles(draws)
        if len(draws) == 0:
            raise InputError("a posterior of draws needs at least one; let the chain run longer or thin it less.")
        self._draws: Sequence[Params] = draws

    def __len__(self) -> int:
        return len(self._draws)

    def __repr__(self) -> str:
        return f"Draws({len(self)} draws{'' if self.directory is None else f' in {self.directory}'})"

    def __getitem__(self, index: int) -> Params:
        return self._draws[index]

    @property
    def directory(self) -> Path | None:
        """Where the draws lie, one file each; None where they are in memory."""
        return self._draws.directory if isinstance(self._draws, DrawFiles) else None

    def mean(self) -> Params:
        """Mean over the draws, in one pass."""
        return self._moments()[0]

    def stddev(self) -> Params:
        """Standard deviation over the draws (of the set itself, so divided by n)."""
        return {k: v.sqrt() for k, v in self._moments()[1].items()}

    def sample(self, n: int, seed: int | None = None) -> Params:
        """n of the draws, stacked in front."""
        if n > len(self):
            raise InputError(f"sample({n}): there are {len(self)} draws; ask for as many at most.")
        return super().sample(n, seed)

    def draws(self, n: int | None = None, seed: int | None = None) -> Iterator[Params]:
        """All draws in order; with n, that many of them: evenly spaced, or with a seed chosen at random."""
        count = len(self)
        if n is None or n >= count:
            chosen = list(range(count))
        elif seed is None:
            chosen = [i * count // n for i in range(n)]
        else:
            chosen = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:n].sort().values.tolist()
        for index in chosen:
            yield self._draws[index]

    def _moments(self) -> tuple[Params, Params]:
        mean: Params = {}
        square: Params = {}
        for i, params in enumerate(self._draws, 1):
            for k, w in params.items():
                if i == 1:
                    mean[k], square[k] = w.clone(), torch.zeros_like(w)
                    continue
                delta = w - mean[k]
                mean[k] += delta / i
                square[k] += delta * (w - mean[k])
        return mean, {k: v / len(self) for k, v in square.items()}


class DrawFiles(Sequence[Params]):
    """Draws in a directory, one memory-mapped file each, in the order in which they were added.

    `len` and a walk through all of them look at the directory; an index is into what was last seen there, so that
    reading one draw of thousands does not list them all. `count` leaves out all but the first so many.
    """

    _NAME = re.compile(r"(\d{8})\.safetensors")

    def __init__(
        self, directory: str | os.PathLike[str], count: int | None = None, device: str | torch.device = "cpu"
    ) -> None:
        self.directory = Path(directory)
        self._count, self._device = count, torch.device(device)
        self._seen: list[Path] | None = None
        self._form: _Form | None = None
        self._maps: dict[Path, tuple[tuple[int, ...], Params]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_maps": {}}  # a map belongs to a process

    def _files(self) -> list[Path]:
        found = sorted(p for p in self.directory.glob("*.safetensors") if self._NAME.fullmatch(p.name))
        self._seen = found[: self._count]
        return self._seen

    def __len__(self) -> int:
        return len(self._files())

    def __iter__(self) -> Iterator[Params]:
        return map(self._read, self._files())

    def __getitem__(self, index: int) -> Params:  # type: ignore[override]
        return self._read((self._files() if self._seen is None else self._seen)[index])

    def _read(self, path: Path) -> Params:
        try:
            found = os.stat(path)
            version = (found.st_ino, found.st_mtime_ns, found.st_size)
            known, params = self._maps.get(path, ((), {}))
            if known != version or any(w._version for w in params.values()):
                params = self._map(path)
                if path in self._maps or len(self._maps) < min(_KEPT_MAPS, _KEPT_BYTES // max(1, found.st_size)):
                    self._maps[path] = (version, params)
            return dict(params) if self._device.type == "cpu" else {k: w.to(self._device) for k, w in params.items()}
        except Exception as error:
            raise CheckpointError(
                f"{path} is not a whole draw ({error}); delete it to go on with the others."
            ) from error

    def _map(self, path: Path) -> Params:
        params = self._form.read(path) if self._form is not None else None
        if params is None:
            self._form = _Form(path)
            params = self._form.read(path)
            assert params is not None  # it has its own form
        return params

    def append(self, params: Params) -> None:
        """Add one draw after the last; it is there whole or not at all."""
        numbers = self.numbers()
        self.write(numbers[-1] + 1 if numbers else 0, params)  # not the count: a broken draw may be deleted

    def write(self, number: int, params: Params) -> None:
        """The draw with this number, in the place of the one that had it."""
        tensors: dict[str, Tensor] = {k: w.detach().cpu().contiguous().clone() for k, w in params.items()}
        path = self.directory / f"{number:08d}.safetensors"
        write_atomically(path, lambda temporary: save_file(tensors, temporary))
        if self._seen and self._seen[-1] < path:
            self._seen.append(path)
        else:
            self._seen = None

    def numbers(self) -> list[int]:
        """The numbers of the draws, as they were last seen; one that was deleted leaves a gap."""
        return [int(path.stem) for path in (self._files() if self._seen is None else self._seen)]

    def truncate(self, number: int) -> None:
        """Keep the draws before the one with this number."""
        for path in self._files():
            if int(path.stem) >= number:
                path.unlink()
        self._seen = None


class _Form:
    """The header of a draw's file. A chain's draws have the same one, and what was checked once is only compared."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, framework="pt") as file:  # refuses what is not whole
            tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118  (not a dict)
        with path.open("rb") as file:
            begin = file.read(8)
            self.header = begin + file.read(int.from_bytes(begin, "little"))
            self.size = os.fstat(file.fileno()).st_size
        said = json.loads(self.header[8:])
        self.tensors = {
            k: ([len(self.header) + at for at in said[k]["data_offsets"]], w.dtype, w.shape) for k, w in tensors.items()
        }

    def read(self, path: Path) -> Params | None:
        """The tensors, memory-mapped; None where the file has another form."""
        with path.open("rb") as file:
            if file.read(len(self.header)) != self.header or os.fstat(file.fileno()).st_size != self.size:
                return None
        whole = torch.from_file(str(path), shared=False, size=self.size, dtype=torch.uint8)  # keeps no file open
        return {k: whole[at:end].view(dtype).view(shape) for k, ((at, end), dtype, shape) in self.tensors.items()}
