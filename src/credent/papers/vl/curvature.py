"""What VL's ways to its curvature cost in quality: not in the paper, and the ground of our defaults."""

import math
from collections.abc import Sequence
from typing import ClassVar

from credent.cells import Cell
from credent.objectives.vl import Curvature
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import estimate
from credent.papers.verdict import Outcome, Verdict
from credent.papers.vl.quality import SCORES
from credent.papers.vl.settings import NAMES, SEEDS, SIZES, datasets, described, needs
from credent.papers.vl.training import Moving, PartOfBatch, Training
from credent.report import Column, Estimate, Section, Table


class Ways(Experiment):
    """What VL's ways to the curvature cost in quality."""

    name = "vl/curvature"
    title = "VL's curvature: exactly, on a part of the batch, with scores that move"
    about = (
        "Not in the paper, which takes the whole batch and differentiates twice. The Fisher diagonal of a random part"
        " of the batch is unbiased, so it should train as well; behind BatchNorm the part sees statistics of its own."
        " The paper's labels are held while the means' gradient is taken, which leaves out how the law of the labels"
        " moves with the means; scores that move with the network do not. Of two equal ways, one standard error over"
        " three seeds lets pass about six in ten."
    )
    takes: ClassVar = {Scale.SMOKE: "30 s", Scale.CPU: "15 min on 2 cores"}
    _WAYS: ClassVar[dict[str, tuple[type[Training], Curvature, float]]] = {
        "exact, whole batch": (Training, "exact", 1.0),
        "finite difference, 1/4": (Training, "finite_difference", 0.25),
        "finite difference, 1/8": (Training, "finite_difference", 0.125),
        "moving scores, finite difference, 1/8": (Moving, "finite_difference", 0.125),
    }
    _BETAS: ClassVar = (0.01, 0.1)

    def setting(self, scale: Scale) -> str:
        """See `settings`."""
        return described(scale)

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """One data set."""
        return needs((self._data(scale),))

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Every way, two betas, all seeds."""
        ways = [
            self._cell(scale, way, beta, seed) for seed in SEEDS[scale] for beta in self._BETAS for way in self._WAYS
        ]
        return [*ways, self._part(scale)]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """The ways side by side, for each beta."""
        columns = (
            Column("curvature"),
            Column("NLL", "nats"),
            Column("accuracy", "%"),
            Column("ECE", "%"),
            Column("linearised NLL", "nats"),
            Column("mean log sigma / prior's"),
        )
        names = (*(f"test_mean_{score}" for score in SCORES), "test_linearised_nll", "log_ratio")
        part = results[self._part(scale)]
        whole = part["1"]["mean"] if part else math.nan
        seen = Table(
            f"The curvature term on parts of one batch of {self._part(scale).batch}, after an epoch",
            (Column("part"), Column("nats per datum"), Column("of the whole batch's", "%")),
            tuple((name, Estimate(each["mean"], each["error"]), each["mean"] / whole) for name, each in part.items()),
        )
        return (Section("Behind BatchNorm", (seen,)), *self._tables(scale, columns, names, results))

    def _tables(
        self, scale: Scale, columns: tuple[Column, ...], names: tuple[str, ...], results: Results
    ) -> tuple[Section, ...]:
        return tuple(
            Section(
                f"{NAMES[self._data(scale)]}, beta {beta:g}",
                (
                    Table(
                        "Test images",
                        columns,
                        tuple(
                            (way, *(estimate(self._of(scale, way, beta, name, results)) for name in names))
                            for way in self._WAYS
                        ),
                    ),
                ),
            )
            for beta in self._BETAS
        )

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Each way within one standard error of exact with the paper's labels."""
        return tuple(
            self._same(scale, way, beta, score, results)
            for way in list(self._WAYS)[1:]
            for beta in self._BETAS
            for score in SCORES
        )

    def _same(self, scale: Scale, way: str, beta: float, score: str, results: Results) -> Verdict:
        claim = f"{way}, beta {beta:g}: the same {SCORES[score]} as exact, within one standard error of the difference"
        ours = self._of(scale, way, beta, f"test_mean_{score}", results)
        exact = self._of(scale, "exact, whole batch", beta, f"test_mean_{score}", results)
        gap = estimate({seed: ours[seed] - exact[seed] for seed in ours.keys() & exact.keys()})
        if gap is None or not math.isfinite(gap.error):
            return Verdict(claim, "not testable at this scale", "one seed has no standard error.")
        outcome: Outcome = "replicated" if abs(gap.value) <= gap.error else "not replicated"
        return Verdict(claim, outcome, f"differs by {gap.value:+.4f} with standard error {gap.error:.4f}.")

    def _data(self, scale: Scale) -> str:
        return datasets(scale)[0]

    def _part(self, scale: Scale) -> PartOfBatch:
        training = self._cell(scale, "finite difference, 1/8", 0.1, 0)
        return PartOfBatch(training, *((32, 8) if scale is Scale.SMOKE else (128, 60)))

    def _cell(self, scale: Scale, way: str, beta: float, seed: int) -> Training:
        kind, curvature, fraction = self._WAYS[way]
        cell: Training = kind(self._data(scale), "vl", beta, SIZES[scale], seed, curvature=curvature, fraction=fraction)
        return cell

    def _of(self, scale: Scale, way: str, beta: float, name: str, results: Results) -> dict[int, float]:
        found = {seed: results[self._cell(scale, way, beta, seed)] for seed in SEEDS[scale]}
        return {seed: float(result[name]) for seed, result in found.items() if result}
