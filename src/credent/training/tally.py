"""Means of the numbers of batches since the last row of the history.

    mean of v = sum_i share_i v_i / sum_i share_i,        share_i = rows of batch i / rows of its optimiser step

>>> tally = Tally({"loss": 3.0, "count": 2.0})
>>> tally.means()
{'loss': 1.5}
"""

from torch import Tensor

from credent.objectives import Objective
from credent.training.history import Row


class Tally:
    """Weighted sums by name, with the sum of the weights as `count`; empty after a row was made of them."""

    def __init__(self, sums: dict[str, float] | None = None) -> None:
        self.sums = dict(sums or {})

    def add(self, objective: Objective, y: Tensor, share: float) -> None:
        """What the objective has just found on a batch with these targets."""
        terms = objective.last
        assert terms is not None
        name, value = objective.likelihood.predictive([terms.outputs]).score(y)
        penalty = "kl" if objective.pays_kl else "penalty"
        numbers = {
            "loss": terms.loss.item(),
            "nll": terms.nll.item(),
            penalty: terms.penalty.item(),
            "beta": terms.beta,
        }
        for key, number in {**numbers, name: value, "count": 1.0}.items():
            self.sums[key] = self.sums.get(key, 0.0) + share * number

    def means(self) -> Row:
        """The means; none where nothing was added."""
        return {k: v / self.sums["count"] for k, v in self.sums.items() if k != "count"}
