"""An equivalence between priors and penalties in variational inference [Wolinski, Charpiat, Ollivier 2022]."""

from credent.papers.experiment import Experiment
from credent.papers.pp.figures import Figures
from credent.papers.pp.table import BestWeights

EXPERIMENTS: tuple[Experiment, ...] = (BestWeights(), Figures())
