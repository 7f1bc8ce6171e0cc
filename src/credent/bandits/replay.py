"""What has been tried and what it paid, the last `capacity` trials of each seed, and minibatches of them.

Minibatches are drawn without replacement, for each seed from a stream of its own, so that a seed sees the same ones
whether it runs alone or beside others.

Shapes: contexts (n, S, features), arms and rewards (n, S).

>>> replay = Replay(capacity=3, features=1, seeds=1)
>>> replay.add(torch.arange(5.0).view(5, 1, 1), torch.zeros(5, 1, dtype=torch.long), torch.arange(5.0).view(5, 1))
>>> len(replay), sorted(replay.minibatch(8, [torch.Generator()])[2].flatten().tolist())
(3, [2.0, 3.0, 4.0])
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from credent.errors import InputError


class Replay:
    """A ring of trials for several seeds that move in step."""

    def __init__(self, capacity: int, features: int, seeds: int) -> None:
        if capacity < 1:
            raise InputError(f"Replay(capacity={capacity}): a buffer that keeps nothing teaches nothing.")
        self._contexts = torch.empty(capacity, seeds, features)
        self._arms = torch.empty(capacity, seeds, dtype=torch.long)
        self._rewards = torch.empty(capacity, seeds)
        self._seeds = torch.arange(seeds)
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, len(self._arms))

    def add(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Keep these trials in the place of the oldest."""
        kept = min(len(arms), len(self._arms))
        at = (self._added + torch.arange(len(arms) - kept, len(arms))) % len(self._arms)
        self._contexts[at], self._arms[at], self._rewards[at] = contexts[-kept:], arms[-kept:], rewards[-kept:]
        self._added += len(arms)

    def minibatch(self, size: int, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor, Tensor]:
        """At most `size` different trials of each seed."""
        drawn = [torch.randperm(len(self), generator=generator)[:size] for generator in generators]
        rows = torch.stack(drawn, 1)
        at = (rows * len(self._seeds) + self._seeds).flatten()  # one index into trials of all seeds: much the fastest
        x = self._contexts.flatten(0, 1).index_select(0, at).view(*rows.shape, -1)
        return x, self._arms.view(-1)[at].view(rows.shape), self._rewards.view(-1)[at].view(rows.shape)
