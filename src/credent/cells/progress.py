"""What a person sees while cells run: a live line in a terminal, a line now and then elsewhere, and who failed."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from credent.cells.cell import Cell

_SECONDS_PER_LINE = 5.0
_LISTED = 5


class _Bar(Progress):
    """A live line, and below it what somebody else wants to be seen."""

    below: RenderableType = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below:
            yield self.below


class Report:
    """Cells done of all, how many run and have failed, the time so far and the time still to go."""

    def __init__(self, show: bool, total: int, done: int) -> None:
        self._console = Console(stderr=True, quiet=not show)
        self._lines = not self._console.is_terminal
        self._printed = time.monotonic()
        self._total, self._done, self._failed = total, done, 0
        self._bar = _Bar(
            TextColumn("[bold]cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("to go:"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not show or self._lines,
        )
        self._task = self._bar.add_task("cells", total=total, completed=done, state="")

    def __enter__(self) -> "Report":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def running(self, number: int) -> None:
        """So many cells run side by side now."""
        self._bar.update(self._task, state=f"{number} running · {self._failed} failed", refresh=True)

    def ended(self, failed: bool) -> None:
        """One cell more is finished, or has failed."""
        self._failed += failed
        self._done += not failed
        self._bar.update(self._task, advance=1)
        if self._lines and time.monotonic() - self._printed > _SECONDS_PER_LINE:
            self._printed = time.monotonic()
            self._console.print(f"cells: {self._done} of {self._total} done, {self._failed} failed", highlight=False)

    def show(self, below: RenderableType) -> None:
        """Put this below the live line, in the place of what was there."""
        self._bar.below = below

    def summary(self, failures: Mapping[Cell, str], directory: Path) -> None:
        """Which cells failed, and where their tracebacks are."""
        if not failures:
            return
        self._console.print(
            f"[bold red]{len(failures)} of {self._total} cells failed[/] and are tried again next time:"
        )
        for cell, told in list(failures.items())[:_LISTED]:
            self._console.print(f"  {cell}: {told}", markup=False, highlight=False, soft_wrap=True)
        if len(failures) > _LISTED:
            self._console.print(f"  and {len(failures) - _LISTED} more")
        self._console.print(f"tracebacks: {directory}/*.error.json", markup=False, highlight=False, soft_wrap=True)
