"""What is minimised: losses in nats per datum."""

from credent.objectives.fisher_penalty import FisherPenalty
from credent.objectives.input_gradient import InputGradient
from credent.objectives.map import MAP
from credent.objectives.objective import Objective, Terms
from credent.objectives.stacked import Stacked
from credent.objectives.vi import VI
from credent.objectives.vl import VL
from credent.objectives.weights import Annealed, PerBatch

__all__ = ["MAP", "VI", "VL", "Annealed", "FisherPenalty", "InputGradient", "Objective", "PerBatch", "Stacked", "Terms"]
