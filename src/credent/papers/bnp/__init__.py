"""Batch normalization preconditioning for stochastic gradient Langevin dynamics [Lange, Deng, Ye, Lin 2023]."""

from credent.papers.bnp.average import Table4_1
from credent.papers.bnp.calibration import Figure4_4
from credent.papers.bnp.condition import Figure4_3
from credent.papers.bnp.convergence import Figure4_2
from credent.papers.bnp.cost import Table4_2
from credent.papers.bnp.regret import Figure4_1
from credent.papers.bnp.simulation import Figure3_1
from credent.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    Figure3_1(),
    Figure4_1(),
    Figure4_2(),
    Table4_1(),
    Figure4_3(),
    Figure4_4(),
    Table4_2(),
)
