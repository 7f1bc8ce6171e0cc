"""Figures 1 to 3: accuracy and the trace of the Fisher information, over learning rates and over epochs."""

import math
from collections.abc import Sequence
from typing import ClassVar

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.ir.settings import NAMES, NETWORKS, PRIORS, RATES, SEEDS, SIZES, datasets, described, rates
from credent.papers.ir.table1 import READINGS, RIVALS, cell
from credent.papers.seeds import by_seed, estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Figure, Section, plots

SHOWN = ("resnet", "densenet")


class _Rates(Experiment):
    """Every prior at every rate, on two networks."""

    takes: ClassVar = {Scale.SMOKE: "1 min", Scale.CPU: "35 min on 2 cores, shared by figures 1 to 3"}
    score: ClassVar[str]
    label: ClassVar[str]
    caption: ClassVar[str]

    def setting(self, scale: Scale) -> str:
        """See `settings`."""
        rates = ", ".join(f"{rate:g}" for rate in RATES[scale])
        return (
            f"{described(scale)} Here on {NAMES[datasets(scale)[0]]}, at the rates {rates}. The trace is seen at the"
            " ends of epochs, and its largest is the largest of these: a peak within the first epoch, early in training"
            " as the paper has it, is not seen."
        )

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """One data set."""
        return tuple(name for name in datasets(scale)[:1] if name != "digits")

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Two networks, all priors, all rates."""
        return [
            cell(scale, datasets(scale)[0], network, prior, seed, lr)
            for seed in SEEDS[scale]
            for network in SHOWN
            for lr in rates(scale, network)
            for prior in PRIORS
        ]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """One figure a network."""
        return tuple(
            Section(
                NETWORKS[network],
                (
                    plots.curves(
                        f"{self.label}, {NETWORKS[network]}",
                        {
                            name: (
                                [math.log10(lr) for lr in rates(scale, network)],
                                [self._mean(scale, network, prior, lr, results) for lr in rates(scale, network)],
                            )
                            for prior, name in PRIORS.items()
                        },
                        "log10 of the learning rate",
                        self.label,
                        self.caption,
                    ),
                ),
            )
            for network in SHOWN
        )

    def numbers(self, scale: Scale, network: str, prior: str, lr: float, results: Results) -> dict[int, float]:
        """The score of one curve's point by seed."""
        data = datasets(scale)[0]
        return by_seed(results, self.score, data=data, network=network, prior=prior, lr=lr, size=SIZES[scale])

    def _mean(self, scale: Scale, network: str, prior: str, lr: float, results: Results) -> float:
        mean = estimate(self.numbers(scale, network, prior, lr, results))
        return math.nan if mean is None else mean.value


class Figure1(_Rates):
    """Accuracy against the rate."""

    name = "ir/figure1"
    title = "Validation accuracy against the learning rate"
    about = (
        "Figure 1: at every learning rate, and above all at very small ones, the inverse-reference prior has the best"
        " validation accuracy."
    )
    score = "accuracy"
    label = "Best validation accuracy"
    caption = "Means over seeds. A flat curve is a prior under which the rate matters little."

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """At each rate, each reading against the rivals."""
        return tuple(
            together(
                f"{NETWORKS[network]}, rate {lr:g}: {PRIORS[reading]} is the most accurate",
                *(
                    lower(
                        f"above {PRIORS[rival]}",
                        self.numbers(scale, network, rival, lr, results),
                        self.numbers(scale, network, reading, lr, results),
                    )
                    for rival in RIVALS
                ),
            )
            for network in SHOWN
            for reading in READINGS
            for lr in rates(scale, network)
        )


class Figure2(_Rates):
    """The largest trace against the rate."""

    name = "ir/figure2"
    title = "The largest Fisher trace of training against the learning rate"
    about = (
        "Figure 2: the largest trace of the Fisher information in training grows as the rate falls, explodes for the"
        " other priors, and is held down by the inverse-reference prior."
    )
    score = "max_trace"
    label = "Largest Fisher trace"
    caption = (
        "Means over seeds of the largest trace seen at the end of an epoch, at the posterior's mean, on a fixed set of"
        " training images with labels drawn from the model."
    )

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Whether small rates have large traces, and whether the readings hold them down at the smallest."""
        low, high = min(RATES[scale]), max(RATES[scale])
        found = []
        for network in SHOWN:
            label = NETWORKS[network]
            at = {p: [self.numbers(scale, network, p, lr, results) for lr in (low, high)] for p in PRIORS}
            found.append(
                together(
                    f"{label}: the largest trace is larger at the rate {low:g} than at {high:g}, for every prior",
                    *(lower(PRIORS[p], at[p][1], at[p][0]) for p in (*RIVALS, *READINGS)),
                )
            )
            for reading in READINGS:
                found.append(
                    together(
                        f"{label}, rate {low:g}: {PRIORS[reading]} has a smaller largest trace than the other priors",
                        *(lower(f"below {PRIORS[rival]}", at[reading][0], at[rival][0]) for rival in RIVALS),
                    )
                )
        return tuple(found)


class Figure3(_Rates):
    """Both over epochs, for two priors and two rates."""

    name = "ir/figure3"
    title = "Accuracy and Fisher trace over epochs, inverse-reference and Gaussian priors"
    about = (
        "Figure 3: on ResNet-18 the Gaussian prior's trace rises quickly early in training and its accuracy depends on"
        " the rate; under the inverse-reference prior both stay steady, even at a tenth of the rate."
    )
    score = "accuracy"
    label = ""
    caption = ""

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Two pictures."""
        return (
            Section(
                "ResNet-18",
                (
                    self._picture(scale, "accuracies", "Validation accuracy", results),
                    self._picture(scale, "traces", "Fisher trace", results),
                ),
            ),
        )

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """How much the rate matters under each prior."""
        low, high = self._two(scale)

        def gap(prior: str) -> dict[int, float]:
            first, second = (self.numbers(scale, "resnet", prior, lr, results) for lr in (low, high))
            return {seed: abs(first[seed] - second[seed]) for seed in first.keys() & second.keys()}

        return tuple(
            lower(
                f"{PRIORS[reading]}: accuracy differs less between the rates {low:g} and {high:g} than under Gaussian",
                gap(reading),
                gap("gaussian"),
            )
            for reading in READINGS
        )

    def _two(self, scale: Scale) -> tuple[float, float]:
        """The table's rate and one of about a tenth of it."""
        high = SIZES[scale].lr
        return min(RATES[scale], key=lambda lr: abs(math.log10(lr / high) + 1)), high

    def _picture(self, scale: Scale, score: str, label: str, results: Results) -> Figure:
        named = {}
        for prior in ("gaussian", *READINGS):
            for lr in self._two(scale):
                runs = [results[cell(scale, datasets(scale)[0], "resnet", prior, s, lr)] for s in SEEDS[scale]]
                known = [run[score] for run in runs if run]
                means = [sum(values) / len(values) for values in zip(*known, strict=True)]
                named[f"{PRIORS[prior]}, {lr:g}"] = (list(range(1, len(means) + 1)), means)
        caption = "Means over seeds at the ends of epochs, by prior and learning rate."
        return plots.curves(label, named, "epoch", label, caption)
