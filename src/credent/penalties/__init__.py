"""r(q): what an objective may add to the data's loss."""

from credent.neurons import dead, norms
from credent.penalties.factor import factor
from credent.penalties.group_lasso import GroupLasso
from credent.penalties.l1 import L1
from credent.penalties.l2 import L2
from credent.penalties.noise import Dirac
from credent.penalties.penalty_of import penalty_of
from credent.penalties.prior_of import prior_of
from credent.penalties.verdict import NoPrior
from credent.penalty import Description, Penalty

__all__ = [
    "L1",
    "L2",
    "Description",
    "Dirac",
    "GroupLasso",
    "NoPrior",
    "Penalty",
    "dead",
    "factor",
    "norms",
    "penalty_of",
    "prior_of",
]
