"""Agents with one setting of the weights: greedy, greedy with a few blind arms, and dropout.

    SGD          w <- w - (lr/2) grad U,          the best arm of the one network
    EpsGreedy    the same with an lr that shrinks by `anneal` each turn, and a share `explore` of blind arms
    Dropout      the mean value of `samples` networks with hidden units left out at random   (Gal, Ghahramani 2016)

`lr` is a sampler's eps, so that these are SGLD at temperature 0 and the agents' rates compare.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR

from credent.bandits.deep import Deep, Learner, held
from credent.objectives import Objective
from credent.samplers import SGLD as Sampler


@dataclass(frozen=True, kw_only=True)
class SGD(Deep):
    """Greedy: the network's best guess."""

    lr: float = 6e-6

    def learner(self, net: nn.Module) -> Learner:
        """Gradient descent on the potential."""
        return Learner(self.log_joint(net), Sampler(net.parameters(), self.lr, num_data=1, temperature=0.0))

    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """Of the one network."""
        return held(objective, contexts)


@dataclass(frozen=True, kw_only=True)
class EpsGreedy(Deep):
    """Greedy, but for a share of blind arms."""

    lr: float = 6e-6
    share: float = 0.003
    anneal: float = 0.999

    @property
    def explore(self) -> float:
        """The share of decisions that are taken blindly."""
        return self.share

    def learner(self, net: nn.Module) -> Learner:
        """Gradient descent with a rate that shrinks each turn."""
        optimizer = Sampler(net.parameters(), self.lr, num_data=1, temperature=0.0)
        return Learner(self.log_joint(net), optimizer, ExponentialLR(optimizer, self.anneal))

    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """Of the one network."""
        return held(objective, contexts)


@dataclass(frozen=True, kw_only=True)
class Dropout(Deep):
    """Dropout stays on while it decides."""

    lr: float = 6e-6
    rate: float = 0.5
    samples: int = 5

    @property
    def dropout(self) -> float:
        """The share of hidden units that are left out at random."""
        return self.rate

    def learner(self, net: nn.Module) -> Learner:
        """Gradient descent on the potential, with dropout."""
        return Learner(self.log_joint(net), Sampler(net.parameters(), self.lr, num_data=1, temperature=0.0))

    @torch.no_grad()
    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """The mean over masks, of which each context has its own."""
        outputs = objective.network.mean(contexts.repeat(self.samples, 1, 1))
        return outputs.view(self.samples, *contexts.shape[:2], -1).mean(0)
