"""Finishing cells: each is run once, as many side by side as there are cores, and none that is finished is run again.

Workers are joblib's: processes of this machine, or whatever `joblib.parallel_config` names (Ray, Dask). A worker takes
cells in order and writes each result itself. A cell that raises is recorded and the rest go on. When a worker dies,
the only suspects are the cells that were running, the first `jobs` unfinished ones: each is tried once more, alone,
and recorded as failed if it kills its worker again.
"""

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import torch

from credent.cells.cell import Cell
from credent.cells.progress import Report
from credent.cells.record import Origin, Record, path_of, read, write, write_failure
from credent.errors import CredentError, InputError


@dataclass(frozen=True)
class Finished:
    """What came of the cells that were asked for: records of the finished ones, reasons of the failed ones."""

    records: dict[Cell, Record]
    failures: dict[Cell, str]

    @property
    def results(self) -> dict[Cell, dict[str, Any]]:
        """What each finished cell returned, in the order in which the cells were given."""
        return {cell: record.result for cell, record in self.records.items()}


def finish(cells: Iterable[Cell], directory: str | Path, jobs: int | None = None, progress: bool = True) -> Finished:
    """Run the cells that have no file in `directory` yet, `jobs` at a time (None: one per core), and read them all."""
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs={jobs}: at least one cell must run at a time; leave it out for one per core.")
    wanted, directory = list(dict.fromkeys(cells)), Path(directory)
    waiting = [cell for cell in wanted if read(cell, directory) is None]
    origin = Origin.here()
    failures: dict[Cell, str] = {}
    with Report(progress, len(wanted), len(wanted) - len(waiting)) as report:
        for exclusive in (False, True):
            group = [cell for cell in waiting if cell.exclusive == exclusive]
            at_once = 1 if exclusive else min(jobs or joblib.cpu_count(), max(1, len(group)))
            report.running(min(at_once, len(group)))
            for number, (cell, error) in enumerate(_outcomes(group, directory, origin, at_once), 1):
                report.ended(failed=error is not None)
                report.running(min(at_once, len(group) - number))
                if error is not None:
                    failures[cell] = error
    report.summary(failures, directory)
    found = {cell: read(cell, directory) for cell in wanted}
    return Finished({cell: record for cell, record in found.items() if record is not None}, failures)


def _outcomes(
    cells: Sequence[Cell], directory: Path, origin: Origin, at_once: int
) -> Iterator[tuple[Cell, str | None]]:
    """Each cell as it ends, with None or with why it failed."""
    while cells:
        left = dict.fromkeys(cells)
        try:
            for cell, error in _side_by_side(cells, directory, origin, at_once):
                del left[cell]
                yield cell, error
            return
        except BrokenProcessPool:
            done = [cell for cell in left if path_of(cell, directory).exists()]
            yield from ((cell, None) for cell in done)
            cells = [cell for cell in left if cell not in done]
            for cell in cells[:at_once]:
                yield cell, _once_more(cell, directory, origin, at_once)
            cells = cells[at_once:]


def _once_more(cell: Cell, directory: Path, origin: Origin, at_once: int) -> str | None:
    """A cell that may have killed its worker, with workers of its own."""
    try:
        ((_, error),) = _side_by_side([cell], directory, origin, at_once)
    except BrokenProcessPool as broken:
        why = CredentError(f"the process it ran in died, twice; was there memory enough? {broken}")
        return write_failure(cell, directory, why, origin)
    return error


def _side_by_side(
    cells: Sequence[Cell], directory: Path, origin: Origin, at_once: int
) -> Iterator[tuple[Cell, str | None]]:
    calls = (joblib.delayed(_attempt)(number, cell, directory, origin) for number, cell in enumerate(cells))
    outputs = joblib.Parallel(n_jobs=at_once, batch_size=1, return_as="generator_unordered")(calls)
    try:
        for number, error in outputs:
            yield cells[number], error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tasks that were left, when we stop on purpose
            outputs.close()


def _attempt(number: int, cell: Cell, directory: Path, origin: Origin) -> tuple[int, str | None]:
    """Run one cell, wherever we are, and write what came of it; `number` says whose answer this is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(threads if cell.exclusive else 1)
    started = time.perf_counter()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(cell.key[-16:], 16))  # a cell that forgets to seed still gives the same every time
            result = cell.run()
        write(cell, directory, result, time.perf_counter() - started, origin)
    except Exception as error:
        return number, write_failure(cell, directory, error, origin)
    finally:
        torch.set_num_threads(threads)
    return number, None
