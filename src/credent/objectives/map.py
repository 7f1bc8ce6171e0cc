"""Maximum a posteriori: one setting of the weights, the most probable one.

    loss = -(1/B) sum_i log p(y_i | x_i, w) - (beta / N) log p(w)

Its gradient times N is the gradient of the potential that samplers follow.

>>> net = nn.Linear(1, 1, bias=False)
>>> _ = net.weight.data.fill_(2.0)
>>> loss = MAP(net, Gaussian(scale=1.0), priors.Gaussian(scale=1.0), num_data=4)
>>> round(loss(torch.ones(1, 1), torch.ones(1, 1)).item(), 4)      # (1/2 + c) + (4/2 + c)/4,  c = log(2 pi)/2
2.1487
"""

from typing import Any

import torch  # noqa: F401  (the doctest's)
from torch import Tensor, nn

from credent import priors
from credent.families.dirac import Dirac, DiracPosterior
from credent.layout import Random
from credent.likelihoods import Gaussian, Likelihood  # noqa: F401  (Gaussian: the doctest's)
from credent.objectives.objective import Beta, Objective
from credent.penalty import Description


class MAP(Objective):
    """Plain training with the prior as its penalty; `beta=0` is maximum likelihood."""

    def __init__(
        self,
        net: nn.Module,
        likelihood: Likelihood,
        prior: Description = priors.Gaussian(),  # noqa: B008  (frozen)
        *,
        num_data: int,
        beta: Beta = 1.0,
        random: Random = None,
    ) -> None:
        super().__init__(net, likelihood, prior, num_data, beta, random)
        self.q: DiracPosterior = self.penalty.sampled(Dirac().bind(self.layout))

    @property
    def posterior(self) -> DiracPosterior:
        """A point mass at the network's parameters."""
        return self.q

    def parts(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The batch at the network's own parameters."""
        outputs = self.network.mean(x)
        nll = self.likelihood.mean_nll(outputs, y)
        return nll, self.penalty(self.q), outputs  # last, so that its gradient comes first, and others are added to it
