"""Inverse-reference priors for Fisher regularisation (Kim, Ma, Choi, Kim 2023)."""

from credent.papers.experiment import Experiment
from credent.papers.ir.attacked import Table2, Table3
from credent.papers.ir.rates import Figure1, Figure2, Figure3
from credent.papers.ir.table1 import Table1
from credent.papers.ir.toy import Figure4

EXPERIMENTS: tuple[Experiment, ...] = (Table1(), Figure1(), Figure2(), Figure3(), Figure4(), Table2(), Table3())
