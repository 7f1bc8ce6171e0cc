"""Several chains side by side, each in a process of its own, with its own seed and its own directory.

    def start(seed, **where):                              # another first network for each seed
        net = make_net()
        log_joint = cr.MAP(net, likelihood, prior, num_data=n)
        sampler = cr.samplers.SGLD(net.parameters(), lr=1e-5, num_data=n)
        return cr.fit(log_joint, sampler, loader(seed), steps=5000, keep=cr.Thin(), **where)

    posterior = cr.chains(start, count=4, run_dir="runs/x")

Workers are joblib's, so `start` may be defined anywhere, in a notebook too. Every chain computes on one thread, and its
draws do not depend on how many run beside it. A chain that raises or is told to stop does not stop the others; of one
that diverges, what it had drawn until then is in `left_out`, beside the posterior and no part of it. When a process
dies, the chains that were running are tried once more, each alone (`credent.cells.workers`), from their checkpoints
where there is a `run_dir`.
"""

import os
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import joblib
import numpy as np
import torch

from credent.cells.workers import answers
from credent.errors import CredentError, InputError, NonFiniteError
from credent.families import Draws
from credent.network import Params
from credent.training import generators
from credent.training.mixing import Chains
from credent.training.progress import ChainsReport, Tell
from credent.training.result import Result

Start = Callable[..., Result]
"""`start(seed, **where)` runs one chain; `where` has `run_dir`, `resume` and `progress`, for `fit`."""


@dataclass(frozen=True)
class Unfinished:
    """Why a chain did not come to its end, and what it had drawn until then."""

    why: str
    draws: Sequence[Params] = ()


Outcome = tuple[Draws, ...] | Unfinished
"""The draws of a chain (of several, where it was a stack), or why it has not finished."""


def chains(
    start: Start,
    count: int = 4,
    *,
    jobs: int | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> Chains:
    """Run `count` chains, `jobs` at a time (None: one per core), and join their draws.

    run_dir: has a directory for each, `chain-0` and on; `resume=True` goes on with them, and leaves finished ones.
    seed: gives each chain a seed of its own, which it hands to `start` and seeds torch, numpy and Python with. The
        seeds of the first chains do not depend on `count`, so that more can be added to a run.
    progress: one live line for all chains, where there is a terminal.
    """
    if count < 1 or (jobs is not None and jobs < 1):
        raise InputError(f"chains(count={count}, jobs={jobs}): at least one chain, and at least one at a time.")
    directory = None if run_dir is None else Path(run_dir)
    at_once = min(jobs or joblib.cpu_count(), count)
    places = [None if directory is None else directory / f"chain-{i}" for i in range(count)]
    with ChainsReport(progress, count) as report:
        task = _Task(start, seed, places, resume, report.tell)
        outcomes: dict[int, Outcome] = {
            number: Unfinished(str(answer)) if isinstance(answer, CredentError) else answer
            for number, answer in answers(task, range(count), at_once)
        }
    failed = {number: left for number, left in sorted(outcomes.items()) if isinstance(left, Unfinished)}
    drawn = [draws for _, draws in sorted(outcomes.items()) if not isinstance(draws, Unfinished)]
    left_out = {number: Draws(left.draws) for number, left in failed.items() if len(left.draws)}
    again = "" if directory is None or resume else " Once that is mended, resume=True goes on with what is there."
    if not drawn:
        why = f"none of {count} chains finished; chain {min(failed)}: {failed[min(failed)].why}{again}"
        if not left_out:
            raise CredentError(why)
        error = NonFiniteError(f"{why} What chains {_listed(left_out)} had drawn is joined in this error's `draws`.")
        error.draws = [params for each in left_out.values() for params in each.draws()]
        raise error
    if failed:
        listed = "; ".join(f"chain {number}: {left.why}" for number, left in failed.items())
        kept = f" What chains {_listed(left_out)} had drawn is in the posterior's `left_out`." if left_out else ""
        warnings.warn(
            f"{len(failed)} of {count} chains did not finish, and are left out: {listed}{again}{kept}", stacklevel=2
        )
    return Chains([each for chain in drawn for each in chain], left_out)


def _listed(chains: Iterable[int]) -> str:
    return ", ".join(map(str, chains))


class _Task:
    """What a worker needs to run any of the chains."""

    def __init__(
        self, start: Start, seed: int, places: list[Path | None], resume: bool, tell: Sequence[bool | Tell]
    ) -> None:
        self.start, self.seed, self.places, self.resume, self.tell = start, seed, places, resume, tell
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
            return _draws(self.start(own, run_dir=where, resume=resume, progress=self.tell[number]))
        except Exception as error:
            draws = cast("Sequence[Params]", error.draws) if isinstance(error, NonFiniteError) else ()
            return Unfinished(f"{type(error).__name__}: {error}", draws)
        except KeyboardInterrupt:
            if os.getpid() == self.caller:
                raise
            return Unfinished("it was asked to stop.")  # a signal to one worker is not one to all of us
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
