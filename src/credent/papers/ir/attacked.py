"""Tables 2 and 3: accuracy of DenseNet-121 under the fast gradient sign attack."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.ir.settings import NAMES, PRIORS, SEEDS, datasets, described
from credent.papers.ir.table1 import READINGS, RIVALS, cell
from credent.papers.ir.training import EPSILONS
from credent.papers.seeds import estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Section, Table
from credent.report.numbers import Value


class _Attacked(Experiment):
    """One data set, DenseNet-121."""

    takes: ClassVar = {Scale.SMOKE: "1 min", Scale.CPU: "10 min on 2 cores, shared with table1"}
    printed: ClassVar[str]
    published: ClassVar[Mapping[str, Mapping[str, float]]]

    @abstractmethod
    def data(self, scale: Scale) -> str:
        """The data set at this scale."""

    def setting(self, scale: Scale) -> str:
        """See `settings`."""
        return (
            f"{described(scale)} Here DenseNet-121 on {NAMES[self.data(scale)]}: FGSM against the averaged"
            " prediction, in units of the pixels' range, on test images. The paper's sizes are below one grey level,"
            " 1/255, so real sizes stand beside them."
        )

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """One data set."""
        return tuple(name for name in (self.data(scale),) if name != "digits")

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Every prior."""
        return [cell(scale, self.data(scale), "densenet", prior, s) for s in SEEDS[scale] for prior in PRIORS]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Accuracy and the drop of the log-likelihood, by size of the attack."""
        return (
            Section(
                NAMES[self.data(scale)],
                (
                    self._accuracies(scale, results),
                    self._drops(scale, results),
                ),
            ),
        )

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """The most accurate at each size, and the smallest loss of accuracy."""
        found = []
        for epsilon in (*EPSILONS[:2], EPSILONS[-1]):  # the paper's, and the largest
            scores = {p: self._numbers(scale, p, epsilon, "accuracy", results) for p in PRIORS}
            clean = {p: self._numbers(scale, p, "0", "accuracy", results) for p in PRIORS}
            lost = {p: {s: clean[p][s] - scores[p][s] for s in scores[p]} for p in PRIORS}
            for reading in READINGS:
                most = (lower(f"above {PRIORS[r]}", scores[r], scores[reading]) for r in RIVALS)
                found.append(together(f"epsilon {epsilon}: {PRIORS[reading]} is the most accurate", *most))
                least = (lower(f"below {PRIORS[r]}", lost[reading], lost[r]) for r in RIVALS)
                found.append(together(f"epsilon {epsilon}: {PRIORS[reading]} loses the least accuracy", *least))
        return tuple(found)

    def _accuracies(self, scale: Scale, results: Results) -> Table:
        columns = [Column("prior")]
        rows: list[list[Value]] = [[name] for name in PRIORS.values()]
        for epsilon in ("0", *EPSILONS):
            columns.append(Column(f"epsilon {epsilon}", "%", "higher"))
            for row, prior in zip(rows, PRIORS, strict=True):
                row.append(estimate(self._numbers(scale, prior, epsilon, "accuracy", results)))
            claims = [self._claims(scale, prior).get(epsilon) for prior in PRIORS]
            if any(claims):
                columns.append(Column(f"epsilon {epsilon}, published", "%"))
                for row, claim in zip(rows, claims, strict=True):
                    row.append(claim)
        return Table("Accuracy under attack", tuple(columns), tuple(tuple(row) for row in rows))

    def _drops(self, scale: Scale, results: Results) -> Table:
        columns = (Column("prior"), *(Column(f"epsilon {epsilon}", "nats", "lower") for epsilon in EPSILONS))
        rows: list[tuple[Value, ...]] = [
            (name, *(estimate(self._numbers(scale, prior, epsilon, "drop", results)) for epsilon in EPSILONS))
            for prior, name in PRIORS.items()
        ]
        return Table("Drop of the mean log-likelihood (eq. 13)", columns, tuple(rows))

    def _claims(self, scale: Scale, prior: str) -> Mapping[str, float]:
        """Published accuracies, where the data are those of the paper's table."""
        if self.data(scale) != self.printed:
            return {}
        return self.published.get("ir" if prior in READINGS else prior, {})

    def _numbers(self, scale: Scale, prior: str, epsilon: str, score: str, results: Results) -> dict[int, float]:
        runs: dict[int, Mapping[str, Any]] = {
            s: results[cell(scale, self.data(scale), "densenet", prior, s)] for s in SEEDS[scale]
        }
        return {s: float(run["attacks"][epsilon][score]) for s, run in runs.items() if run}


class Table2(_Attacked):
    """CIFAR-10."""

    name = "ir/table2"
    title = "CIFAR-10 under attack"
    about = (
        "Table 2: DenseNet-121 under FGSM with epsilon 0.0001 and 0.001 is the most accurate with the inverse-reference"
        " prior, and loses the least."
    )
    printed = "cifar10"
    published: ClassVar = {
        "horseshoe": {"0.0001": 0.756, "0.001": 0.745},
        "self_stabilizing": {"0.0001": 0.767, "0.001": 0.751},
        "gaussian": {"0.0001": 0.801, "0.001": 0.789},
        "ir": {"0.0001": 0.849, "0.001": 0.847},
    }

    def data(self, scale: Scale) -> str:
        """CIFAR-10, or digits."""
        return datasets(scale)[0]


class Table3(_Attacked):
    """CIFAR-100."""

    name = "ir/table3"
    title = "CIFAR-100 under attack"
    about = "Table 3: the same claims on CIFAR-100; at the cpu scale on SVHN, which has its networks trained already."
    printed = "cifar100"
    published: ClassVar = {
        "horseshoe": {"0.0001": 0.398, "0.001": 0.391},
        "self_stabilizing": {"0.0001": 0.454, "0.001": 0.443},
        "gaussian": {"0.0001": 0.476, "0.001": 0.461},
        "ir": {"0.0001": 0.502, "0.001": 0.499},
    }

    def data(self, scale: Scale) -> str:
        """CIFAR-100, SVHN in its place at the cpu scale, or digits."""
        return datasets(scale)[-1] if scale is not Scale.PAPER else "cifar100"
