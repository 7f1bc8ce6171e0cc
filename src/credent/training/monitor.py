"""Numbers that are taken along the way: a monitor looks at the objective while it trains, and changes nothing.

`fit(..., monitors=[...])` calls a monitor after every `every`-th optimiser step, when the gradients of that step are
still there, and writes its numbers to a row of the history. One that remembers (a running average) has `state_dict` and
`load_state_dict`, and its memory is in the checkpoint. What monitors cost is in the progress line.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from credent.errors import CheckpointError, InputError
from credent.objectives import Objective
from credent.training.history import Row


class Monitor(Protocol):
    """Looks every so many steps; an empty answer is no row."""

    @property
    def every(self) -> int:
        """Optimiser steps between two looks."""
        ...

    def __call__(self, objective: Objective) -> dict[str, float]:
        """Numbers by name."""
        ...


@runtime_checkable
class Remembers(Protocol):
    """A monitor with a memory."""

    def state_dict(self) -> dict[str, Any]:
        """Its memory."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Go on from there."""
        ...


class Monitors:
    """All monitors of a run, and the time they took."""

    def __init__(self, monitors: Sequence[Monitor]) -> None:
        for each in monitors:
            if each.every < 1:
                raise InputError(f"{type(each).__name__}(every={each.every}): optimiser steps count from 1.")
        self._monitors, self._seconds, self._start = monitors, 0.0, time.perf_counter()
        self._reports: dict[str, Monitor] = {}

    def look(self, objective: Objective, step: int) -> Row:
        """The numbers of those whose turn it is after this step."""
        due = [each for each in self._monitors if step % each.every == 0]
        if not due:
            return {}
        begun = time.perf_counter()
        found = {name: number for each in due for name, number in self._numbers(each, objective)}
        self._seconds += time.perf_counter() - begun
        return found

    def _numbers(self, monitor: Monitor, objective: Objective) -> Iterator[tuple[str, float]]:
        for name, number in monitor(objective).items():
            other = self._reports.setdefault(name, monitor)
            if other is not monitor:
                both = " and ".join(
                    f"monitors[{i}], {type(each).__name__}"
                    for i, each in enumerate(self._monitors)
                    if each is other or each is monitor
                )
                raise InputError(
                    f"{both}, both report {name!r}, and one number would take the other's place: give them names of"
                    " their own, such as TraceMonitor(x, name='test_trace')."
                )
            yield name, number

    def cost(self) -> Row:
        """The share of the run's time that monitors have taken, where there are any."""
        return {"monitors' share": self._seconds / (time.perf_counter() - self._start)} if self._monitors else {}

    def memory(self) -> list[dict[str, Any] | None]:
        """What each remembers."""
        return [each.state_dict() if isinstance(each, Remembers) else None for each in self._monitors]

    def recall(self, memory: list[dict[str, Any] | None]) -> None:
        """Go on from there."""
        if len(memory) != len(self._monitors):
            raise CheckpointError(
                f"the run was begun with {len(memory)} monitors, and goes on with {len(self._monitors)}: give the same."
            )
        for each, state in zip(self._monitors, memory, strict=True):
            if isinstance(each, Remembers) and state is not None:
                each.load_state_dict(state)
