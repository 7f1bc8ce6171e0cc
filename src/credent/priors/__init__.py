"""p(w): what is believed of the weights before the data."""

from credent.priors.gaussian import Gaussian
from credent.priors.laplace import Laplace
from credent.priors.prior import Independent, Prior
from credent.priors.scale_mixture import ScaleMixture
from credent.priors.tabulated import Tabulated

__all__ = ["Gaussian", "Independent", "Laplace", "Prior", "ScaleMixture", "Tabulated"]
