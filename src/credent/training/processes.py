"""Several chains side by side, each in a process of its own, with its own seed and its own directory.

    def start(seed, **where):                              # another first network for each seed
        net = make_net()
        log_joint = cr.MAP(net, likelihood, prior, num_data=n)
        sampler = cr.samplers.SGLD(net.parameters(), lr=1e-5, num_data=n)
        return cr.fit(log_joint, sampler, loader(seed), steps=5000, keep=cr.Thin(), **where)

    posterior = cr.chains(start, count=4, run_dir="runs/x")

Workers are joblib's, so `start` may be defined anywhere, in a notebook too. Every chain computes on one thread, and its
draws do not depend on how many run beside it. A chain that raises or is told to stop does not stop the others. When a
process dies, the chains that were running are tried once more, each alone (`credent.cells.workers`), from their
checkpoints where there is a `run_dir`.
"""

import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from credent.cells.workers import answers
from credent.errors import CredentError, InputError
from credent.families import Draws
from credent.training import generators
from credent.training.mixing import Chains
from credent.training.result import Result

Start = Callable[..., Result]
"""`start(seed, **where)` runs one chain; `where` has `run_dir`, `resume` and `progress`, for `fit`."""

Outcome = tuple[Draws, ...] | str
"""The draws of a chain (of several, where it was a stack), or why there are none."""


def chains(
    start: Start,
    count: int = 4,
    *,
    jobs: int | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
) -> Chains:
    """Run `count` chains, `jobs` at a time (None: one per core), and join their draws.

    run_dir: has a directory for each, `chain-0` and on; `resume=True` goes on with them, and leaves finished ones.
    seed: gives each chain a seed of its own, which it hands to `start` and seeds torch, numpy and Python with. The
        seeds of the first chains do not depend on `count`, so that more can be added to a run.
    """
    if count < 1 or (jobs is not None and jobs < 1):
        raise InputError(f"chains(count={count}, jobs={jobs}): at least one chain, and at least one at a time.")
    directory = None if run_dir is None else Path(run_dir)
    at_once = min(jobs or joblib.cpu_count(), count)
    task = _Task(start, seed, [None if directory is None else directory / f"chain-{i}" for i in range(count)], resume)
    outcomes: dict[int, Outcome] = {
        number: str(answer) if isinstance(answer, CredentError) else answer
        for number, answer in answers(task, range(count), at_once)
    }
    failed = {number: why for number, why in sorted(outcomes.items()) if isinstance(why, str)}
    drawn = [draws for _, draws in sorted(outcomes.items()) if not isinstance(draws, str)]
    again = "" if directory is None or resume else " Once that is mended, resume=True goes on with what is there."
    if not drawn:
        raise CredentError(f"none of {count} chains finished; chain {next(iter(failed))}: {failed[min(failed)]}{again}")
    if failed:
        listed = "; ".join(f"chain {number}: {why}" for number, why in failed.items())
        warnings.warn(
            f"{len(failed)} of {count} chains did not finish, and are left out: {listed}{again}", stacklevel=2
        )
    return Chains([each for chain in drawn for each in chain])


class _Task:
    """What a worker needs to run any of the chains."""

    def __init__(self, start: Start, seed: int, places: list[Path | None], resume: bool) -> None:
        self.start, self.seed, self.places, self.resume = start, seed, places, resume
        self.used = [where is not None and any(where.glob("*")) for where in places]  # before this call
        self.caller = os.getpid()

    def __call__(self, number: int) -> Outcome:
        """Run one chain, wherever we are; the streams and threads of this process are left as they were."""
        threads, state = torch.get_num_threads(), generators.capture([])
        torch.set_num_threads(1)
        own = int(np.random.SeedSequence(self.seed, spawn_key=(number,)).generate_state(1)[0])
        torch.manual_seed(own)  # a fresh process would begin as every other one does
        np.random.seed(own)  # noqa: NPY002  (what users' transforms draw from)
        random.seed(own)
        where = self.places[number]
        ours = where is not None and where.exists() and not self.used[number]  # of a process that died
        resume = where is not None and (self.resume or ours)
        try:
            return _draws(self.start(own, run_dir=where, resume=resume, progress=False))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        except KeyboardInterrupt:
            if os.getpid() == self.caller:
                raise
            return "it was asked to stop."  # a signal to one worker is not one to all of us
        finally:
            torch.set_num_threads(threads)
            generators.restore(state, [])


def _draws(result: Any) -> tuple[Draws, ...]:
    posterior = result.posterior if isinstance(result, Result) else result
    if isinstance(posterior, Chains):
        return posterior.chains
    if not isinstance(posterior, Draws):
        raise InputError(
            f"start() returned {type(posterior).__name__} and no draws: return fit(..., keep=cr.Thin(...), **where)."
        )
    return (posterior,)
