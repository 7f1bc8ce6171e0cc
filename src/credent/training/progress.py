"""What a person sees while training runs: a live line in a terminal, one line per epoch elsewhere.

Chains that run in processes of their own write how far they are to a small file each, and the process that started them
draws one line from all of these.
"""

import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS_PER_LINE = 2.0
_SECONDS_PER_FILE = 0.2

Tell = Callable[[int, int | None], None]
"""Is told how many steps are done, and of how many."""


class Report:
    """Shows the numbers of a run as they come; silent when asked to be, and on all but the first process."""

    def __init__(self, show: bool | Tell, total: int | None, done: int) -> None:
        self._tell, self._done, self._total = None if isinstance(show, bool) else show, done, total
        show = show is True
        self._console = Console(stderr=True)
        self._printed = -_SECONDS_PER_LINE
        self._lines = show and not self._console.is_terminal
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not show or self._lines,
        )
        self._task = self._bar.add_task("training", total=total, completed=done, numbers="")

    def __enter__(self) -> "Report":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def step(self, epoch: int, numbers: dict[str, float]) -> None:
        """One optimiser step further."""
        self._done += 1
        if self._tell is not None:
            self._tell(self._done, self._total)
        self._bar.update(self._task, advance=1, description=f"epoch {epoch + 1}", numbers=_text(numbers))

    def epoch(self, epoch: int, numbers: dict[str, float], last: bool) -> None:
        """An epoch has ended; outside a terminal that is a line, at most one every few seconds, and one at the end."""
        if self._lines and (last or time.monotonic() - self._printed > _SECONDS_PER_LINE):
            self._printed = time.monotonic()
            self._console.print(f"epoch {epoch + 1}: {_text(numbers)}", highlight=False, soft_wrap=True)


@dataclass
class StepFile:
    """Writes how far a chain is to a file, now and then and at the end; what is read of it may be a moment old."""

    path: Path
    _written: float = field(default=-_SECONDS_PER_FILE)

    def __call__(self, done: int, total: int | None) -> None:
        """Say so, unless it was said just now."""
        if time.monotonic() - self._written >= _SECONDS_PER_FILE or done == total:
            self.path.write_text(f"{done} {total or 0}")
            self._written = time.monotonic()


class ChainsReport(Progress):
    """One line for all chains, the steps of all together and the share of each, in a terminal; nothing elsewhere."""

    def __init__(self, show: bool, count: int) -> None:
        console = Console(stderr=True)
        shown = show and console.is_terminal
        self._folder = tempfile.TemporaryDirectory()
        places = [Path(self._folder.name) / str(number) for number in range(count)]
        self.tell: list[StepFile | bool] = [StepFile(place) if shown else False for place in places]
        """What each chain's `fit` is given as `progress`."""
        self._places = places
        super().__init__(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[each]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not shown,
        )
        self._all = self.add_task(f"{count} chains", total=None, each="")

    def get_renderables(self) -> Iterable[RenderableType]:
        """What is drawn, after a look at the files; a chain that waits for its turn will be as long as the others."""
        told = [_read(place) for place in self._places]
        longest = max(total for _, total in told)
        if longest:
            each = " · ".join(f"{done / total:.0%}" if total else "waits" for done, total in told)
            completed = sum(done for done, _ in told)
            self.update(self._all, completed=completed, total=longest * len(told), each=each)
        return super().get_renderables()

    def stop(self) -> None:
        """A last look, and the files are gone."""
        super().stop()
        self._folder.cleanup()


def _read(path: Path) -> tuple[int, int]:
    """Steps done, and of how many; of a chain that waits, or is writing just now, nothing is known."""
    try:
        done, total = map(int, path.read_text().split())
    except (OSError, ValueError):
        return 0, 0
    return done, total


def _text(numbers: dict[str, float]) -> str:
    return "  ".join(
        f"{k} {v:.4g}" for k, v in numbers.items() if k not in ("step", "epoch") and not k.startswith("lr")
    )
