"""What an agent is: a description that starts a player, and a player that chooses arms and learns from rewards.

A player acts for S seeds at once, which move in step: it chooses for `every` contexts of each seed, then sees what its
arms paid. An agent of your own is a class with `start`, or one class that is both:

>>> class Stubborn:
...     every = 10
...     def start(self, features, arms, seeds):
...         return self
...     def choose(self, contexts):
...         return torch.zeros(contexts.shape[:2], dtype=torch.long)
...     def learn(self, contexts, arms, rewards):
...         pass
>>> Stubborn().start(3, 2, (0, 1)).choose(torch.zeros(4, 2, 3)).shape
torch.Size([4, 2])

Shapes: contexts (n, S, features); arms and rewards (n, S).
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from credent.errors import InputError, NonFiniteError


class DivergedError(NonFiniteError):
    """These seeds can learn no more; a player that raises it from `learn` goes on for the others."""

    regret: Tensor | None = None
    """From `play`, when no seed is left: the regret of each until it diverged, then NaN, (seeds, steps)."""

    def __init__(self, reason: str, seeds: Sequence[int]) -> None:
        listed = ", ".join(map(str, seeds))
        super().__init__(f"seed{'s' if len(seeds) > 1 else ''} {listed}: {reason}")
        self.seeds = tuple(seeds)


class Player(Protocol):
    """An agent at play."""

    @property
    def every(self) -> int:
        """How many contexts it decides on before it learns what they paid."""
        ...

    def choose(self, contexts: Tensor) -> Tensor:
        """Arms for these contexts."""
        ...

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """What the arms that were chosen paid. May raise `DivergedError` for some seeds and play on with the rest."""
        ...


class Agent(Protocol):
    """A way to play. To be compared on disk it is a frozen dataclass of plain values."""

    def start(self, features: int, arms: int, seeds: Sequence[int]) -> Player:
        """A player who knows nothing yet, for as many runs as there are seeds."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Any arm, whatever the context."""

    def start(self, features: int, arms: int, seeds: Sequence[int]) -> Player:
        """Begin."""
        return _UniformPlayer(arms, streams(seeds, "explore"))


class _UniformPlayer:
    every = 20

    def __init__(self, arms: int, generators: Sequence[torch.Generator]) -> None:
        self._arms, self._generators = arms, generators

    def choose(self, contexts: Tensor) -> Tensor:
        return any_arms(len(contexts), self._arms, self._generators)

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        pass


def checked_seeds(seeds: Sequence[int], asker: str) -> tuple[int, ...]:
    """The seeds as plain numbers, all different."""
    try:
        found = tuple(operator.index(seed) for seed in seeds)
    except TypeError:
        raise InputError(
            f"{asker}(seeds={seeds!r}): a whole number for each run; for three runs write seeds=range(3)."
        ) from None
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise InputError(
            f"{asker}(seeds={found}): different seeds from 0 on, at least one. The same seed twice is one run counted"
            f" twice; write seeds=range({max(1, len(found))})."
        )
    return found


def any_arms(n: int, arms: int, generators: Sequence[torch.Generator]) -> Tensor:
    """Arms at random, (n, S), each seed's from its own stream."""
    return torch.stack([torch.randint(arms, (n,), generator=generator) for generator in generators], 1)


def streams(seeds: Sequence[int], purpose: str) -> list[torch.Generator]:
    """One stream of chance for each seed; different purposes have different ones."""
    return [torch.Generator().manual_seed(seed_for([seed], purpose)) for seed in seeds]


def seed_for(seeds: Sequence[int], purpose: str) -> int:
    """A number made of these seeds and a word."""
    entropy = [*seeds, int.from_bytes(purpose.encode(), "little")]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
