"""The scores a page may show, each in words that need no statistics: what it says, and which way is better.

>>> MEASURES["ece"].unit, measure("my_score").label
('%', 'my score')
"""

from dataclasses import dataclass

from credent.report.numbers import Value
from credent.report.parts import Better, Card, Column


@dataclass(frozen=True)
class Measure:
    """A score's name for readers, its unit (`%` for a fraction), its better direction, and its meaning."""

    label: str
    unit: str
    better: Better
    meaning: str

    def card(self, value: Value) -> Card:
        """The score as a key number."""
        return Card(self.label, value, self.unit, self.meaning, self.better)

    def column(self) -> Column:
        """The score as a column of a table."""
        return Column(self.label, self.unit, self.better)


MEASURES: dict[str, Measure] = {
    "accuracy": Measure("Accuracy", "%", "higher", "How often its first guess is right, on inputs it never saw."),
    "error": Measure("Error", "%", "lower", "How often its first guess is wrong, on inputs it never saw."),
    "nll": Measure(
        "Surprise (NLL)",
        "nats",
        "lower",
        "How surprised it is by the true answers. Being wrong and sure costs most; among classes, 0 would be perfect.",
    ),
    "ece": Measure(
        "Calibration error (ECE)",
        "%",
        "lower",
        "How far its stated confidence is from how often it is right. The reliability diagram says what chance does.",
    ),
    "ece_by_chance": Measure(
        "ECE by chance",
        "%",
        "",
        "The calibration error that perfectly honest confidences have on so few inputs.",
    ),
    "brier": Measure(
        "Brier score", "", "lower", "Squared distance of its probabilities from the truth: 0 is perfect, 2 is worst."
    ),
    "auroc": Measure(
        "Strangers noticed (AUROC)",
        "%",
        "higher",
        "The chance that a strange input makes it more uncertain than a familiar one: 50% is a coin flip, 100% ideal.",
    ),
    "aurc": Measure(
        "Risk left (AURC)",
        "%",
        "lower",
        "Errors among its answers, averaged over how many it may refuse. Low means its doubt points at its mistakes.",
    ),
    "rmse": Measure(
        "Typical miss (RMSE)", "", "lower", "How far its best guess is from the truth, in the units of the output."
    ),
    "crps": Measure(
        "Distance of its forecast (CRPS)",
        "",
        "lower",
        "How far its whole forecast is from the truth, in the output's units.",
    ),
    "coverage": Measure(
        "Coverage of 95% intervals",
        "%",
        "",
        "How many true answers fall inside its 95% intervals. Near 95% is honest; less is overconfident.",
    ),
    "interval_width": Measure(
        "Width of 95% intervals", "", "lower", "How wide its intervals are: at equal coverage, narrower says more."
    ),
    "kl": Measure("Distance from the prior (KL)", "nats", "", "How much the data changed what it believed at first."),
    "seconds": Measure("Training time", "s", "lower", "Seconds of training on this machine."),
    "parameters": Measure("Parameters", "", "", "How many numbers the network has to learn."),
}


def measure(name: str) -> Measure:
    """The measure of that name; one nobody has described stands under its own name, unexplained."""
    return MEASURES.get(name, Measure(name.replace("_", " "), "", "", ""))
