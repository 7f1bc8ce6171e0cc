"""p(w): what is believed of the weights before the data."""

from credent.priors.gaussian import Gaussian
from credent.priors.horseshoe import Horseshoe
from credent.priors.inverse_reference import InverseReference
from credent.priors.laplace import Laplace
from credent.priors.node_horseshoe import NodeHorseshoe
from credent.priors.prior import Independent, Prior
from credent.priors.scale_mixture import ScaleMixture
from credent.priors.self_stabilizing import SelfStabilizing
from credent.priors.tabulated import Tabulated

__all__ = [
    "Gaussian",
    "Horseshoe",
    "Independent",
    "InverseReference",
    "Laplace",
    "NodeHorseshoe",
    "Prior",
    "ScaleMixture",
    "SelfStabilizing",
    "Tabulated",
]
