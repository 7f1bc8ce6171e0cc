"""Figure 4.1: cumulative regret of Thompson sampling on four data sets."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from credent.bandits import SETTINGS, Run, Schedule, Wheel, paper_agents
from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Figure, Section, Table, plots

NAMES = {"mushroom": "Mushroom", "statlog": "Statlog", "covertype": "Covertype", "census": "Census"}
OTHERS = ("pSGLD", "SGD", "Dropout", "EpsGreedy")
"""The paper's; ours has SGLD and blind choice beside them."""
AGENTS = ("BNP", *OTHERS, "SGLD", "uniform")
_TABLES = {"mushroom": "mushroom", "statlog": "shuttle", "covertype": "covertype", "census": "adult"}


class Figure4_1(Experiment):
    """Contextual bandits."""

    name = "bnp/figure4_1"
    title = "Contextual bandits: cumulative regret"
    about = (
        "Figure 4.1: after 2,000 steps BNP has the lowest cumulative regret on Mushroom, Statlog, Covertype and Census,"
        " closely followed by pSGLD on Covertype, and EpsGreedy has the highest on the last three. On Mushroom pSGLD"
        " and EpsGreedy are ahead of it at first."
    )
    takes: ClassVar = {Scale.SMOKE: "10 s", Scale.CPU: "6 min on 2 cores"}
    _SCHEDULES: ClassVar = {
        Scale.SMOKE: Schedule(random=20, every=20, steps=2, batch=16),
        Scale.CPU: Schedule(random=100),
        Scale.PAPER: Schedule(),
    }
    _STEPS: ClassVar = {Scale.SMOKE: 60, Scale.CPU: 2000, Scale.PAPER: 40_000}
    _SEEDS: ClassVar = {Scale.SMOKE: (0,), Scale.CPU: tuple(range(5)), Scale.PAPER: tuple(range(5))}

    def setting(self, scale: Scale) -> str:
        """In words."""
        schedule = self._SCHEDULES[scale]
        where = "A synthetic bandit in the place of each data set. " if scale is Scale.SMOKE else ""
        return (
            f"{where}{self._STEPS[scale]:,} decisions, {len(self._SEEDS[scale])} seeds, networks of 100-100 hidden"
            f" units; the first {schedule.random:,} decisions are blind, then after every {schedule.every} come"
            f" {schedule.steps} minibatches of {schedule.batch}. Rates, temperatures, floors and penalty are as printed"
            " for each data set; the rest it does not print and is that of the code it follows, in which a step is 20"
            " decisions and 1,024 are blind: 40,000 decisions at the paper's scale. Regret is exact, against the best"
            " arm's mean reward. Census is Adult. SGLD and uniform are ours."
        )

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """The tables."""
        return () if scale is Scale.SMOKE else tuple(f"bandits/{name}" for name in _TABLES.values())

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Every agent on every data set, its seeds side by side."""
        return list(dict.fromkeys(self._cell(scale, place, agent) for place in NAMES for agent in AGENTS))

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Regret at the end, and its curves."""
        columns = (Column("agent"), *(Column(name, "", "lower") for name in NAMES.values()))
        rows = tuple(
            (agent, *(estimate(self._regret(scale, place, agent, results)) for place in NAMES)) for agent in AGENTS
        )
        table = Table(f"Cumulative regret after {self._STEPS[scale]:,} decisions", columns, rows)
        figures = tuple(self._curves(scale, place, results) for place in NAMES)
        return (Section("At the end", (table,)), Section("Over time", figures))

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """BNP's regret is the lowest of the paper's five, EpsGreedy's the highest of the last three."""
        found = []
        for place, name in NAMES.items():
            regret = {agent: self._regret(scale, place, agent, results) for agent in AGENTS}
            claim = f"{name}: BNP's cumulative regret is the lowest"
            found.append(together(claim, *(lower(f"below {o}", regret["BNP"], regret[o]) for o in OTHERS)))
            if place != "mushroom":
                rest = (agent for agent in ("BNP", *OTHERS) if agent != "EpsGreedy")
                claim = f"{name}: EpsGreedy's cumulative regret is the highest"
                found.append(together(claim, *(lower(f"above {o}", regret[o], regret["EpsGreedy"]) for o in rest)))
            claim = f"{name}: BNP has learnt something, its regret is below that of blind choice"
            found.append(lower(claim, regret["BNP"], regret["uniform"]))
        return tuple(found)

    def _cell(self, scale: Scale, place: str, agent: str) -> Run:
        environment = Wheel() if scale is Scale.SMOKE else SETTINGS[place].environment
        chosen = paper_agents(place, self._SCHEDULES[scale])[agent]
        return Run(environment, chosen, self._STEPS[scale], self._SEEDS[scale])

    def _regret(self, scale: Scale, place: str, agent: str, results: Results) -> dict[int, float]:
        """At the end, by seed."""
        result = results[self._cell(scale, place, agent)]
        curves = result["regret"] if result else []
        return {seed: float(curve[-1]) for seed, curve in zip(self._SEEDS[scale], curves, strict=False)}

    def _curves(self, scale: Scale, place: str, results: Results) -> Figure:
        lines, errors = {}, {}
        for agent in AGENTS:
            result = results[self._cell(scale, place, agent)]
            each = np.array(result["regret"] if result else [[np.nan]], dtype=float)
            each = each[np.isfinite(each[:, -1])]  # without seeds that diverged
            if len(each):
                lines[agent] = (result["after"], each.mean(0))
                many = len(each) > 1
                errors[agent] = each.std(0, ddof=1) / np.sqrt(len(each)) if many else np.full(each.shape[1], np.nan)
        caption = "Mean over seeds with one standard error. A curve that goes flat has learnt which arm is best."
        return plots.curves(NAMES[place], lines, "decisions", "cumulative regret", caption, errors=errors)
