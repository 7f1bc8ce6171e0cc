"""Projected gradient descent on log p(y | x): many small steps, each brought back into the ball.

    x_{k+1} = P(x_k - a d(g_k)),      d(g) = sign(g) in linf, g / ||g||_2 in l2

for a step of a = `step` epsilon and the projection P on ball and box. The first walk starts from the input, further
ones from points drawn from the ball. Of all points seen on all walks each input keeps its worst: a wrong answer before
a right one, then the smallest p(y | x'). The point of `FGSM` and the input itself are among them, so PGD is weaker than
neither, on any input. Madry et al., Towards deep learning models resistant to adversarial attacks, 2018.

>>> from credent.families import Draws
>>> from credent.likelihoods import Bernoulli
>>> posterior = Draws([{"weight": torch.tensor([[2.0, -1.0]])}])
>>> averaged = Averaged(torch.nn.Linear(2, 1, bias=False), posterior, Bernoulli())
>>> PGD(steps=10)(averaged, torch.tensor([[0.5, 0.5]]), torch.ones(1, 1), epsilon=0.25)
tensor([[0.2500, 0.7500]])
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from credent.attacks.attack import Attack
from credent.attacks.averaged import Averaged
from credent.attacks.ball import Ball, Norm
from credent.attacks.fgsm import FGSM
from credent.errors import InputError
from credent.predictive import BinaryPredictive, ClassPredictive, Predictive


@dataclass(frozen=True)
class PGD(Attack):
    """`steps` steps of `step` radii, from the input and from `restarts` random points."""

    norm: Norm = "linf"
    steps: int = 20
    step: float = 0.125
    restarts: int = 1
    """Further walks, from points drawn from the ball; the gradient may vanish at the input and nowhere else."""
    seed: int = 0
    """Of the random points."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 0 or not self.step > 0:
            raise InputError(
                f"PGD(steps={self.steps}, step={self.step}, restarts={self.restarts}): at least one step of a positive"
                " length; restarts=0 walks from the input alone."
            )

    def within(self, ball: Ball, averaged: Averaged, y: Tensor, gradient: Tensor) -> Tensor:
        """The worst point seen, for each input."""
        worst = _Worst(ball.x, averaged.predict(ball.x), y)
        fast = FGSM(self.norm).within(ball, averaged, y, gradient)
        worst.see(fast, averaged.predict(fast))
        generator = torch.Generator().manual_seed(self.seed)
        for walk in range(1 + self.restarts):
            if walk == 0:
                point, slope = ball.x, gradient
            else:
                point = ball.draw(generator)
                prediction, slope = averaged.gradient(point, y)
                worst.see(point, prediction)
            for _ in range(self.steps - 1):
                point = ball.step(point, -slope, self.step * ball.epsilon)
                prediction, slope = averaged.gradient(point, y)
                worst.see(point, prediction)
            point = ball.step(point, -slope, self.step * ball.epsilon)
            worst.see(point, averaged.predict(point))
        return worst.points


class _Worst:
    """For each input, the point with a wrong answer and the least log p(y | x')."""

    def __init__(self, points: Tensor, prediction: Predictive, y: Tensor) -> None:
        self.points, self._y = points.clone(), y
        self._wrong, self._log_prob = _wrong(prediction, y), prediction.log_prob(y)

    def see(self, points: Tensor, prediction: Predictive) -> None:
        wrong, log_prob = _wrong(prediction, self._y), prediction.log_prob(self._y)
        better = (wrong & ~self._wrong) | ((wrong == self._wrong) & (log_prob < self._log_prob))
        self.points[better] = points[better]
        self._wrong[better], self._log_prob[better] = wrong[better], log_prob[better]


def _wrong(prediction: Predictive, y: Tensor) -> Tensor:
    """Whether the answer is wrong anywhere, (n,); a regression's never is, only more or less likely."""
    if isinstance(prediction, ClassPredictive):
        wrong = prediction.label != y
    elif isinstance(prediction, BinaryPredictive):
        wrong = (prediction.probs > 0.5) != (y > 0.5)
    else:
        wrong = torch.zeros_like(y, dtype=torch.bool)
    return wrong.reshape(len(y), -1).any(1)
