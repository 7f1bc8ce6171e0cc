"""What a person sees while training runs: a live line in a terminal, one line per epoch elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS_PER_LINE = 2.0


class Report:
    """Shows the numbers of a run as they come; silent when asked to be, and on all but the first process."""

    def __init__(self, show: bool, total: int | None, done: int) -> None:
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
        self._bar.update(self._task, advance=1, description=f"epoch {epoch + 1}", numbers=_text(numbers))

    def epoch(self, epoch: int, numbers: dict[str, float]) -> None:
        """An epoch has ended; outside a terminal that is a line, at most one every few seconds."""
        if self._lines and time.monotonic() - self._printed > _SECONDS_PER_LINE:
            self._printed = time.monotonic()
            self._console.print(f"epoch {epoch + 1}: {_text(numbers)}", highlight=False, soft_wrap=True)


def _text(numbers: dict[str, float]) -> str:
    return "  ".join(
        f"{k} {v:.4g}" for k, v in numbers.items() if k not in ("step", "epoch") and not k.startswith("lr")
    )
