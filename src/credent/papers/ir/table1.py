"""Table 1: validation accuracy under four priors, and without any, on three networks."""

import statistics
from collections.abc import Sequence
from typing import ClassVar

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.ir.settings import BETA, DRAWS, NAMES, NETWORKS, PRIORS, SEEDS, SIZES, datasets, described
from credent.papers.ir.training import Training
from credent.papers.seeds import by_seed, estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Section, Table
from credent.report.numbers import Value

PUBLISHED = {  # validation accuracy; DenseNet, ResNet, VGG
    "cifar10": {
        "horseshoe": (0.765, 0.764, 0.779),
        "self_stabilizing": (0.772, 0.764, 0.794),
        "gaussian": (0.819, 0.826, 0.811),
        "ir": (0.855, 0.846, 0.841),
    },
    "cifar100": {
        "horseshoe": (0.412, 0.415, 0.433),
        "self_stabilizing": (0.479, 0.476, 0.473),
        "gaussian": (0.483, 0.489, 0.481),
        "ir": (0.520, 0.511, 0.508),
    },
    "svhn": {
        "horseshoe": (0.919, 0.921, 0.917),
        "self_stabilizing": (0.925, 0.918, 0.918),
        "gaussian": (0.949, 0.948, 0.943),
        "ir": (0.961, 0.954, 0.954),
    },
}
READINGS = ("hybrid", "inner")
"""The readings of the inverse-reference prior that are run; the printed one is the row without a KL."""
RIVALS = ("horseshoe", "self_stabilizing", "gaussian")


class Table1(Experiment):
    """Priors, networks and data sets."""

    name = "ir/table1"
    title = "Validation accuracy under four priors"
    about = (
        "Table 1: the inverse-reference prior has the best validation accuracy of the four priors on every network and"
        " data set, and the smallest standard error. Read as printed, its KL has a gradient of exactly zero, so the row"
        " without a KL is that algorithm; hybrid and inner are the readings in which the KL does something, inner about"
        " half of what hybrid does to the scales and hardly anything to the means."
    )
    takes: ClassVar = {Scale.SMOKE: "1 min", Scale.CPU: "30 min on 2 cores"}

    def setting(self, scale: Scale) -> str:
        """See `settings`."""
        return described(scale)

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """The paper's data sets."""
        return tuple(name for name in datasets(scale) if name != "digits")

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Every prior on every network and data set."""
        return [
            cell(scale, data, network, prior, seed)
            for seed in SEEDS[scale]
            for data in datasets(scale)
            for network in NETWORKS
            for prior in PRIORS
        ]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """A table a data set, and where the scales went."""
        return (
            *(Section(NAMES[data], (_accuracies(scale, data, results),)) for data in datasets(scale)),
            Section("Where the scales went", tuple(_scales(scale, data, results) for data in datasets(scale))),
        )

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Each reading against the three rivals, and against no KL; and whether it varies less."""
        found = []
        for data in datasets(scale):
            for network, label in NETWORKS.items():
                scores = {prior: accuracies(scale, data, network, prior, results) for prior in PRIORS}
                for reading in READINGS:
                    where = f"{NAMES[data]}, {label}, {PRIORS[reading]}"
                    best = (lower(f"above {PRIORS[rival]}", scores[rival], scores[reading]) for rival in RIVALS)
                    found.append(together(f"{where}: more accurate than the three other priors", *best))
        for reading in READINGS:
            found.append(_steadier(scale, reading, results))
            found.append(
                together(
                    f"{PRIORS[reading]}: the KL does something for accuracy (above the same run without it)",
                    *(
                        lower(
                            f"{NAMES[data]}, {label}",
                            accuracies(scale, data, network, "none", results),
                            accuracies(scale, data, network, reading, results),
                        )
                        for data in datasets(scale)
                        for network, label in NETWORKS.items()
                    ),
                )
            )
        return tuple(found)


def cell(scale: Scale, data: str, network: str, prior: str, seed: int, lr: float | None = None) -> Training:
    """A run of the grid; `lr` is the table's unless it is said."""
    size = SIZES[scale]
    return Training(data, network, prior, size.lr if lr is None else lr, BETA[scale], DRAWS[scale], size, seed)


def accuracies(scale: Scale, data: str, network: str, prior: str, results: Results) -> dict[int, float]:
    """Best validation accuracy by seed, at the table's rate."""
    size = SIZES[scale]
    return by_seed(results, "accuracy", data=data, network=network, prior=prior, size=size, lr=size.lr)


def _accuracies(scale: Scale, data: str, results: Results) -> Table:
    columns = [Column("prior")]
    for label in NETWORKS.values():
        columns += [Column(label, "%", "higher"), Column(f"{label}, published", "%")]
    rows: list[tuple[Value, ...]] = []
    for prior, name in PRIORS.items():
        claims = PUBLISHED.get(data, {}).get("ir" if prior in READINGS else prior, (None, None, None))
        row: list[Value] = [name]
        for network, claim in zip(NETWORKS, claims, strict=True):
            row += [estimate(accuracies(scale, data, network, prior, results)), claim]
        rows.append(tuple(row))
    return Table(f"{NAMES[data]}: best validation accuracy over epochs", tuple(columns), tuple(rows))


def _scales(scale: Scale, data: str, results: Results) -> Table:
    size = SIZES[scale]
    columns = (Column("prior"), *(Column(label) for label in NETWORKS.values()))
    rows: list[tuple[Value, ...]] = [
        (
            name,
            *(
                estimate(
                    by_seed(
                        results,
                        "log_scale_change",
                        data=data,
                        network=network,
                        prior=prior,
                        size=size,
                        lr=size.lr,
                    )
                )
                for network in NETWORKS
            ),
        )
        for prior, name in PRIORS.items()
    ]
    caption = f"{NAMES[data]}: change of the mean log standard deviation from first to last step"
    return Table(caption, columns, tuple(rows))


def _steadier(scale: Scale, reading: str, results: Results) -> Verdict:
    """Standard errors of a reading against each rival's, over networks and data sets."""
    claim = f"{PRIORS[reading]}: the smallest standard error of the priors, everywhere"
    if len(SEEDS[scale]) < 2:
        return Verdict(claim, "not testable at this scale", "One seed has no standard error.")
    won, places = 0, 0
    for data in datasets(scale):
        for network in NETWORKS:
            spreads = {
                prior: statistics.stdev(values.values())
                for prior in (reading, *RIVALS)
                if len(values := accuracies(scale, data, network, prior, results)) > 1
            }
            if reading in spreads and len(spreads) > 1:
                places += 1
                won += spreads[reading] == min(spreads.values())
    evidence = (
        f"Smallest of the four in {won} of {places} places, over {len(SEEDS[scale])} seeds each; by chance alone it"
        f" would be in about {places / 4:.1f}."
    )
    return Verdict(claim, "replicated" if places and won == places else "not replicated", evidence)
