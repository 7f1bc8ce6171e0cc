"""Bandits that need no files.

    Linear    r = <theta_a, x> + noise,   x ~ N(0, I),  theta_a ~ N(0, I / features), drawn once by `seed`

    Wheel     x uniform in the unit disc.   arm 0 pays `safe` on average, everywhere; the others `poor`, but for one:
              outside radius `delta`, the arm of x's own quadrant pays `rich`.            Riquelme, Tucker, Snoek 2018

Of the disc a share 1 - delta^2 is rich, so exploring pays seldom and much. A step's mean regret is (1 - delta^2)(rich -
safe) for who always plays safe.

>>> trials = Wheel(delta=0.95).trials(4, torch.Generator().manual_seed(0))
>>> trials.contexts.norm(dim=1).max() <= 1
tensor(True)
>>> sorted(set(trials.expected[:, 0].tolist()))
[1.2000000476837158]
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from credent.bandits.environment import Trials
from credent.errors import InputError


@dataclass(frozen=True)
class Linear:
    """Arms whose rewards are linear in the context; `noise` is the rewards' standard deviation."""

    features: int = 8
    arms: int = 4
    noise: float = 0.5
    seed: int = 0

    @property
    def theta(self) -> Tensor:
        """The weights of each arm, (arms, features)."""
        drawn = torch.randn(self.arms, self.features, generator=torch.Generator().manual_seed(self.seed))
        return drawn / math.sqrt(self.features)

    def trials(self, n: int, generator: torch.Generator) -> Trials:
        """Gaussian contexts."""
        x = torch.randn(n, self.features, generator=generator)
        expected = x @ self.theta.T
        return Trials(x, expected, expected + self.noise * torch.randn(expected.shape, generator=generator))


@dataclass(frozen=True)
class Wheel:
    """A wheel whose rim is rich; `noise` is the rewards' standard deviation."""

    delta: float = 0.95
    safe: float = 1.2
    poor: float = 1.0
    rich: float = 50.0
    noise: float = 0.01
    features = 2
    arms = 5

    def __post_init__(self) -> None:
        if not 0 <= self.delta <= 1:
            raise InputError(f"Wheel(delta={self.delta}): the rim begins at a radius between 0 and 1.")

    def trials(self, n: int, generator: torch.Generator) -> Trials:
        """Contexts all over the disc."""
        radius = torch.rand(n, generator=generator).sqrt()
        angle = 2 * math.pi * torch.rand(n, generator=generator)
        x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
        expected = self.expected(x)
        return Trials(x, expected, expected + self.noise * torch.randn(expected.shape, generator=generator))

    def expected(self, x: Tensor) -> Tensor:
        """Mean reward of each arm at x (n, 2), (n, 5); arms 1 to 4 own the quadrants ++, +-, -+ and --."""
        means = x.new_full((len(x), self.arms), self.poor)
        means[:, 0] = self.safe
        own = 1 + 2 * (x[:, 0] < 0).long() + (x[:, 1] < 0).long()
        rim = x.norm(dim=1) > self.delta
        means[rim, own[rim]] = self.rich
        return means
