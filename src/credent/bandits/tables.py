"""Classification tables as bandits: rows come at random, with replacement, and the class decides what each arm pays.

    Mushroom    0 for leaving it; eating pays 5 if edible, and 5 or -35 with even chances if poisonous
    Shuttle, Covertype, Adult     1 for naming the class, 0 otherwise

With a share e of edible mushrooms, E[r | eat] = 5 or -15, and the regret of a step is 5e for never eating, 15(1 - e)
for always eating, and their mean for the toss of a coin: 2.5899, 7.2304 and 4.9101. (Riquelme, Tucker, Snoek 2018.)
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from credent import data
from credent.bandits.environment import Trials

EDIBLE, POISON, ESCAPE = 5.0, -35.0, 0.5


@dataclass(frozen=True)
class Mushroom:
    """Arm 0 leaves the mushroom, arm 1 eats it."""

    data_dir: str | None = None
    features = 117
    arms = 2

    def trials(self, n: int, generator: torch.Generator) -> Trials:
        """Mushrooms with replacement, each with its own luck."""
        x, y = _drawn("mushroom", self.data_dir, None, n, generator)
        poisonous = y == 1
        lucky = torch.rand(n, generator=generator) < ESCAPE
        eaten = torch.where(poisonous & ~lucky, POISON, EDIBLE)
        mean = torch.where(poisonous, ESCAPE * EDIBLE + (1 - ESCAPE) * POISON, EDIBLE)
        left = torch.zeros(n)
        return Trials(x, torch.stack([left, mean], 1), torch.stack([left, eaten], 1))


@dataclass(frozen=True)
class Shuttle:
    """The state of a shuttle's radiator, Statlog."""

    data_dir: str | None = None
    features = 9
    arms = 7

    def trials(self, n: int, generator: torch.Generator) -> Trials:
        """Rows with replacement."""
        return _naming(*_drawn("shuttle", self.data_dir, None, n, generator), self.arms)


@dataclass(frozen=True)
class Covertype:
    """The kind of forest on a patch of land."""

    data_dir: str | None = None
    features = 54
    arms = 7

    def trials(self, n: int, generator: torch.Generator) -> Trials:
        """Rows with replacement."""
        return _naming(*_drawn("covertype", self.data_dir, None, n, generator), self.arms)


@dataclass(frozen=True)
class Adult:
    """A person's occupation, the papers' "Census"; `features` is 92, or 94 as the papers count."""

    data_dir: str | None = None
    features: int = 92
    arms = 14

    def trials(self, n: int, generator: torch.Generator) -> Trials:
        """Rows with replacement."""
        return _naming(*_drawn("adult", self.data_dir, self.features, n, generator), self.arms)


def _naming(x: Tensor, y: Tensor, arms: int) -> Trials:
    pays = torch.nn.functional.one_hot(y, arms).float()
    return Trials(x, pays, pays)


def _drawn(
    name: str, data_dir: str | None, features: int | None, n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    x, y = _rows(name, data_dir, features)
    chosen = torch.randint(len(y), (n,), generator=generator)
    return x[chosen], y[chosen]


@functools.lru_cache(maxsize=1)  # the largest table takes 125 MB; a process plays on one at a time
def _rows(name: str, data_dir: str | None, features: int | None) -> tuple[Tensor, Tensor]:
    options = {} if features is None else {"features": features}
    x, y = data.load(f"bandits/{name}", data_dir, val_share=0.0, test_share=0.0, **options).train.tensors
    return x, y
