"""How parameters move, where torch has no such optimiser or schedule."""

from credent.optim import robust
from credent.optim.alternating import Alternating
from credent.optim.average import Average
from credent.optim.muon import Muon
from credent.optim.natural import Natural
from credent.optim.plateau import Plateau
from credent.optim.range_test import RangeTest, range_test
from credent.optim.together import Together
from credent.optim.yellowfin import YellowFin

__all__ = [
    "Alternating",
    "Average",
    "Muon",
    "Natural",
    "Plateau",
    "RangeTest",
    "Together",
    "YellowFin",
    "range_test",
    "robust",
]
