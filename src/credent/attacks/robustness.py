"""How much of a prediction survives an attack, for several radii.

    accuracy(epsilon) = mean [argmax_k p(k | x') = y]                    rmse for regression
    nll(epsilon)      = -mean log p(y | x')
    drop(epsilon)     = mean log p(y | x) - log p(y | x')

in nats, where p is the averaged prediction and x' the attacked input. The drop is what eq. 13 of the inverse-reference
paper calls adversarial robustness, with its sign turned: harm is positive. The paper goes on to set it to a quadratic
form in the Fisher information of the weights, but the gradient by the input does not vanish where training ends: to
first order the drop is epsilon ||d/dx log p||_1 in an linf ball, epsilon ||d/dx log p||_2 in an l2 ball.

>>> import torch
>>> from credent.attacks.fgsm import FGSM
>>> from credent.families import Draws
>>> from credent.likelihoods import Bernoulli
>>> posterior = Draws([{"weight": torch.tensor([[4.0]])}])
>>> averaged = Averaged(torch.nn.Linear(1, 1, bias=False), posterior, Bernoulli())
>>> found = robustness(averaged, torch.tensor([[0.5]]), torch.ones(1, 1), FGSM(), epsilons=[0.5])
>>> found.rows[1].nll                                       # from logit 2 to logit 0: ln 2
0.693147...
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from credent.attacks.attack import Attack
from credent.attacks.averaged import Averaged
from credent.attacks.ball import PIXELS, Box, Norm
from credent.attacks.pgd import PGD
from credent.errors import InputError

PAPER = (0.0001, 0.001)
"""The radii of the inverse-reference paper, both less than a grey level."""

GREY_LEVELS = (1 / 255, 2 / 255, 4 / 255, 8 / 255)
"""Radii that an image of 8 bits can hold."""


@dataclass(frozen=True)
class Row:
    """Scores under attack at one radius."""

    epsilon: float
    score: float
    """Accuracy, or root mean squared error for regression."""
    nll: float
    """Mean negative log-likelihood, nats."""
    drop: float
    """Mean log p(y | x) - log p(y | x'), nats."""
    drop_error: float
    """Standard error of the drop over the inputs; NaN for a single one."""


@dataclass(frozen=True)
class Robustness:
    """Scores by radius; the first row, of radius 0, is without an attack. `str` is a table."""

    measure: str
    """What `score` is: "accuracy" or "rmse"."""
    norm: Norm
    rows: tuple[Row, ...]

    def curve(self) -> tuple[list[float], list[float]]:
        """Radii and scores, for `report.plots.robustness_curve`."""
        return [row.epsilon for row in self.rows], [row.score for row in self.rows]

    def __str__(self) -> str:
        lines = [f"{'epsilon (' + self.norm + ')':>15} {self.measure:>9} {'nll':>9} {'drop':>9}"]
        lines += [f"{row.epsilon:15.6f} {row.score:9.4f} {row.nll:9.4f} {row.drop:9.4f}" for row in self.rows]
        return "\n".join(lines)


def robustness(
    averaged: Averaged,
    x: Tensor,
    y: Tensor,
    attack: Attack = PGD(),  # noqa: B008  (frozen)
    epsilons: Sequence[float] = (*PAPER, *GREY_LEVELS),
    box: Box = PIXELS,
    scored_by: Averaged | None = None,
) -> Robustness:
    """Attack `averaged` at each radius, and score what it says then.

    `scored_by` may be another prediction than the one that is attacked: the same with other draws,
    `dataclasses.replace(averaged, seed=1)`, or another network, to see whether an attack transfers.
    """
    if not isinstance(averaged, Averaged):
        raise InputError(
            f"robustness attacks an averaged prediction, and got {type(averaged).__name__}: write"
            " robustness(Averaged.of(bnn), x, y), or Averaged(net, posterior, likelihood)."
        )
    judge = averaged if scored_by is None else scored_by
    clean = judge.predict(x)
    measure, score = clean.score(y)
    before = clean.log_prob(y).double()
    rows = [Row(0.0, score, -before.mean().item(), 0.0, 0.0)]
    for epsilon, attacked in zip(epsilons, attack.each(averaged, x, y, epsilons, box), strict=True):
        prediction = judge.predict(attacked)
        after = prediction.log_prob(y).double()
        drop = before - after
        error = (drop.var() / len(drop)).sqrt().item() if len(drop) > 1 else float("nan")
        rows.append(Row(float(epsilon), prediction.score(y)[1], -after.mean().item(), drop.mean().item(), error))
    return Robustness(measure, attack.norm, tuple(rows))
