"""Several ways to train the same network, side by side: their numbers at the end, and their curves over epochs."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import estimate
from credent.papers.tb.settings import NAMES, SEEDS, cell, datasets, described, needs
from credent.papers.tb.training import Training
from credent.papers.verdict import Verdict, lower
from credent.report import Column, Figure, Section, Table, plots
from credent.report.numbers import Value

Arms = Mapping[str, Mapping[str, Any]]
"""Fields of a run that differ from the usual, by the name of the way to train."""
CURVES = {
    "accuracies": "Held-out accuracy",
    "losses": "Loss: NLL + KL / N (nats per image)",
    "nlls": "Training NLL (nats per image)",
    "kls": "KL divergence (nats)",
}
COLUMNS = {
    "accuracy": Column("accuracy", "%", "higher"),
    "val_nll": Column("NLL", "nats", "lower"),
    "loss": Column("NLL + KL / N", "nats", "lower"),
    "kl": Column("KL", "nats", "lower"),
    "scale": Column("scale"),
    "diverged": Column("diverged"),
}


class Comparison(Experiment):
    """One figure of the thesis: ways to train, on one or both data sets."""

    shown: ClassVar[tuple[str, ...]] = ("accuracies", "losses")
    """Curves, names of `CURVES`."""
    note: ClassVar[str] = ""
    """What the setting has beyond that of all figures."""
    published: ClassVar[Mapping[tuple[str, str], float]] = {}
    """Accuracy in the thesis's text by data set and way to train."""

    @abstractmethod
    def arms(self, scale: Scale, data: str) -> Arms:
        """The ways to train on this data set."""

    def data(self, scale: Scale) -> tuple[str, ...]:
        """The data sets of the figure."""
        return datasets(scale)

    def setting(self, scale: Scale) -> str:
        """See `settings`."""
        return " ".join(filter(None, (self.note, described(scale))))

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """Those that are files."""
        return needs(self.data(scale))

    def cells(self, scale: Scale) -> Sequence[Training]:
        """Every way to train, under every seed."""
        return [
            cell(scale, data, seed, **fields)
            for data in self.data(scale)
            for seed in SEEDS[scale]
            for fields in self.arms(scale, data).values()
        ]

    def runs(self, scale: Scale, data: str, arm: str, results: Results) -> dict[int, Mapping[str, Any]]:
        """Finished runs of one way to train, by seed."""
        fields = self.arms(scale, data)[arm]
        found = {seed: results[cell(scale, data, seed, **fields)] for seed in SEEDS[scale]}
        return {seed: result for seed, result in found.items() if result}

    def numbers(self, scale: Scale, data: str, arm: str, name: str, results: Results) -> dict[int, float]:
        """One of their numbers."""
        return {seed: float(result[name]) for seed, result in self.runs(scale, data, arm, results).items()}

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """A table and curves for each data set."""
        return tuple(
            Section(
                NAMES[data],
                (
                    self.table(scale, data, results),
                    *(self.curve(scale, data, name, results) for name in self.shown),
                ),
            )
            for data in self.data(scale)
        )

    def table(self, scale: Scale, data: str, results: Results) -> Table:
        """Numbers at the end."""
        arms = self.arms(scale, data)
        columns = [Column("training"), *COLUMNS.values()]
        if any((data, arm) in self.published for arm in arms):
            columns.insert(2, Column("published accuracy", "%"))
        rows = []
        for arm, fields in arms.items():
            row: list[Value] = [arm, *(estimate(self.numbers(scale, data, arm, name, results)) for name in COLUMNS)]
            if fields.get("method") == "map":  # a point has neither a KL nor a scale
                row[3:6] = [None, None, None]
            row[-1] = f"{sum(self.numbers(scale, data, arm, 'diverged', results).values()):.0f} of {len(SEEDS[scale])}"
            if len(columns) > len(row):
                row.insert(2, self.published.get((data, arm)))
            rows.append(tuple(row))
        caption = (
            f"{NAMES[data]} at the end of training, held-out accuracy and NLL with ten draws of the weights. scale:"
            " geometric mean over the weights of the posterior's standard deviation."
        )
        return Table(caption, tuple(columns), tuple(rows))

    def curve(self, scale: Scale, data: str, name: str, results: Results) -> Figure:
        """One curve of every way to train, mean over seeds with a band of one standard error."""
        lines, errors = {}, {}
        for arm in self.arms(scale, data):
            each = np.array([run[name] for run in self.runs(scale, data, arm, results).values()])
            if len(each):
                lines[arm] = (np.arange(1, each.shape[1] + 1), each.mean(0))
                if len(each) > 1:
                    errors[arm] = each.std(0, ddof=1) / np.sqrt(len(each))
        caption = f"{NAMES[data]}, at the ends of epochs: means over seeds, and one standard error to either side."
        return plots.curves(f"{CURVES[name]}, {NAMES[data]}", lines, "epoch", CURVES[name], caption, errors=errors)

    def below(self, claim: str, name: str, ours: str, others: str, at: tuple[Scale, str, Results]) -> Verdict:
        """The verdict on "the number `name` of one way to train is lower than another's"."""
        scale, data, results = at
        return lower(claim, *(self.numbers(scale, data, arm, name, results) for arm in (ours, others)))

    def above(self, claim: str, name: str, ours: str, others: str, at: tuple[Scale, str, Results]) -> Verdict:
        """The same for "higher"."""
        scale, data, results = at
        return lower(claim, *(self.numbers(scale, data, arm, name, results) for arm in (others, ours)))

    def alike(self, claim: str, name: str, ours: str, others: str, at: tuple[Scale, str, Results]) -> Verdict:
        """The verdict on "there is no significant difference": none beyond two standard errors, either way."""
        below, above = (side("", name, ours, others, at) for side in (self.below, self.above))
        if below.outcome == "not testable at this scale":
            return Verdict(claim, below.outcome, below.evidence)
        differs = "replicated" in (below.outcome, above.outcome)
        return Verdict(claim, "not replicated" if differs else "replicated", below.evidence)
