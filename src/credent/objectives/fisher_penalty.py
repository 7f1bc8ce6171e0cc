"""Plain training with a penalty on the trace of the Fisher information.

    loss = MAP's loss + weight |gbar|^2,      gbar = (1/B) sum_i d/dw log p(y_i | x_i, w),   y_i ~ p(y | x_i, w)

The labels of the penalty are drawn from the model, for every batch anew, and held while its gradient is taken. Given
the inputs, the drawn labels' gradients are independent with mean zero, so the expectation of |gbar|^2 is Tr F / B: the
same weight is weaker at a larger batch. B is what one forward sees: `fit(accumulate=k)` on k small batches has k times
the penalty of the joined batch. Jastrzebski et al. 2021, who take the penalty in every tenth step
[papers.md]. `fisher.trace` measures what it holds down.

The penalty's gradient goes through the network a second time. Networks that are linear in pieces (ReLU) are fine: their
layers multiply each other, so the norm has a gradient within every piece; only its jumps between pieces are not seen.

>>> net = nn.Linear(1, 1, bias=False)
>>> _ = net.weight.data.fill_(0.0)
>>> likelihood = Bernoulli()                                            # |y - p| = 1/2 whatever is drawn
>>> penalised = FisherPenalty(net, likelihood, num_data=1, beta=0.0, weight=8.0)
>>> round(penalised(torch.tensor([[2.0]]), torch.ones(1, 1)).item(), 4)      # log 2 + 8 (2/2)^2
8.6931
"""

from typing import Any

import torch
from torch import Tensor, nn

from credent import priors
from credent.errors import InputError
from credent.families.dirac import Dirac, DiracPosterior
from credent.layout import Random
from credent.likelihoods import Bernoulli, Likelihood  # noqa: F401  (Bernoulli: the doctest's)
from credent.noise import Noise
from credent.objectives.objective import Beta, Objective
from credent.penalty import Description


class FisherPenalty(Objective):
    """MAP plus `weight` times the squared norm of the minibatch gradient at drawn labels.

    The term counts as part of the data's, so `last.nll` holds it; `every` takes it in every so many training batches,
    from the first on, and leaves the others as MAP has them. w are all trainable parameters of the network.
    """

    def __init__(
        self,
        net: nn.Module,
        likelihood: Likelihood,
        prior: Description = priors.Gaussian(),  # noqa: B008  (frozen)
        *,
        num_data: int,
        weight: float,
        every: int = 1,
        beta: Beta = 1.0,
        random: Random = None,
    ) -> None:
        super().__init__(net, likelihood, prior, num_data, beta, random)
        if not weight >= 0 or every < 1:
            raise InputError(
                f"FisherPenalty(weight={weight}, every={every}): the weight of the squared gradient norm is not"
                " negative, and every counts batches from 1."
            )
        self.weight, self.every = weight, every
        self.q: DiracPosterior = self.penalty.sampled(Dirac().bind(self.layout))
        self.noise = Noise()

    @property
    def posterior(self) -> DiracPosterior:
        """A point mass at the network's parameters."""
        return self.q

    def parts(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The batch at the network's own parameters, with its share of the penalty."""
        with torch.enable_grad():
            outputs = self.network.mean(x)
            nll = self.likelihood.mean_nll(outputs, y)
            if self._seen.batches % self.every == 0 or not self.training:
                nll = nll + self.weight * self.squared_norm(outputs)
        return nll, self.penalty(self.q), outputs

    def squared_norm(self, outputs: Tensor) -> Tensor:
        """|gbar|^2 for labels drawn at these outputs (B, ...), differentiable in the network's parameters."""
        drawn = self.likelihood.draw(outputs.detach(), self.noise.generator(outputs.device)).detach()
        params = [p for p in self.net.parameters() if p.requires_grad]
        score = self.likelihood.score_at(outputs, drawn) / len(outputs)
        grads = torch.autograd.grad(outputs, params, score, create_graph=True, allow_unused=True)
        return torch.stack([g.square().sum() for g in grads if g is not None]).sum()
