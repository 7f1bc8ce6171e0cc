"""Calls in processes, as many side by side as there is room for; one that kills its process stops no other.

Workers are joblib's: processes of this machine, or whatever `joblib.parallel_config` names (Ray, Dask). When a process
dies its whole pool is broken, and the only suspects are the calls that were running, the first `at_once` that gave no
answer: each is made once more, alone, and is given up if it kills its process again. The rest begin anew. So a call may
be made twice, and must see for itself what an earlier one has left. Dask makes a call again by itself, four times
(`distributed.scheduler.allowed-failures`), before it says that workers die of it.

>>> sorted(answers(str, [1, 2, 3], at_once=1))
[(1, '1'), (2, '2'), (3, '3')]
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import joblib

from credent.errors import CredentError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def room(jobs: int | None = None) -> int:
    """How many calls run side by side: `jobs`, or one per core; on a cluster, as many as it has workers for."""
    return int(joblib.effective_n_jobs(jobs or -1))


def answers(
    call: Callable[[Item], Answer], items: Sequence[Item], at_once: int
) -> Iterator[tuple[Item, Answer | CredentError]]:
    """Each item with what `call` gave for it, as they come; with an error where its process died twice."""
    while items:
        left = list(items)
        try:
            for number, answer in _side_by_side(call, items, at_once):
                left.remove(items[number])
                yield items[number], answer
            return
        except _deaths():
            for item in left[:at_once]:
                yield item, _alone(call, item, at_once)
            items = left[at_once:]


def _alone(call: Callable[[Item], Answer], item: Item, at_once: int) -> Answer | CredentError:
    """An item whose process died, with workers of its own."""
    try:
        ((_, answer),) = _side_by_side(call, [item], at_once)
    except _deaths() as broken:
        return CredentError(f"the process it ran in died, twice; was there memory enough? {broken}")
    return answer


def _side_by_side(call: Callable[[Item], Answer], items: Sequence[Item], at_once: int) -> Iterator[tuple[int, Answer]]:
    calls = (joblib.delayed(_numbered)(call, number, item) for number, item in enumerate(items))
    backend, _ = joblib.parallel.get_active_backend()
    if not backend.supports_return_generator:  # Ray's, which answers when all calls have ended
        yield from joblib.Parallel(n_jobs=at_once, batch_size=1)(calls)
        return
    outputs = joblib.Parallel(n_jobs=at_once, batch_size=1, return_as="generator_unordered")(calls)
    try:
        for output in outputs:  # noqa: UP028 (`yield from` would close `outputs` before the warnings are silenced)
            yield output
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tasks that were left, when we stop on purpose
            outputs.close()


def _deaths() -> tuple[type[Exception], ...]:
    """What joblib raises when a worker has died: its own error, and the cluster's where one is in use."""
    distributed, ray = (sys.modules.get(name) for name in ("distributed", "ray"))
    return (
        BrokenProcessPool,
        *([distributed.KilledWorker] if distributed else []),
        *([ray.exceptions.WorkerCrashedError, ray.exceptions.RayActorError] if ray else []),
    )


def _numbered(call: Callable[[Item], Answer], number: int, item: Item) -> tuple[int, Answer]:
    """The answer, and whose it is: an item that went through a process is no longer the same object."""
    return number, call(item)
