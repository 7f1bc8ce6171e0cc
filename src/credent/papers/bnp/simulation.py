"""Figure 3.1: curves on badly scaled inputs after 500 and 1000 epochs, beside a long SGLD run and NUTS."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from credent.cells import Cell
from credent.papers.bnp.griewank import (
    BATCH,
    NAMES,
    POINTS,
    RATES,
    ROWS,
    TESTS,
    VARIANCE,
    Chain,
    Method,
    curve,
    inputs,
    nuts,
)
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Figure, Note, Section, Table, plots
from credent.report.numbers import Value


@dataclass(frozen=True)
class _Plan:
    """How long."""

    short: int
    twice: int
    long: int
    average: int
    seeds: tuple[int, ...]


class Figure3_1(Experiment):
    """Predictions after 500 and 1000 epochs."""

    name = "bnp/figure3_1"
    title = "The Griewank function on badly scaled inputs"
    about = (
        "Figure 3.1: after 500 epochs BNP's curve is close to the truth, a run of SGLD of 10,000 epochs, and those of"
        " SGLD and pSGLD are not; after 1000 epochs pSGLD's is too."
    )
    takes: ClassVar = {Scale.SMOKE: "10 s", Scale.CPU: "4 min on 2 cores"}
    _PLANS: ClassVar = {
        Scale.SMOKE: _Plan(2, 4, 6, 2, (0,)),
        Scale.CPU: _Plan(500, 1000, 10_000, 50, (0, 1, 2)),
        Scale.PAPER: _Plan(500, 1000, 10_000, 50, (0, 1, 2, 3, 4)),
    }

    def setting(self, scale: Scale) -> str:
        """The paper's is small enough for two cores."""
        plan = self._PLANS[scale]
        return (
            f"A network 2-100-100-1 with ReLU on {ROWS:,} examples, batches of {BATCH} (the paper prints none), rates"
            " 1e-5, 1e-5, 5e-5 for BNP, SGLD, pSGLD, T = 1, prior variance 1 / fan_in (not printed); BNP with decay"
            f" 0.985 and floors 1e-3; preconditioners never freeze. Noise variance {VARIANCE:g}. {plan.short} and"
            f" {plan.twice} epochs, {plan.long:,} of SGLD for the truth; curves are means over the draws after each of"
            f" the last {plan.average} epochs. Seeds decide start, batches and noise: {len(plan.seeds)}; the data are"
            f" the same. Errors against the function itself are over {TESTS:,} test inputs, against other runs over"
            f" {POINTS}."
        )

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Three samplers, two lengths, all seeds; two long chains of SGLD: one is the truth, the other its noise."""
        plan = self._PLANS[scale]
        short = [
            self._cell(scale, method, epochs, seed)
            for seed in plan.seeds
            for epochs in (plan.short, plan.twice)
            for method in NAMES
        ]
        return [*self._long(scale), *short]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Errors by method and length, convergence, and the curve along the long side."""
        plan = self._PLANS[scale]
        columns = (
            Column("curve"),
            Column("epochs"),
            Column("to the function", "", "lower"),
            Column("to long SGLD", "", "lower"),
            Column("to NUTS", "", "lower"),
            Column("sd, in NUTS's"),
        )
        rows: list[tuple[Value, ...]] = [
            (
                NAMES[method],
                epochs,
                *(
                    estimate(self._numbers(scale, method, epochs, score, results))
                    for score in ("rmse", "long", "nuts", "sd")
                ),
            )
            for epochs in (plan.short, plan.twice)
            for method in NAMES
        ]
        truth, *others = (results[cell] for cell in self._long(scale))
        for index, found in enumerate((truth, *others)):
            if found:
                apart = _apart(found, truth) if index and truth else None
                far = _apart(found, nuts())
                rows.append((f"SGLD, chain {index + 1}", plan.long, found["rmse"], apart, far, _sd(found)))
        kept = nuts()
        rows.append(("NUTS", None, _error(kept), _apart(kept, truth) if truth else None, None, 1.0))
        note = Note(
            f"Root mean squared differences of curves, mean over seeds. NUTS: {kept['chains']} chains of"
            f" {kept['draws']} draws, whose mean curve has a standard error of {kept['error']:g} posterior standard"
            " deviations by the chains' differences; trees are cut at 63 leaves."
        )
        return (
            Section("Errors", (Table("Curves", columns, tuple(rows)), note)),
            Section("Curves", (self._learning(scale, results), *self._slices(scale, results))),
        )

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """BNP is nearer; pSGLD comes nearer with time; both by the paper's truth and by the function itself."""
        plan = self._PLANS[scale]

        def at(method: Method, epochs: int, score: str) -> dict[int, float]:
            return self._numbers(scale, method, epochs, score, results)

        found = []
        for score, what in (("long", "the long SGLD run"), ("rmse", "the function itself"), ("nuts", "NUTS")):
            ours = at("bnp", plan.short, score)
            found.append(
                together(
                    f"After {plan.short} epochs BNP is nearer to {what} than SGLD and pSGLD",
                    *(lower(f"than {NAMES[m]}", ours, at(m, plan.short, score)) for m in ("sgld", "psgld")),
                )
            )
        claim = f"pSGLD is nearer to the long SGLD run after {plan.twice} epochs than after {plan.short}"
        found.append(lower(claim, at("psgld", plan.twice, "long"), at("psgld", plan.short, "long")))
        return tuple(found)

    def _cell(self, scale: Scale, method: Method, epochs: int, seed: int) -> Chain:
        return Chain(method, RATES[method], epochs, self._PLANS[scale].average, seed)

    def _long(self, scale: Scale) -> list[Chain]:
        return [self._cell(scale, "sgld", self._PLANS[scale].long, seed) for seed in (100, 101)]

    def _numbers(self, scale: Scale, method: Method, epochs: int, score: str, results: Results) -> dict[int, float]:
        truth = results[self._long(scale)[0]]
        found = {}
        for seed in self._PLANS[scale].seeds:
            result = results[self._cell(scale, method, epochs, seed)]
            if result and score == "rmse":
                found[seed] = float(result["rmse"])
            elif result and score == "sd":
                found[seed] = _sd(result)
            elif result and (score == "nuts" or truth):
                found[seed] = _apart(result, nuts() if score == "nuts" else truth)
        return found

    def _learning(self, scale: Scale, results: Results) -> Figure:
        plan = self._PLANS[scale]
        named = {}
        for method, name in NAMES.items():
            each = [results[self._cell(scale, method, plan.twice, seed)] for seed in plan.seeds]
            errors = [result["errors"] for result in each if result]
            if errors:
                named[name] = (np.arange(len(errors[0])) * max(1, plan.twice // 100) + 1, np.mean(errors, 0))
        caption = f"Of the training batches, mean over seeds; the noise alone has {math.sqrt(VARIANCE):.2f}."
        return plots.curves("Convergence", named, "epoch", "root mean squared error", caption)

    def _slices(self, scale: Scale, results: Results) -> tuple[Figure, ...]:
        """The means at the test inputs in the middle fifth of the short side, over the long side."""
        plan = self._PLANS[scale]
        points = inputs(TESTS, seed=1)[:POINTS]
        inside = ((points[:, 0] + 6.25).abs() < 0.25).nonzero().flatten()
        order = inside[points[inside, 1].argsort()]
        along = points[order, 1].tolist()
        truth = results[self._long(scale)[0]]
        found = []
        for epochs in (plan.short, plan.twice):
            named = {"NUTS": (along, np.take(nuts()["mean"], order))}
            if truth:
                named["SGLD, long"] = (along, np.take(truth["mean"], order))
            for method, name in NAMES.items():
                result = results[self._cell(scale, method, epochs, plan.seeds[0])]
                if result:
                    named[name] = (along, np.take(result["mean"], order))
            caption = "Means at test inputs with x1 between -6.5 and -6, which the curve depends on little; first seed."
            found.append(plots.curves(f"After {epochs:,} epochs", named, "x2", "y", caption))
        return tuple(found)


def _apart(ours: Mapping[str, Any], others: Mapping[str, Any]) -> float:
    return float(np.sqrt(np.mean(np.subtract(ours["mean"], others["mean"]) ** 2)))


def _error(found: Mapping[str, Any]) -> float:
    return _apart(found, {"mean": curve(inputs(TESTS, seed=1)[:POINTS])[:, 0].tolist()})


def _sd(found: Mapping[str, Any]) -> float:
    """Mean standard deviation over NUTS's."""
    return float(np.mean(found["sd"]) / np.mean(nuts()["sd"]))
