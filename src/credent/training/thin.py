"""Which weights of a run are kept as draws, and where.

    steps t with  t > after * T  and  (t - ceil(after * T)) divisible by `every`,   t = 1 ... T

>>> [t for t in range(1, 11) if Thin(after=0.5, every=2).keeps(t, total=10)]
[7, 9]
>>> Thin(after=0.5, every=2).count(total=10)
2
"""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from credent.errors import BudgetError, CredentError, InputError
from credent.families.draws import DrawFiles
from credent.layout import Layout
from credent.network import Params


@dataclass(frozen=True)
class Thin:
    """Keep the weights after a share of the run, then after every so many steps; refuse more than `max_bytes`."""

    after: float = 0.5
    every: int = 100
    max_bytes: int = 4 * 2**30

    def __post_init__(self) -> None:
        if not 0 <= self.after < 1 or self.every < 1:
            raise InputError(f"Thin(after={self.after}, every={self.every}): needs a share in [0, 1) and every >= 1.")

    def keeps(self, step: int, total: int) -> bool:
        """Whether the weights after this step (counted from 1) are a draw."""
        beyond = step - math.ceil(self.after * total)
        return beyond > 0 and beyond % self.every == 0

    def count(self, total: int) -> int:
        """How many draws a run of `total` steps gives."""
        return (total - math.ceil(self.after * total)) // self.every

    def check(self, total: int, bytes_per_draw: int) -> None:
        """Refuse, before anything runs, what would give no draw or too many bytes of them."""
        count = self.count(total)
        if count == 0:
            raise InputError(
                f"Thin(after={self.after}, every={self.every}) keeps no draw of a run of {total} steps: run longer,"
                f" or write every={max(1, (total - math.ceil(self.after * total)) // 10)}."
            )
        if count * bytes_per_draw > self.max_bytes:
            fewer = math.ceil(count * bytes_per_draw / self.max_bytes) * self.every
            raise BudgetError(
                f"{count} draws of {bytes_per_draw:,} bytes are {count * bytes_per_draw:,} bytes, and Thin allows"
                f" {self.max_bytes:,}: write Thin(every={fewer}), or allow more with max_bytes=."
            )


class Kept:
    """The draws of a run: in memory, or in its directory's `draws/`, a file each."""

    def __init__(self, thin: Thin, total: int | None, layout: Layout, run_dir: Path | None) -> None:
        if total is None:
            raise InputError("keep= counts steps, and this loader has no length: say steps= instead of epochs=.")
        self.thin, self._total, self._layout, self._run_dir = thin, total, layout, run_dir
        self._bytes = sum(p.numel() * p.element_size() for p in layout.params().values())
        thin.check(total, self._bytes)
        self.draws: list[Params] | DrawFiles = []
        if run_dir is not None:
            self.draws = DrawFiles(run_dir / "draws", device=layout.first().device)

    def check_disk(self, done: int) -> None:
        """Refuse, before anything runs, what the disk has no room for; `done` draws are there already."""
        if self._run_dir is None:
            return
        need = self._missing(done)
        path = self._run_dir.absolute()
        there = next(p for p in (path, *path.parents) if p.exists())
        free = shutil.disk_usage(there).free
        if need > free:
            more = math.ceil(need / max(free, 1)) * self.thin.every
            raise BudgetError(
                f"{self.thin.count(self._total) - done} draws of {self._bytes:,} bytes are {need:,} bytes, and the disk"
                f" of {self._run_dir} has {free:,} free: write Thin(every={more}), free some space, or choose a run_dir"
                " on another disk."
            )

    def due(self, step: int) -> bool:
        """Whether the weights after this step are to be kept."""
        return self.thin.keeps(step, self._total)

    def add(self) -> None:
        """Keep the weights as they are now."""
        try:
            self.draws.append({k: p.detach().clone() for k, p in self._layout.params().items()})
        except CredentError as error:
            done = len(self.draws)
            raise CredentError(
                f"{error} The {done} draws that are finished are whole. The others need {self._missing(done):,} bytes:"
                f" when they are free, fit(..., run_dir={str(self._run_dir)!r}, resume=True) goes on; without them,"
                f" cr.families.Draws('{self._run_dir}/draws') is what there is."
            ) from error

    def truncate(self, count: int) -> None:
        """Keep the first `count` draws: those that a checkpoint knows of."""
        assert isinstance(self.draws, DrawFiles)  # memory does not outlive a run
        self.draws.truncate(count)

    def _missing(self, done: int) -> int:
        return (self.thin.count(self._total) - done) * self._bytes
