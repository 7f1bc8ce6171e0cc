"""Thompson sampling from a variational posterior: each decision has a draw of its own.

    VI, VL     `credent.objectives`, trained by Adam

Their target is the samplers' at the same temperature: exp(-U / T) is a posterior with noise variance noise^2 T and
prior variance prior^2 T, and that is the one they approximate. VL draws from the linearised network, as it predicts.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from credent import objectives
from credent.bandits.deep import Deep, Learner, fresh
from credent.errors import InputError
from credent.likelihoods import Gaussian
from credent.objectives import Objective
from credent.priors import Gaussian as GaussianPrior


@dataclass(frozen=True, kw_only=True)
class VI(Deep):
    """A mean-field Gaussian by the evidence lower bound."""

    lr: float = 1e-3
    scale_lr: float = 1e-2
    temperature: float = 0.03

    def learner(self, net: nn.Module) -> Learner:
        """The evidence lower bound."""
        return _learner(objectives.VI(net, *_target(self, self.temperature), num_data=1), self.lr, self.scale_lr)

    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """A draw for each context."""
        return fresh(objective, contexts)


@dataclass(frozen=True, kw_only=True)
class VL(Deep):
    """A mean-field Gaussian by Variational Laplace."""

    lr: float = 1e-3
    scale_lr: float = 1e-2
    temperature: float = 0.03

    def learner(self, net: nn.Module) -> Learner:
        """The second-order expansion of the evidence lower bound."""
        return _learner(objectives.VL(net, *_target(self, self.temperature), num_data=1), self.lr, self.scale_lr)

    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """A draw for each context."""
        return fresh(objective, contexts)


def _target(agent: Deep, temperature: float) -> tuple[Any, Any]:
    if not temperature > 0:
        raise InputError(f"temperature={temperature}: a posterior without spread is the agent SGD's.")
    root = math.sqrt(temperature)
    return Gaussian(scale=agent.noise * root), GaussianPrior(scale=agent.prior * root)


def _learner(objective: Objective, lr: float, scale_lr: float) -> Learner:
    return Learner(objective, torch.optim.Adam(objective.param_groups(lr, scale_lr), fused=True))
