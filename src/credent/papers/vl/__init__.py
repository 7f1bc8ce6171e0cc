"""Variational Laplace for Bayesian neural networks [Unlu & Aitchison 2021]: its tables and figures."""

from credent.papers.experiment import Experiment
from credent.papers.vl.cost import Table2
from credent.papers.vl.curvature import Ways
from credent.papers.vl.quality import Figure1, Table1
from credent.papers.vl.rates import Figure2

EXPERIMENTS: tuple[Experiment, ...] = (Table1(), Table2(), Figure1(), Figure2(), Ways())
