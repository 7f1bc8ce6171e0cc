"""How parameters move, where torch has no such optimiser or schedule."""

from credent.optim.alternating import Alternating
from credent.optim.natural import Natural
from credent.optim.plateau import Plateau
from credent.optim.together import Together
from credent.optim.yellowfin import YellowFin

__all__ = ["Alternating", "Natural", "Plateau", "Together", "YellowFin"]
