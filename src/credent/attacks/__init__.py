"""Attacks on the averaged prediction of a posterior, and what survives them.

averaged = Averaged(net, posterior, likelihood)
robustness(averaged, x, y, PGD(), box=Box(mean=data.mean, std=data.std))
"""

from credent.attacks.attack import Attack
from credent.attacks.averaged import Averaged
from credent.attacks.ball import PIXELS, Ball, Box
from credent.attacks.fgsm import FGSM
from credent.attacks.pgd import PGD
from credent.attacks.robustness import GREY_LEVELS, PAPER, Robustness, Row, robustness

__all__ = [
    "FGSM",
    "GREY_LEVELS",
    "PAPER",
    "PGD",
    "PIXELS",
    "Attack",
    "Averaged",
    "Ball",
    "Box",
    "Robustness",
    "Row",
    "robustness",
]
