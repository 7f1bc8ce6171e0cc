"""Thompson sampling where the posterior is exact: a linear regression for each arm.

    r = <theta_a, x> + N(0, noise^2),   theta_a ~ N(0, prior^2 I)

    theta_a | data ~ N(mean, T precision^-1),   precision = I / prior^2 + sum x x' / noise^2,
                                                mean = precision^-1 sum x r / noise^2

T = 1 is Thompson sampling, T = 0 plays the mean: greedy. (Thompson 1933; Agrawal, Goyal 2013.)

>>> player = LinearThompson(noise=1.0, prior=1.0, temperature=0.0).start(features=1, arms=2, seeds=(0,))
>>> player.learn(torch.ones(3, 1, 1), torch.ones(3, 1, dtype=torch.long), torch.full((3, 1), 2.0))
>>> player.mean.flatten()                                  # nothing was seen of arm 0; (2 + 2 + 2) / (1 + 3)
tensor([0.0000, 1.5000], dtype=torch.float64)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from credent.bandits.agent import streams
from credent.errors import InputError


@dataclass(frozen=True)
class LinearThompson:
    """Exact Bayesian linear regression by arm; give the context a constant entry if arms need an intercept."""

    noise: float = 1.0
    prior: float = 1.0
    temperature: float = 1.0
    every: int = 1

    def __post_init__(self) -> None:
        if not (self.noise > 0 and self.prior > 0 and self.temperature >= 0):
            raise InputError(f"{self!r}: noise and prior are standard deviations above 0, temperature is at least 0.")

    def start(self, features: int, arms: int, seeds: Sequence[int]) -> "LinearPlayer":
        """Begin at the prior."""
        return LinearPlayer(self, features, arms, seeds)


class LinearPlayer:
    """The regressions of S seeds: `precision` (S, arms, features, features) and `mean` (S, arms, features)."""

    def __init__(self, agent: LinearThompson, features: int, arms: int, seeds: Sequence[int]) -> None:
        self.every, self._agent = agent.every, agent
        eye = torch.eye(features, dtype=torch.float64) / agent.prior**2
        self.precision = eye.repeat(len(seeds), arms, 1, 1)
        self._moment = torch.zeros(len(seeds), arms, features, dtype=torch.float64)
        self._generators = streams(seeds, "posterior")

    @property
    def mean(self) -> Tensor:
        """Posterior mean of theta."""
        found: Tensor = torch.linalg.solve(self.precision, self._moment)
        return found

    def draw(self) -> Tensor:
        """One draw of theta for each seed and arm, (S, arms, features)."""
        mean = self.mean
        noise = torch.stack([torch.randn(mean.shape[1:], generator=g, dtype=mean.dtype) for g in self._generators])
        root = torch.linalg.cholesky(self.precision)
        spread: Tensor = torch.linalg.solve_triangular(root.mT, noise[..., None], upper=True)[..., 0]
        return mean + math.sqrt(self._agent.temperature) * spread

    def choose(self, contexts: Tensor) -> Tensor:
        """The best arm under a fresh draw for each context."""
        x = contexts.double()
        return torch.stack([torch.einsum("saf,sf->sa", self.draw(), each).argmax(-1) for each in x])

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Conditioning."""
        x, taken = contexts.double(), functional.one_hot(arms, self.precision.shape[1]).double()
        weight = self._agent.noise**-2
        self.precision += weight * torch.einsum("nsa,nsf,nsg->safg", taken, x, x)
        self._moment += weight * torch.einsum("nsa,nsf,ns->saf", taken, x, rewards.double())
