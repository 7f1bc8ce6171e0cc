"""Figure 2.2: a perceptron with Gaussian weights learns AND; its formulas and runs are in `perceptron`."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import by_seed, estimate
from credent.papers.tb.perceptron import INPUTS, NEURONS, SIDE, Gradient, Learning
from credent.papers.verdict import Outcome, Verdict, lower
from credent.report import Column, Figure, Section, Table, plots
from credent.report.numbers import Estimate

NAMES = ("mu_1", "mu_2", "mu_b", "sigma_1", "sigma_2", "sigma_b")
COPIES = (1, 25)
STEPS = {Scale.SMOKE: 60, Scale.CPU: 2000, Scale.PAPER: 2000}
SEEDS = {Scale.SMOKE: (0, 1), Scale.CPU: (0, 1, 2, 3, 4), Scale.PAPER: tuple(range(10))}
DRAWS = {Scale.SMOKE: 200, Scale.CPU: 5000, Scale.PAPER: 5000}
_SAME = 1e-6  # nats, of a derivative by differences


class Figure2_2(Experiment):
    """AND."""

    name = "tb/figure2_2"
    title = "A perceptron with Gaussian weights learns AND"
    about = (
        "Figure 2.2 and section 2.4: a single neuron with Gaussian weights and N(0, 1) priors is trained on AND with"
        " Adam at 0.01, its loss falls and its predictions become those of AND. The gradient by the mean of a weight is"
        " given as E[grad log Bernoulli + 1] (2.4.4)."
    )
    takes: ClassVar = {Scale.SMOKE: "5 s", Scale.CPU: "2 min on 2 cores"}

    def setting(self, scale: Scale) -> str:
        """Neuron, data, training."""
        return (
            f"A neuron of two inputs; {STEPS[scale]:,} steps of Adam at 0.01, one draw of the weights a step, the path"
            " derivative; means and scales start at 1/sqrt(2), the Kaiming scheme's for two inputs. The thesis says"
            " neither how many data there are nor how a ReLU's output is a probability: here each of the four inputs is"
            f" seen {COPIES[0]} and {COPIES[1]} times, which decides what the prior weighs, under a logistic neuron and"
            " under one whose ReLU, cut at 1, is the probability. Gradients are those of the logistic neuron at the"
            f" start, on four data, autograd's from {DRAWS[scale]:,} draws; {len(SEEDS[scale])} seeds."
        )

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Gradients, and both neurons on few and many data."""
        return [
            cell
            for seed in SEEDS[scale]
            for cell in (
                Gradient(DRAWS[scale], seed),
                *(Learning(kind, copies, STEPS[scale], seed) for kind in NEURONS for copies in COPIES),
            )
        ]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Loss and predictions, then the gradients."""
        return (
            Section("Training", (self._losses(scale, results), *self._squares(scale, results))),
            Section("Predictions", (self._answers(scale, results),)),
            Section("Gradients", (self._gradients(scale, results),)),
        )

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """The formulas against the slope of the bound; then whether AND is learnt."""
        found = [results[Gradient(DRAWS[scale], seed)] for seed in SEEDS[scale]]
        found = [each for each in found if each]
        verdicts = [
            _same("(2.4.4) as printed, E[grad log p(y|w,x) + 1], is the gradient by a weight's mean", found, "printed"),
            _same("Put right, E[-grad log p(y|w,x) + w] is the gradient by a weight's mean", found, "formula"),
        ]
        for kind, label in NEURONS.items():
            for copies in COPIES:
                numbers = {
                    name: by_seed(results, name, neuron=kind, copies=copies, steps=STEPS[scale])
                    for name in ("first_loss", "last_loss", "right")
                }
                where = f"{label}, {4 * copies} data"
                verdicts.append(lower(f"The loss falls ({where})", numbers["last_loss"], numbers["first_loss"]))
                verdicts.append(_learnt(f"The neuron learns AND ({where})", numbers["right"]))
        return tuple(verdicts)

    def _losses(self, scale: Scale, results: Results) -> Figure:
        named = {}
        for kind, label in NEURONS.items():
            for copies in COPIES:
                losses = results[Learning(kind, copies, STEPS[scale], SEEDS[scale][0])].get("losses", [math.nan])
                width = max(1, len(losses) // 50)
                means = [float(np.mean(losses[k : k + width])) for k in range(0, len(losses), width)]
                named[f"{label}, {4 * copies} data"] = ([k * width for k in range(len(means))], means)
        return plots.curves(
            "Training loss", named, "step", "nats per datum", "First seed, averaged over 2 % of the steps."
        )

    def _squares(self, scale: Scale, results: Results) -> tuple[Figure, ...]:
        result = results[Learning("logistic", COPIES[-1], STEPS[scale], SEEDS[scale][0])]
        if not result:
            return ()
        line = np.linspace(0, 1, SIDE)
        x, y = (each.flatten() for each in np.meshgrid(line, line, indexing="ij"))
        return tuple(
            plots.landscape(
                f"P(1 | x) {when} training",
                x,
                y,
                result[when]["square"],
                "x1",
                "x2",
                "P(1 | x)",
                f"The logistic neuron, {4 * COPIES[-1]} data, first seed; colours span its own values. AND is high in"
                " the upper right corner alone.",
            )
            for when in ("before", "after")
        )

    def _answers(self, scale: Scale, results: Results) -> Table:
        columns = (Column("neuron"), Column("when"), *(Column(f"x = {a:g}, {b:g}", "%") for a, b in INPUTS))
        rows = []
        for kind, label in NEURONS.items():
            for copies in COPIES:
                cells = {seed: results[Learning(kind, copies, STEPS[scale], seed)] for seed in SEEDS[scale]}
                for when in ("before", "after"):
                    probs = [estimate({s: r[when]["inputs"][k] for s, r in cells.items() if r}) for k in range(4)]
                    rows.append((f"{label}, {4 * copies} data", when, *probs))
        return Table("P(1 | x); AND is 0, 0, 0, 1", columns, tuple(rows))

    def _gradients(self, scale: Scale, results: Results) -> Table:
        labels = ("by", "autograd", "slope of the bound", "put right", "printed")
        rows = []
        for seed in SEEDS[scale][:2]:
            found = results[Gradient(DRAWS[scale], seed)]
            for k, name in enumerate(NAMES if found else ()):
                drawn = Estimate(found["autograd"][k], found["error"][k])
                printed = found["printed"][k] if k < 3 else None
                rows.append((f"{name}, start {seed}", drawn, found["slope"][k], found["formula"][k], printed))
        caption = (
            "Gradient of the loss of the data set; autograd ± standard error over draws. The thesis has none by sigma."
        )
        return Table(caption, tuple(Column(label) for label in labels), tuple(rows))


def _same(claim: str, found: Sequence[Any], name: str) -> Verdict:
    if not found:
        return Verdict(claim, "not testable at this scale", "No gradient was computed.")
    gap = max(abs(a - b) for each in found for a, b in zip(each[name][:3], each["slope"][:3], strict=True))
    outcome: Outcome = "replicated" if gap <= _SAME else "not replicated"
    return Verdict(
        claim, outcome, f"It differs from the slope of the bound by up to {gap:.2g} over {len(found)} starts."
    )


def _learnt(claim: str, right: dict[int, float]) -> Verdict:
    if len(right) < 2:
        return Verdict(claim, "not testable at this scale", f"{len(right)} seeds.")
    count = int(sum(right.values()))
    outcome: Outcome = "replicated" if count == len(right) else "not replicated"
    return Verdict(claim, outcome, f"All four answers are on the right side of 1/2 in {count} of {len(right)} seeds.")
