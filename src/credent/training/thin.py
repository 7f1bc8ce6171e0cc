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

from credent.errors import BudgetError, CheckpointError, CredentError, InputError
from credent.families.draws import DrawFiles
from credent.layout import Layout
from credent.network import Params
from credent.training import checkpoint


@dataclass(frozen=True)
class Thin:
    """Keep the weights after a share of the run, then after every so many steps; refuse more than `max_bytes`."""

    after: float = 0.5
    every: int = 100
    max_bytes: int = 4 * 2**30

    def __post_init__(self) -> None:
        if not 0 <= self.after < 1 or self.every < 1:
            raise InputError(f"Thin(after={self.after}, every={self.every}): needs a share in [0, 1) and every >= 1.")

    def begin(self, total: int) -> int:
        """The step after which a run of `total` steps begins to count towards its first draw."""
        return math.ceil(self.after * total)

    def keeps(self, step: int, total: int) -> bool:
        """Whether the weights after this step (counted from 1) are a draw."""
        beyond = step - self.begin(total)
        return beyond > 0 and beyond % self.every == 0

    def count(self, total: int, step: int | None = None) -> int:
        """How many draws a run of `total` steps gives, all of it or until after `step`."""
        return max(0, (total if step is None else step) - self.begin(total)) // self.every

    def check(self, total: int, bytes_per_draw: int) -> None:
        """Refuse, before anything runs, what would give no draw or too many bytes of them."""
        count = self.count(total)
        if count == 0:
            raise InputError(
                f"Thin(after={self.after}, every={self.every}) keeps no draw of a run of {total} steps: run longer,"
                f" or write every={max(1, (total - self.begin(total)) // 10)}."
            )
        if count * bytes_per_draw > self.max_bytes:
            fewer = math.ceil(count * bytes_per_draw / self.max_bytes) * self.every
            raise BudgetError(
                f"{count} draws of {bytes_per_draw:,} bytes are {count * bytes_per_draw:,} bytes, and Thin allows"
                f" {self.max_bytes:,}: write Thin(every={fewer}), or allow more with max_bytes=."
            )


class Kept:
    """The draws of a run: in memory, or in its directory's `draws/`, a file each.

    A file's number is the draw's place in the plan: a run that goes on from a checkpoint writes what comes after it
    once more, into the same files, and a file that was deleted changes no other.
    """

    def __init__(self, thin: Thin, total: int | None, layout: Layout, run_dir: Path | None) -> None:
        if total is None:
            raise InputError("keep= counts steps, and this loader has no length: say steps= instead of epochs=.")
        self.thin, self._total, self._layout, self._run_dir = thin, total, layout, run_dir
        self._bytes = sum(p.numel() * p.element_size() for p in layout.params().values())
        thin.check(total, self._bytes)
        self.draws: list[Params] | DrawFiles = []
        if run_dir is not None:
            self.draws = DrawFiles(run_dir / "draws", device=layout.first().device)

    @property
    def plan(self) -> list[int]:
        """The step from which draws are counted, their distance in steps, and the steps of the run."""
        return [self.thin.begin(self._total), self.thin.every, self._total]

    def check_plan(self, theirs: list[int], step: int) -> None:
        """Refuse to go on after `step` with draws that are not those of this plan; a longer run may have the same."""
        begin, every, total = theirs
        same = [begin, every] == self.plan[:2] or not (len(self.draws) or self.thin.count(self._total, step))
        if same and total <= self._total:
            return
        held = f"{self._run_dir} holds draws of a run of {total} steps, one every {every} after step {begin}"
        if total > self._total:
            raise CheckpointError(f"{held}, and this one has {self._total}: write steps={total}, or more.")
        after = max(0.0, begin - 0.5) / self._total
        raise CheckpointError(
            f"{held}; Thin(after={self.thin.after}, every={self.thin.every}) in {self._total} steps is one every"
            f" {self.thin.every} after step {self.plan[0]}, and those would be others. Write Thin(after={after:.9g},"
            f" every={every}) to go on with them, or choose another run_dir."
        )

    def check_disk(self, step: int, room: int) -> None:
        """Refuse, before anything runs, what the disk has no room for: the draws that are not there, and `room`."""
        if self._run_dir is None:
            return
        missing = self._missing(step)
        need = missing * self._bytes + room
        path = self._run_dir.absolute()
        there = next(p for p in (path, *path.parents) if p.exists())
        free = shutil.disk_usage(there).free
        if missing and need > free:
            more = math.ceil(need / max(free, 1)) * self.thin.every
            other = f"write Thin(every={more}), free some space," if step == 0 else "free some space,"
            raise BudgetError(
                f"{missing} draws of {self._bytes:,} bytes and a checkpoint are {need:,} bytes, and the disk of"
                f" {self._run_dir} has {free:,} free: {other} or choose a run_dir on another disk."
            )

    def due(self, step: int) -> bool:
        """Whether the weights after this step are to be kept."""
        return self.thin.keeps(step, self._total)

    def add(self, step: int) -> None:
        """Keep the weights as they are after this step."""
        params = {k: p.detach().clone() for k, p in self._layout.params().items()}
        if not isinstance(self.draws, DrawFiles):
            self.draws.append(params)
            return
        assert self._run_dir is not None
        try:
            self.draws.write(self.thin.count(self._total, step) - 1, params)
        except CredentError as error:
            need = self._missing(step - 1) * self._bytes + checkpoint.size(self._run_dir / "checkpoint")
            raise CredentError(
                f"{error} The {len(self.draws)} draws that are finished are whole. The others and a checkpoint need"
                f" {need:,} bytes: when they are free, fit(..., run_dir={str(self._run_dir)!r}, resume=True) goes on;"
                f" without them, cr.families.Draws('{self._run_dir}/draws') is what there is."
            ) from error

    def end(self) -> None:
        """The run is over: what lies beyond its plan is of a longer one that was given up."""
        if isinstance(self.draws, DrawFiles):
            self.draws.truncate(self.thin.count(self._total))

    def _missing(self, step: int) -> int:
        """How many draws of the steps after this one have no file yet."""
        assert isinstance(self.draws, DrawFiles)
        wanted = range(self.thin.count(self._total, step), self.thin.count(self._total))
        return len(set(wanted).difference(self.draws.numbers()))
