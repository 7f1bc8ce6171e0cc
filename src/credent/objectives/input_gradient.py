"""Plain training with a penalty on how much the log-likelihood changes with the inputs: double backpropagation.

    loss = MAP's loss + weight (1/B) sum_i |d/dx_i log p(y_i | x_i, w)|^2

at the observed labels. Drucker, LeCun 1992; Ross, Doshi-Velez 2018 for its robustness against small changes of the
inputs [papers.md]. In a network with BatchNorm in training mode an input also moves the outputs of the others in its
batch, and the gradient is that of the batch's sum.

The penalty's gradient goes through the network a second time. Networks that are linear in pieces (ReLU) are fine: the
input gradient is a product of the layers' weights within every piece, and these are what is trained.

>>> net = nn.Linear(1, 1, bias=False)
>>> _ = net.weight.data.fill_(3.0)
>>> penalised = InputGradient(net, Gaussian(scale=1.0), num_data=1, beta=0.0, weight=0.5)
>>> loss = penalised(torch.tensor([[1.0]]), torch.tensor([[1.0]]))           # (2^2/2 + log(2 pi)/2) + 0.5 (3 x 2)^2
>>> round(loss.item(), 4)
20.9189
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from credent import priors
from credent.errors import InputError
from credent.families.dirac import Dirac, DiracPosterior
from credent.layout import Random
from credent.likelihoods import Gaussian, Likelihood  # noqa: F401  (Gaussian: the doctest's)
from credent.objectives.objective import Beta, Objective
from credent.penalty import Description


class InputGradient(Objective):
    """MAP plus `weight` times the mean squared norm of the input gradient; the term counts as part of `last.nll`.

    Inputs are a tensor, or a tuple or dict of them; those of floating point have gradients.
    """

    def __init__(
        self,
        net: nn.Module,
        likelihood: Likelihood,
        prior: Description = priors.Gaussian(),  # noqa: B008  (frozen)
        *,
        num_data: int,
        weight: float,
        beta: Beta = 1.0,
        random: Random = None,
    ) -> None:
        super().__init__(net, likelihood, prior, num_data, beta, random)
        if not weight >= 0:
            raise InputError(f"InputGradient(weight={weight}): the weight of the squared norm is not negative.")
        self.weight = weight
        self.q: DiracPosterior = self.penalty.sampled(Dirac().bind(self.layout))

    @property
    def posterior(self) -> DiracPosterior:
        """A point mass at the network's parameters."""
        return self.q

    def parts(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The batch at the network's own parameters, with the penalty."""
        inputs: list[Tensor] = []
        with torch.enable_grad():
            outputs = self.network.mean(_leaves(x, inputs))
            if not inputs:
                raise InputError(
                    "InputGradient differentiates by the inputs, and none of them is of floating point: tokens and"
                    " other whole numbers have no gradient. Write x.float(), or take another penalty."
                )
            each = -self.likelihood.log_prob(outputs, y)
            grads = torch.autograd.grad(each.sum(), inputs, create_graph=True, allow_unused=True)
            squares = [g.square().sum() for g in grads if g is not None]
            nll = each.mean()
            if squares:
                nll = nll + self.weight / len(y) * torch.stack(squares).sum()
        return nll, self.penalty(self.q), outputs


def _leaves(x: Any, found: list[Tensor]) -> Any:
    """The same inputs as leaves of a graph; `found` collects those that have gradients."""
    if isinstance(x, Mapping):
        return {k: _leaves(v, found) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return tuple(_leaves(v, found) for v in x)
    if not (isinstance(x, Tensor) and x.is_floating_point()):
        return x
    leaf = x.detach().requires_grad_()
    found.append(leaf)
    return leaf
