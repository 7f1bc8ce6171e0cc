"""What a bandit is: contexts, and for each arm an expected reward, so that regret is exact.

    regret of arm a in context x = max_b E[r | x, b] - E[r | x, a]

The agent sees the context and the reward of the arm it took; the expectations are for the judge alone. An environment
is anything with `features`, `arms` and `trials`: four lines make one.

Shapes: n trials; `contexts` (n, features), `expected` and `rewards` (n, arms), kept as float32 whatever came.

>>> class Coins:
...     features, arms = 1, 2
...     def trials(self, n, generator):
...         p = torch.tensor([0.4, 0.6]).expand(n, 2)
...         return Trials(torch.ones(n, 1), p, torch.bernoulli(p, generator=generator))
>>> trials = Coins().trials(3, torch.Generator())
>>> trials.regret(torch.tensor([0, 1, 0]))
tensor([0.2000, 0.0000, 0.2000])
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from credent.errors import InputError


@dataclass(frozen=True, eq=False)
class Trials:
    """Contexts in the order in which they come, with what each arm would pay on average and what it pays this time."""

    contexts: Tensor
    expected: Tensor
    rewards: Tensor

    def __post_init__(self) -> None:
        for name in ("contexts", "expected", "rewards"):
            object.__setattr__(self, name, torch.as_tensor(getattr(self, name), dtype=torch.float32))
        n = len(self.contexts)
        if self.contexts.ndim != 2 or self.expected.ndim != 2 or self.expected.shape != self.rewards.shape:
            raise InputError(
                f"Trials: contexts {tuple(self.contexts.shape)}, expected {tuple(self.expected.shape)} and rewards"
                f" {tuple(self.rewards.shape)} must be (n, features), (n, arms) and (n, arms)."
            )
        if len(self.expected) != n:
            raise InputError(f"Trials: {n} contexts came with the expected rewards of {len(self.expected)}.")
        for name in ("contexts", "expected", "rewards"):
            rows = ~getattr(self, name).isfinite().all(1)
            if bool(rows.any()):
                row = int(rows.nonzero()[0])
                raise InputError(
                    f"Trials: row {row} of {name} is {getattr(self, name)[row].tolist()}, and {int(rows.sum())} of {n}"
                    " rows are not finite numbers. Leave such trials out, or fill in what is missing."
                )

    def regret(self, arms: Tensor) -> Tensor:
        """Exact regret of taking `arms` (n,), (n,)."""
        return self.expected.amax(1) - self.expected.gather(1, arms[:, None])[:, 0]

    def reward(self, arms: Tensor) -> Tensor:
        """What `arms` (n,) pay, (n,)."""
        return self.rewards.gather(1, arms[:, None])[:, 0]


class Environment(Protocol):
    """A contextual bandit. To be compared on disk it is a frozen dataclass of plain values."""

    @property
    def features(self) -> int:
        """Numbers in a context."""
        ...

    @property
    def arms(self) -> int:
        """Arms to choose from."""
        ...

    def trials(self, n: int, generator: torch.Generator) -> Trials:
        """n fresh trials; all chance comes from the generator."""
        ...
