"""Figure 5.2: weights of the KL that rise or fall over the batches of an epoch."""

from typing import ClassVar

from credent.objectives.weights import PerBatch
from credent.papers.experiment import Results, Scale
from credent.papers.tb.comparison import Arms, Comparison
from credent.papers.tb.settings import NAMES, SIZES, datasets
from credent.papers.verdict import Verdict, together
from credent.report import Column, Section, Table

NONE, HALF, ONE, TWO = (f"lambda = {value:g}" for value in (0, 0.5, 1, 2))
NEAR = {f"lambda = {value:g}": value for value in (0.97, 1.03)}
_BATCHES = 500  # of an epoch of CIFAR-10 in the thesis
_STATED = {0.5: (0.02, 0.03), 0.97: (0.5, None), 1.03: (0.5, None)}  # the thesis's shares of batches, by lambda


class Figure5_2(Comparison):
    """Five or six lambdas."""

    name = "tb/figure5_2"
    title = "Weights of the KL over an epoch"
    about = (
        "Figure 5.2 and section 5.2: batch i of an epoch pays the share lambda^i / sum_k lambda^k of the KL. With"
        " lambda = 1/2 and 2, accuracy is better than with the constant share, but KL and total loss are worse; no KL"
        " at all (lambda = 0) is the most accurate; 1/2 and 2 perform alike, so the order does not matter; 1 +- 0.03 is"
        " worse in both; on the whole a constant weight is to be preferred."
    )
    takes: ClassVar = {Scale.CPU: "5 min on 2 cores beyond figure 1.2"}
    shown = ("accuracies", "losses", "kls")
    note = "The loss that is shown is NLL + KL / N for all, whatever was minimised."

    def arms(self, scale: Scale, data: str) -> Arms:
        """The values nearer to one on the harder data only."""
        near = NEAR if data == datasets(scale)[-1] else {}
        ratios = {NONE: 0.0, HALF: 0.5, ONE: 1.0, TWO: 2.0} | near
        return {name: {"kl_ratio": ratio} if ratio != 1 else {} for name, ratio in ratios.items()}

    def setting(self, scale: Scale) -> str:
        """See `settings`; and how many batches an epoch has."""
        counts = (
            f"{-(-SIZES[scale][data].train // SIZES[scale][data].batch)} on {NAMES[data]}"
            for data in self.data(scale)
            if SIZES[scale][data].train
        )
        counted = ", ".join(counts) or "600 on MNIST, 500 on CIFAR-10, less a tenth"
        return f"Batches an epoch: {counted}. {super().setting(scale)}"

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """And how many batches of an epoch pay, which the thesis explains its numbers by."""
        labels = ("above 1/M", "thesis", "above 1/M^2", "thesis")
        columns = (Column("lambda"), *(Column(label, "%") for label in labels))
        rows = []
        for ratio, (many, few) in _STATED.items():
            above, far = (paying(ratio, _BATCHES, 1 / _BATCHES**power) for power in (1, 2))
            rows.append((f"{ratio:g}", above, many, far, few))
        caption = f"Share of the M = {_BATCHES} batches of an epoch whose weight is above 1/M, and above 1/M^2"
        return (*super().sections(scale, results), Section("Who pays", (Table(caption, columns, tuple(rows)),)))

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Claim by claim, on each data set."""
        found = []
        for data in self.data(scale):
            at, label = (scale, data, results), NAMES[data]
            for claim, side, name in (
                ("more accurate than", self.above, "accuracy"),
                ("with a higher KL than", self.above, "kl"),
                ("with a higher total loss than", self.above, "loss"),
            ):
                found.append(
                    together(
                        f"{label}: lambda = 1/2 and 2 end {claim} the constant weight",
                        *(side(arm, name, arm, ONE, at) for arm in (HALF, TWO)),
                    )
                )
            found.append(
                together(
                    f"{label}: without the KL (lambda = 0) accuracy is the highest",
                    *(self.above(f"above {arm}", "accuracy", NONE, arm, at) for arm in (HALF, ONE, TWO)),
                )
            )
            found.append(self.alike(f"{label}: lambda = 1/2 and 2 are alike in accuracy", "accuracy", HALF, TWO, at))
            found += [
                together(
                    f"{label}: {arm} is worse in both accuracy and KL than the constant weight",
                    self.below("accuracy", "accuracy", arm, ONE, at),
                    self.above("KL", "kl", arm, ONE, at),
                )
                for arm in self.arms(scale, data)
                if arm in NEAR
            ]
            found.append(
                together(
                    f"{label}: the constant weight has the lowest total loss",
                    *(self.below(f"below {arm}", "loss", ONE, arm, at) for arm in self.arms(scale, data) if arm != ONE),
                )
            )
        return tuple(found)


def paying(ratio: float, batches: int, least: float) -> float:
    """The share of an epoch's batches whose weight is above `least`.

    >>> paying(0.5, 500, 1 / 500)                    # 2^-8 is above 1/500, 2^-9 is not
    0.016
    """
    return sum(weight > least for weight in PerBatch.geometric(batches, ratio).weights) / batches
