"""Training Bayesian neural networks [Book 2020, a thesis]: its figures."""

from credent.papers.experiment import Experiment
from credent.papers.tb.betas import Figure5_6, Figure5_7
from credent.papers.tb.estimators import Figure5_1
from credent.papers.tb.frequentist import Figure1_1, Figure1_2
from credent.papers.tb.groups import Figure5_8, Figure5_10, Figure5_11
from credent.papers.tb.initial import FigureA_1
from credent.papers.tb.landscapes import Figure5_4, Figure5_5
from credent.papers.tb.logical_and import Figure2_2
from credent.papers.tb.optimisers import Figure5_3, FigureA_2
from credent.papers.tb.regions import Figure3_1
from credent.papers.tb.schedules import Figure3_2
from credent.papers.tb.two_rates import Figure5_9
from credent.papers.tb.weights import Figure5_2

EXPERIMENTS: tuple[Experiment, ...] = (
    Figure1_1(),
    Figure1_2(),
    Figure2_2(),
    Figure3_1(),
    Figure3_2(),
    Figure5_1(),
    Figure5_2(),
    Figure5_3(),
    Figure5_4(),
    Figure5_5(),
    Figure5_6(),
    Figure5_7(),
    Figure5_8(),
    Figure5_9(),
    Figure5_10(),
    Figure5_11(),
    FigureA_1(),
    FigureA_2(),
)
