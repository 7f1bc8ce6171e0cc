"""The fast gradient sign method: one step as far as the ball allows.

    linf   x' = x - epsilon sign(g)               g = d/dx log p(y | x) of the averaged prediction
    l2     x' = x - epsilon g / ||g||_2

cut to the box. Exact where log p(y | x) is a rising function of a linear one. Goodfellow, Shlens & Szegedy, Explaining
and harnessing adversarial examples, 2015; the l2 form is Miyato et al. 2016.

>>> import torch
>>> from credent.attacks.averaged import Averaged
>>> from credent.families import Draws
>>> from credent.likelihoods import Bernoulli
>>> posterior = Draws([{"weight": torch.tensor([[2.0, -1.0]])}])
>>> averaged = Averaged(torch.nn.Linear(2, 1, bias=False), posterior, Bernoulli())
>>> FGSM()(averaged, torch.tensor([[0.5, 0.5]]), torch.ones(1, 1), epsilon=0.25)
tensor([[0.2500, 0.7500]])
"""

from dataclasses import dataclass

from torch import Tensor

from credent.attacks.attack import Attack
from credent.attacks.averaged import Averaged
from credent.attacks.ball import Ball, Norm


@dataclass(frozen=True)
class FGSM(Attack):
    """One step; `norm` is the ball, "linf" or "l2"."""

    norm: Norm = "linf"

    def within(self, ball: Ball, averaged: Averaged, y: Tensor, gradient: Tensor) -> Tensor:
        """One step of the ball's radius."""
        return ball.step(ball.x, -gradient, ball.epsilon)
