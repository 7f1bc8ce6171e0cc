"""Figure 5.1: the KL's path derivative against its total derivative."""

from typing import Any, ClassVar

from credent.papers.experiment import Results, Scale
from credent.papers.tb.comparison import Arms, Comparison
from credent.papers.tb.settings import NAMES, datasets
from credent.papers.verdict import Verdict

PATH, TOTAL = "path derivative", "total derivative"
WIDER = ", first rho = -5"


class Figure5_1(Comparison):
    """Path and total."""

    name = "tb/figure5_1"
    title = "Path derivative and total derivative"
    about = (
        "Figure 5.1 and section 5.1: on CIFAR-10, leaving the score function out of the KL's gradient (the path"
        " derivative) performs better than the total derivative; on MNIST there is no significant difference. The"
        " thesis leaves it out in all that follows."
    )
    takes: ClassVar = {Scale.CPU: "3 min on 2 cores beyond figure 1.2"}
    shown = ("accuracies", "losses", "kls")
    note = (
        "Which of the two is noisier depends on where q is. Where the loss is quadratic, its gradient by a mean, from"
        " one draw w = mu + sigma e, has the noise (sigma / t^2 - 1 / sigma) e / N by the path derivative and"
        " (sigma / t^2) e / N in total, t the scale of the best posterior; they differ by the score function"
        " e / (sigma N), whose mean is zero. At sigma = t the path derivative has no noise, and the total derivative"
        " the score function's. Below t / sqrt 2 the path derivative is the noisier one, and far below it has noise of"
        " e / (sigma N), which in the total derivative the score function cancels. The thesis's first scales, 4.5e-5,"
        " are far below. So both are also run from scales 150 times as wide, rho = -5, on CIFAR-10."
    )

    def arms(self, scale: Scale, data: str) -> Arms:
        """Both estimators; from wider scales too on the harder data."""
        found: dict[str, dict[str, Any]] = {PATH: {"estimator": "path"}, TOTAL: {"estimator": "total"}}
        if data == datasets(scale)[-1]:
            found |= {name + WIDER: {**fields, "rho": -5.0} for name, fields in found.items()}
        return found

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Better on the harder data, alike on the easier."""
        easy, hard = datasets(scale)[0], datasets(scale)[-1]
        at = (scale, hard, results)
        return (
            self.above(f"{NAMES[hard]}: {PATH} more accurate than {TOTAL}", "accuracy", PATH, TOTAL, at),
            self.below(f"{NAMES[hard]}: {PATH} ends with a lower loss than {TOTAL}", "loss", PATH, TOTAL, at),
            self.above(
                f"{NAMES[hard]}{WIDER}: {PATH} more accurate than {TOTAL}",
                "accuracy",
                PATH + WIDER,
                TOTAL + WIDER,
                at,
            ),
            self.alike(
                f"{NAMES[easy]}: no significant difference in accuracy", "accuracy", PATH, TOTAL, (scale, easy, results)
            ),
        )
