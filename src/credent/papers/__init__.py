"""The papers' tables and figures, each an experiment that `credent reproduce NAME` runs.

Adding a paper is one file with a tuple of experiments, and its line in `ALL`.
"""

from credent.papers import bnp, ir, pp, tb, vl
from credent.papers.experiment import Experiment, Scale
from credent.papers.reproduce import Reproduction, reproduce, reproduce_paper
from credent.papers.seeds import by_seed, estimate
from credent.papers.verdict import Verdict, lower, together

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Reproduction",
    "Scale",
    "Verdict",
    "by_seed",
    "estimate",
    "lower",
    "reproduce",
    "reproduce_paper",
    "together",
]

ALL: tuple[Experiment, ...] = (
    *vl.EXPERIMENTS,
    *pp.EXPERIMENTS,
    *bnp.EXPERIMENTS,
    *ir.EXPERIMENTS,
    *tb.EXPERIMENTS,
)
EXPERIMENTS = {each.name: each for each in ALL}
