"""Chains that are too short to be scored: a warning where luck, or where they were begun, decides what they say.

    R-hat > 1.05,   or   ESS < 25        for the median prediction

The median, because the worst of many predictions is large by chance: of 1,000 quantities with 50 independent draws
each, the median R-hat is 1.002 and the largest 1.2. ESS is that of all chains together. The Monte-Carlo error of a
prediction is its epistemic standard deviation over sqrt(ESS), a fifth of it at 25. For publishable numbers R-hat < 1.01
and an ESS of 100 times the number of chains are advised (Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021).

>>> from credent.likelihoods import Gaussian
>>> draws = torch.randn(400, 1, 1, generator=torch.Generator().manual_seed(0))
>>> posterior = Draws([{"weight": w} for w in draws])
>>> net = nn.Linear(1, 1, bias=False)
>>> warn_of_short_chains(posterior, net, Gaussian(scale=1.0), torch.ones(1, 1))        # long enough: nothing is said
''
"""

import warnings
from typing import Any

import torch  # noqa: F401  (the doctest's)
from torch import nn

from credent.errors import ConvergenceWarning
from credent.families import Draws, Posterior
from credent.likelihoods import Likelihood
from credent.metrics.chains import LEAST
from credent.training.mixing import Chains

APART, FEW = 1.05, 25


def warn_of_short_chains(posterior: Posterior, net: nn.Module, likelihood: Likelihood, x: Any, **options: Any) -> str:
    """Say so where a chain is so short that its scores depend on where it was begun, or on luck; return what was said.

    A posterior that is no set of draws is passed over; options are those of `credent.predict`.
    """
    if not isinstance(posterior, Chains | Draws):
        return ""
    chains = posterior if isinstance(posterior, Chains) else Chains([posterior])
    least = min(len(chain) for chain in chains.chains)
    if least < LEAST:
        found = f"{least} draws of a chain are too few to say whether it has found the posterior"
    else:
        mixing = chains.mixing_of_predictions(net, likelihood, x, **options)
        agree, worth = (float(each["predictions"].nanmedian()) for each in (mixing.rhat, mixing.ess))
        if not (agree > APART or worth < FEW):
            return ""
        found = (
            f"{mixing.chains * mixing.draws} draws are worth {worth:.0f} independent ones, and R-hat is {agree:.2f},"
            f" both for the median prediction; wanted are {FEW} at least, and {APART} at most"
        )
    said = f"{found}: these scores may be another chain's tomorrow. Run longer, or several chains."
    warnings.warn(said, ConvergenceWarning, stacklevel=3)
    return said
