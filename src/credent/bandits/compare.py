"""Agents beside each other: every environment, every agent, many seeds, and regret curves with standard errors.

Seeds run in groups of `together` in one process, networks side by side, and groups run in parallel processes. Each
finished group is a file of its own in `directory`, so that a comparison that was stopped goes on where it was.

A seed whose group failed, or that diverged, has a row of NaN in its place: rows of all agents are the same seeds, and
may be compared in pairs. Means and standard errors are over the seeds that came to the end; the table says how many.

>>> import tempfile
>>> from credent.bandits.agent import Uniform
>>> from credent.bandits.linear import LinearThompson
>>> from credent.bandits.synthetic import Linear
>>> agents = {"uniform": Uniform(), "Thompson": LinearThompson(noise=0.5)}
>>> with tempfile.TemporaryDirectory() as folder:
...     found = compare({"linear": Linear()}, agents, 200, range(8), folder, jobs=1, progress=False)
>>> found.regret["linear", "Thompson"].shape
(8, 100)
>>> bool(3 * found.mean("linear", "Thompson")[-1] < found.mean("linear", "uniform")[-1])
True
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from credent.bandits.agent import Agent, checked_seeds
from credent.bandits.environment import Environment
from credent.bandits.play import played_out
from credent.cells import Cell, finish
from credent.errors import InputError
from credent.report import Column, Estimate, Figure, Table
from credent.report.plots import curves

POINTS = 100  # of a curve that is kept


@dataclass(frozen=True)
class Run(Cell):
    """One agent in one environment, for a group of seeds that run side by side."""

    environment: Any
    agent: Any
    steps: int
    seeds: tuple[int, ...]
    kinds: tuple[str, str] = field(init=False)  # of which class the two are: their fields alone do not say

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", (type(self.environment).__name__, type(self.agent).__name__))

    def run(self) -> dict[str, Any]:
        """Cumulative regret of each seed after some of the steps, and of seeds that diverged the reason."""
        played = played_out(self.environment, self.agent, self.steps, self.seeds)
        regret, after = played.regret.cumsum(1), _after(self.steps)
        diverged = {str(seed): reason for seed, reason in played.diverged.items()}
        return {"after": after.tolist(), "regret": regret[:, after - 1].tolist(), "diverged": diverged}


@dataclass(frozen=True, repr=False)
class Comparison:
    """Cumulative regret (seeds, points) by environment and agent, `after` so many decisions (points,)."""

    after: NDArray[np.int64]
    seeds: tuple[int, ...]
    """Whose rows there are, in this order."""
    regret: dict[tuple[str, str], NDArray[np.float64]]
    failures: dict[tuple[str, str], dict[int, str]]
    """Why seeds did not come to the end, by pair and seed."""

    def __repr__(self) -> str:
        """The table in plain text: regret at the end, plus or minus its standard error, by agent and environment."""
        table = self.table()
        cells = [[column.label for column in table.columns], *table.texts()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells)
        return "\n".join([f"{table.caption} (± one standard error)", *lines])

    def finished(self, environment: str, agent: str) -> NDArray[np.float64]:
        """The rows of the seeds that came to the end."""
        each = self.regret[environment, agent]
        return each[np.isfinite(each[:, -1])]

    def mean(self, environment: str, agent: str) -> NDArray[np.float64]:
        """Mean over the seeds that came to the end, (points,); NaN if none did."""
        each = self.finished(environment, agent)
        if not len(each):
            return np.full(each.shape[1], np.nan)
        found: NDArray[np.float64] = each.mean(0)
        return found

    def error(self, environment: str, agent: str) -> NDArray[np.float64]:
        """Standard error of the mean, (points,); NaN for a single seed."""
        each = self.finished(environment, agent)
        if len(each) < 2:
            return np.full(each.shape[1], np.nan)
        found: NDArray[np.float64] = each.std(0, ddof=1) / np.sqrt(len(each))
        return found

    def table(self) -> Table:
        """The regret at the end and over how many seeds, agents by environments."""
        environments, agents = (list(dict.fromkeys(key[i] for key in self.regret)) for i in (0, 1))
        rows = tuple(
            (agent, *(cell for place in environments for cell in self._last(place, agent))) for agent in agents
        )
        each = [(Column(place, better="lower"), Column(f"{place}, seeds")) for place in environments]
        columns = (Column("agent"), *(column for pair in each for column in pair))
        return Table(f"Cumulative regret after {self.after[-1]:,} decisions", columns, rows)

    def figure(self, environment: str) -> Figure:
        """Cumulative regret over decisions, a curve for each agent with its standard error."""
        agents = [agent for each, agent in self.regret if each == environment and len(self.finished(each, agent))]
        return curves(
            f"Regret: {environment}",
            {agent: (self.after, self.mean(environment, agent)) for agent in agents},
            "Decisions",
            "Cumulative regret",
            "What an agent has lost so far against one who knows every arm's mean reward, averaged over seeds; the band"
            " is one standard error. A curve that goes flat has learnt which arm is best; a straight one has not.",
            errors={agent: self.error(environment, agent) for agent in agents},
        )

    def _last(self, environment: str, agent: str) -> tuple[Estimate | None, int]:
        count = len(self.finished(environment, agent))
        if not count:
            return None, 0
        return Estimate(float(self.mean(environment, agent)[-1]), float(self.error(environment, agent)[-1])), count


def compare(
    environments: Mapping[str, Environment],
    agents: Mapping[str, Agent],
    steps: int,
    seeds: Sequence[int],
    directory: str | Path,
    *,
    together: int = 4,
    jobs: int | None = None,
    progress: bool = True,
) -> Comparison:
    """Play whatever has no file in `directory` yet, `jobs` processes at a time (None: one per core), and read it all.

    `together` seeds share a process with their networks side by side. Four are the fastest on the papers' networks.
    """
    if together < 1:
        raise InputError(f"compare(together={together}): at least one seed runs at a time.")
    seeds = checked_seeds(seeds, "compare")
    for name, each in (*environments.items(), *agents.items()):
        _check_kind(name, each)
    groups = [seeds[i : i + together] for i in range(0, len(seeds), together)]
    cells = {
        (place, name): [Run(environment, agent, steps, group) for group in groups]
        for place, environment in environments.items()
        for name, agent in agents.items()
    }
    done = finish([run for runs in cells.values() for run in runs], directory, jobs, progress)
    regret: dict[tuple[str, str], NDArray[np.float64]] = {}
    failures: dict[tuple[str, str], dict[int, str]] = {}
    after, results = _after(steps), done.results
    for key, runs in cells.items():
        missing = [[math.nan] * len(after)]
        rows = [results[run]["regret"] if run in results else missing * len(run.seeds) for run in runs]
        regret[key] = np.concatenate(rows, dtype=np.float64)
        why: dict[int, str] = {}
        for run in runs:
            if run in results:
                why |= {int(seed): reason for seed, reason in results[run]["diverged"].items()}
            else:
                why |= dict.fromkeys(run.seeds, done.failures[run])
        if why:
            failures[key] = why
            warnings.warn(
                f"{key[1]} on {key[0]}: {len(why)} of {len(seeds)} seeds did not come to the end; means are over the"
                f" others. {'; '.join(dict.fromkeys(why.values()))}",
                stacklevel=2,
            )
    return Comparison(after, seeds, regret, failures)


def _check_kind(name: str, each: object) -> None:
    """Files are known by fields: a class must say which it has, and that they stay."""
    kind = type(each)
    if "__dataclass_fields__" not in vars(kind) or not vars(kind)["__dataclass_params__"].frozen:
        raise InputError(
            f"compare: {name!r} is of {kind.__name__}, which is no frozen dataclass. Results are kept in files that are"
            f" known by the fields of agents and environments: write @dataclass(frozen=True) above class"
            f" {kind.__name__}, with its settings as fields. (`play` takes any class.)"
        )


def _after(steps: int) -> NDArray[np.int64]:
    """After which decisions a curve has its points: evenly spread, the last decision always."""
    return np.unique(np.linspace(0, steps, min(steps, POINTS) + 1).round().astype(np.int64)[1:])
