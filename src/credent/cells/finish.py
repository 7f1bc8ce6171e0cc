"""Finishing cells: each is run once, as many side by side as there are cores, and none that is finished is run again.

A worker takes cells in order and writes each result itself. A cell that raises is recorded and the rest go on; so is
one whose process dies, twice (`credent.cells.workers`). Workers on other machines, which `joblib.parallel_config` can
name, must see the same directory under the same absolute path.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType

from credent.cells.cell import Cell
from credent.cells.progress import Report
from credent.cells.record import Origin, Record, path_of, read, write, write_failure
from credent.cells.workers import answers, room
from credent.errors import CredentError, InputError

Watch = Callable[[Cell, Record | str], RenderableType]
"""Sees each cell as it ends, with its record or with why it failed; what it returns is shown below the live line."""


@dataclass(frozen=True)
class Finished:
    """What came of the cells that were asked for: records of the finished ones, reasons of the failed ones."""

    records: dict[Cell, Record]
    failures: dict[Cell, str]

    @property
    def results(self) -> dict[Cell, dict[str, Any]]:
        """What each finished cell returned, in the order in which the cells were given."""
        return {cell: record.result for cell, record in self.records.items()}


def finish(
    cells: Iterable[Cell],
    directory: str | Path,
    jobs: int | None = None,
    progress: bool = True,
    watch: Watch | None = None,
) -> Finished:
    """Run the cells that have no file in `directory` yet, `jobs` at a time (None: one per core), and read them all."""
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs={jobs}: at least one cell must run at a time; leave it out for one per core.")
    wanted, directory = list(dict.fromkeys(cells)), Path(directory).absolute()
    waiting = [cell for cell in wanted if read(cell, directory) is None]
    origin = Origin.here()
    failures: dict[Cell, str] = {}
    with Report(progress, len(wanted), len(wanted) - len(waiting)) as report:
        for exclusive in (False, True):
            group = [cell for cell in waiting if cell.exclusive == exclusive]
            at_once = 1 if exclusive else min(room(jobs), max(1, len(group)))
            report.running(min(at_once, len(group)))
            for number, (cell, error) in enumerate(_outcomes(group, directory, origin, at_once), 1):
                report.ended(failed=error is not None)
                report.running(min(at_once, len(group) - number))
                if error is not None:
                    failures[cell] = error
                if watch is not None:
                    report.show(watch(cell, error or _record(cell, directory)))
    report.summary(failures, directory)
    found = {cell: read(cell, directory) for cell in wanted}
    return Finished({cell: record for cell, record in found.items() if record is not None}, failures)


def _record(cell: Cell, directory: Path) -> Record:
    record = read(cell, directory)
    if record is None:
        raise CredentError(
            f"{cell} has ended, and {path_of(cell, directory)} is not there: workers on other machines must write to"
            " the same directory; choose one that all of them share."
        )
    return record


def _outcomes(
    cells: Sequence[Cell], directory: Path, origin: Origin, at_once: int
) -> Iterator[tuple[Cell, str | None]]:
    """Each cell as it ends, with None or with why it failed."""
    for cell, answer in answers(partial(_attempt, directory=directory, origin=origin), cells, at_once):
        if isinstance(answer, CredentError):
            yield cell, write_failure(cell, directory, answer, origin)
        else:
            yield cell, answer


def _attempt(cell: Cell, directory: Path, origin: Origin) -> str | None:
    """Run one cell, wherever we are, and write what came of it."""
    if path_of(cell, directory).exists():
        return None  # finished in a pool that broke before it could say so
    threads = torch.get_num_threads()
    torch.set_num_threads(threads if cell.exclusive else 1)
    started = time.perf_counter()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(cell.key[-16:], 16))  # a cell that forgets to seed still gives the same every time
            result = cell.run()
        write(cell, directory, result, time.perf_counter() - started, origin)
    except Exception as error:
        return write_failure(cell, directory, error, origin)
    finally:
        torch.set_num_threads(threads)
    return None
