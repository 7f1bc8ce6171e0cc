"""Agents beside each other: every environment, every agent, many seeds, and regret curves with standard errors.

Seeds run in groups of `together` in one process, networks side by side, and groups run in parallel processes. Each
finished group is a file of its own in `directory`, so that a comparison that was stopped goes on where it was.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from credent.bandits.agent import Agent
from credent.bandits.environment import Environment
from credent.bandits.play import play
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
        """Cumulative regret of each seed after some of the steps."""
        regret = play(self.environment, self.agent, self.steps, self.seeds).cumsum(1)
        after = _after(self.steps)
        return {"after": after.tolist(), "regret": regret[:, after - 1].tolist()}


@dataclass(frozen=True)
class Comparison:
    """Cumulative regret (seeds, points) by environment and agent, `after` so many decisions (points,)."""

    after: NDArray[np.int64]
    regret: dict[tuple[str, str], NDArray[np.float64]]
    failures: dict[tuple[str, str], str]
    """Pairs of which some group of seeds failed, and why."""

    def mean(self, environment: str, agent: str) -> NDArray[np.float64]:
        """Mean over seeds, (points,)."""
        found: NDArray[np.float64] = self.regret[environment, agent].mean(0)
        return found

    def error(self, environment: str, agent: str) -> NDArray[np.float64]:
        """Standard error of the mean, (points,); NaN for a single seed."""
        each = self.regret[environment, agent]
        if len(each) < 2:
            return np.full(each.shape[1], np.nan)
        found: NDArray[np.float64] = each.std(0, ddof=1) / np.sqrt(len(each))
        return found

    def table(self) -> Table:
        """The regret at the end, agents by environments."""
        environments, agents = (list(dict.fromkeys(key[i] for key in self.regret)) for i in (0, 1))
        rows = tuple((agent, *(self._last(environment, agent) for environment in environments)) for agent in agents)
        columns = (Column("agent"), *(Column(each, better="lower") for each in environments))
        return Table(f"Cumulative regret after {self.after[-1]:,} decisions", columns, rows)

    def figure(self, environment: str) -> Figure:
        """Cumulative regret over decisions, a curve for each agent with its standard error."""
        agents = [agent for each, agent in self.regret if each == environment]
        return curves(
            f"Regret: {environment}",
            {agent: (self.after, self.mean(environment, agent)) for agent in agents},
            "Decisions",
            "Cumulative regret",
            "What an agent has lost so far against one who knows every arm's mean reward, averaged over seeds; the band"
            " is one standard error. A curve that goes flat has learnt which arm is best; a straight one has not.",
            errors={agent: self.error(environment, agent) for agent in agents},
        )

    def _last(self, environment: str, agent: str) -> Estimate | None:
        if (environment, agent) not in self.regret:
            return None
        return Estimate(float(self.mean(environment, agent)[-1]), float(self.error(environment, agent)[-1]))


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
    groups = [tuple(seeds[i : i + together]) for i in range(0, len(seeds), together)]
    cells = {
        (place, name): [Run(environment, agent, steps, group) for group in groups]
        for place, environment in environments.items()
        for name, agent in agents.items()
    }
    done = finish([run for runs in cells.values() for run in runs], directory, jobs, progress)
    regret: dict[tuple[str, str], NDArray[np.float64]] = {}
    failures: dict[tuple[str, str], str] = {}
    for key, runs in cells.items():
        rows = [row for run in runs if run in done.records for row in done.results[run]["regret"]]
        if rows:
            regret[key] = np.asarray(rows, dtype=np.float64)
        failed = [done.failures[run] for run in runs if run in done.failures]
        if failed:
            failures[key] = failed[0]
    return Comparison(_after(steps), regret, failures)


def _after(steps: int) -> NDArray[np.int64]:
    """After which decisions a curve has its points: evenly spread, the last decision always."""
    return np.unique(np.linspace(0, steps, min(steps, POINTS) + 1).round().astype(np.int64)[1:])
