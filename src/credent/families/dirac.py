"""The point mass: all of q sits on the network's own parameters, as in maximum a posteriori training.

    q(w) = delta(w - mu),     KL(q || p) = -log p(mu)

Its entropy is taken as zero, so that the KL is the penalty of MAP.

>>> q = Dirac().bind(Layout(torch.nn.Linear(1, 1)))
>>> float(q.stddev()["weight"])
0.0
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from credent.families.gaussian import HALF_LOG_2PI
from credent.families.posterior import Variational
from credent.layout import Layout
from credent.network import Params

if TYPE_CHECKING:
    from credent.priors.prior import Prior


@dataclass(frozen=True)
class Dirac:
    """No spread at all."""

    def bind(self, layout: Layout) -> "DiracPosterior":
        """The point mass at this network's parameters."""
        return DiracPosterior(layout)


class DiracPosterior(Variational):
    """A point mass at the network's parameters."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout

    def mean(self) -> Params:
        """The network's parameters."""
        return {k: p.detach() for k, p in self.layout.params().items()}

    def stddev(self) -> Params:
        """Zeros."""
        return {k: torch.zeros_like(p) for k, p in self.layout.params().items()}

    def draws(self, n: int | None = None, seed: int | None = None) -> Iterator[Params]:
        """The network's parameters, once: further draws would be the same."""
        yield self.mean()

    def sample(self, n: int, seed: int | None = None) -> Params:
        """The network's parameters, n times over."""
        return {k: w.expand(n, *w.shape).clone() for k, w in self.mean().items()}

    def rsample(self) -> Params:
        """The network's parameters."""
        return self.layout.params()

    def log_prob(self, params: Params, detached: bool = False) -> Tensor:
        """Zero at the network's parameters, minus infinity elsewhere: the density with respect to the point itself."""
        same = all(torch.equal(params[k], p) for k, p in self.layout.params().items())
        return torch.tensor(0.0 if same else -torch.inf)

    def entropy(self) -> Tensor:
        """Zero."""
        return torch.zeros(())

    def kl(self, prior: "Prior") -> Tensor:
        """-log p at the network's parameters; for a Gaussian prior in one pass over them, forward and backward."""
        if prior.gaussian is None:
            return -prior.log_prob(self.layout.params())
        laid = prior.gaussian.on(self.layout)
        return laid.energy(self.layout.held(), laid.log_scales + self.layout.num_params * HALF_LOG_2PI)
