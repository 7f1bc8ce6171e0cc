"""Figures 1.1 and 1.2: the frequentist network beside the Bayesian one, on pure noise and on held-out images."""

from typing import ClassVar

import numpy as np

from credent.papers.experiment import Results, Scale
from credent.papers.seeds import estimate
from credent.papers.tb.comparison import Arms, Comparison
from credent.papers.tb.settings import NAMES, datasets
from credent.papers.tb.training import NOISE
from credent.papers.verdict import Verdict, lower
from credent.report import Column, Figure, Section, Table, plots

FREQUENTIST, BAYESIAN, WIDE = "frequentist", "Bayesian", "Bayesian, wide: first rho = -3"


class Figure1_1(Comparison):
    """Confidence on noise."""

    name = "tb/figure1_1"
    title = "How sure networks are of pure noise"
    about = (
        "Figure 1.1: shown Gaussian noise, a frequentist network that reads handwritten digits names one with"
        " confidence, and a Bayesian one does not. The thesis has one image, picked by hand, and two networks above"
        " 98 % accuracy."
    )
    takes: ClassVar = {Scale.CPU: "1 min on 2 cores beyond figure 1.2"}
    note = (
        f"Confidence is the largest probability of the averaged prediction, here over {NOISE} images of independent"
        " standard Gaussian pixels, which is what the pixels of standardised training images are on average. The"
        " thesis's first scales are so small that its posterior is nearly a point; one that begins wider stands beside"
        " it."
    )

    def data(self, scale: Scale) -> tuple[str, ...]:
        """Handwritten digits."""
        return datasets(scale)[:1]

    def arms(self, scale: Scale, data: str) -> Arms:
        """Two of the thesis, and a wider posterior."""
        return {FREQUENTIST: {"method": "map"}, BAYESIAN: {}, WIDE: {"rho": -3.0}}

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Mean confidence beside accuracy, and its distribution."""
        (data,) = self.data(scale)
        columns = (
            Column("network"),
            Column("accuracy", "%", "higher"),
            Column("mean confidence on noise", "%", "lower"),
            Column("share of noise images above 90 % confidence", "%", "lower"),
        )
        rows = tuple(
            (
                arm,
                estimate(self.numbers(scale, data, arm, "accuracy", results)),
                estimate(self._mean(scale, data, arm, results)),
                estimate({seed: float(np.mean(c > 0.9)) for seed, c in self._each(scale, data, arm, results).items()}),
            )
            for arm in self.arms(scale, data)
        )
        caption = f"Trained on {NAMES[data]}, then shown {NOISE} images of Gaussian noise. Chance has 10 %."
        return (Section(NAMES[data], (Table(caption, columns, rows), self._distribution(scale, data, results))),)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Each Bayesian network against the frequentist one."""
        (data,) = self.data(scale)
        plain = self._mean(scale, data, FREQUENTIST, results)
        return tuple(
            lower(
                f"{arm}: less sure of noise than the frequentist network", self._mean(scale, data, arm, results), plain
            )
            for arm in (BAYESIAN, WIDE)
        )

    def _each(self, scale: Scale, data: str, arm: str, results: Results) -> dict[int, np.ndarray]:
        runs = self.runs(scale, data, arm, results)
        return {seed: np.array(run["confidences"]) for seed, run in runs.items() if not run["diverged"]}

    def _mean(self, scale: Scale, data: str, arm: str, results: Results) -> dict[int, float]:
        return {seed: float(each.mean()) for seed, each in self._each(scale, data, arm, results).items()}

    def _distribution(self, scale: Scale, data: str, results: Results) -> Figure:
        levels = np.linspace(0.1, 1, 91)
        lines = {}
        for arm in self.arms(scale, data):
            each = list(self._each(scale, data, arm, results).values())
            if each:
                lines[arm] = (levels, (np.concatenate(each)[:, None] >= levels).mean(0))
        caption = "Share of noise images of which a network is at least so sure, over all seeds. Left is better."
        label = "share of noise images at least so confident"
        return plots.curves("Confidence on noise", lines, "confidence", label, caption, percent=True)


class Figure1_2(Comparison):
    """Accuracy over epochs."""

    name = "tb/figure1_2"
    title = "Accuracy of a frequentist and a Bayesian LeNet-5 under Adam"
    about = (
        "Figure 1.2: by conventional training, with Adam and nothing else, a Bayesian network learns more slowly than"
        " the frequentist one, and often ends with worse performance. Section 4.3 gives its accuracies: 97.74 % on"
        " MNIST and 59.38 % on CIFAR-10."
    )
    takes: ClassVar = {Scale.CPU: "3 min on 2 cores"}
    shown = ("accuracies", "nlls")
    published: ClassVar = {("mnist", BAYESIAN): 0.9774, ("cifar10", BAYESIAN): 0.5938}

    def arms(self, scale: Scale, data: str) -> Arms:
        """Two."""
        return {FREQUENTIST: {"method": "map"}, BAYESIAN: {}}

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Along the way, and at the end."""
        found = []
        for data in self.data(scale):
            slow, fast = (self._along(scale, data, arm, results) for arm in (BAYESIAN, FREQUENTIST))
            claim = f"{NAMES[data]}: the Bayesian network learns more slowly (accuracy, mean over epochs)"
            found.append(lower(claim, slow, fast))
            claim = f"{NAMES[data]}: the Bayesian network ends less accurate"
            found.append(self.below(claim, "accuracy", BAYESIAN, FREQUENTIST, (scale, data, results)))
        return tuple(found)

    def _along(self, scale: Scale, data: str, arm: str, results: Results) -> dict[int, float]:
        runs = self.runs(scale, data, arm, results)
        return {seed: float(np.mean(run["accuracies"])) for seed, run in runs.items()}
