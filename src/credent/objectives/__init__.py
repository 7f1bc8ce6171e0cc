"""What is minimised: losses in nats per datum."""

from credent.objectives.fisher_penalty import FisherPenalty
from credent.objectives.gradient_noise import GradientNoise, gradient_noise
from credent.objectives.input_gradient import InputGradient
from credent.objectives.map import MAP
from credent.objectives.objective import Objective, Terms
from credent.objectives.stacked import Stacked
from credent.objectives.vi import VI
from credent.objectives.vl import VL
from credent.objectives.weights import Annealed, Cyclical, PerBatch

__all__ = [
    "MAP",
    "VI",
    "VL",
    "Annealed",
    "Cyclical",
    "FisherPenalty",
    "GradientNoise",
    "InputGradient",
    "Objective",
    "PerBatch",
    "Stacked",
    "Terms",
    "gradient_noise",
]
