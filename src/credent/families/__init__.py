"""q(w): what a posterior over the weights can look like."""

from credent.families.dirac import Dirac
from credent.families.draws import Draws
from credent.families.gaussian import Gaussian
from credent.families.mixture import Mixture
from credent.families.posterior import Posterior, Variational
from credent.families.radial import Radial

__all__ = ["Dirac", "Draws", "Gaussian", "Mixture", "Posterior", "Radial", "Variational"]
