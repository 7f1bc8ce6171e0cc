"""Weights of the KL that change over training: beta as a function of the number of batches seen.

    Annealed    beta rises linearly from 0 to `end` over `batches` batches
    Cyclical    beta rises so over the first `share` of every `batches` batches, and stays for the rest of them
    PerBatch    batch i of every M gets beta_i = M pi_i, with pi_1 + ... + pi_M = 1: over an epoch the KL counts once

The uniform pi_i = 1/M is beta = 1. `PerBatch.geometric` makes the early batches of an epoch pay more,
pi_i = ratio^i / sum_k ratio^k; ratio 1/2 gives 2^(M-i) / (2^M - 1) [Blundell et al. 2015].

The first two are schedules over a whole training and conserve nothing: while beta is below `end`, an epoch pays less
than `end` times the KL. Where an epoch's weights should have the schedule's shape and sum to one all the same,
`PerBatch.shaped` divides by their sum. [Fu et al. 2019]

>>> [round(Annealed(batches=4)(i), 2) for i in (0, 2, 4, 9)]
[0.0, 0.5, 1.0, 1.0]
>>> [Cyclical(batches=4)(i) for i in range(8)]
[0.0, 0.5, 1.0, 1.0, 0.0, 0.5, 1.0, 1.0]
>>> [round(p, 6) for p in PerBatch.geometric(5, ratio=0.5).weights]
[0.516129, 0.258065, 0.129032, 0.064516, 0.032258]
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from credent.errors import InputError


@dataclass(frozen=True)
class Annealed:
    """Linear warm-up of beta."""

    batches: int
    end: float = 1.0

    def __post_init__(self) -> None:
        if self.batches < 1 or not self.end >= 0:
            raise InputError(f"Annealed(batches={self.batches}, end={self.end}): needs batches >= 1 and end >= 0.")

    def __call__(self, batch: int) -> float:
        """beta for the batch with this number, counted from 0."""
        return self.end * min(1.0, batch / self.batches)


@dataclass(frozen=True)
class Cyclical:
    """Linear warm-up that starts over every `batches` batches, without end.

    A cycle in which r batches rise pays (r + 1) / 2 batches less than `end` would.
    """

    batches: int
    share: float = 0.5
    """Of a cycle, in which beta rises."""
    end: float = 1.0

    def __post_init__(self) -> None:
        if self.batches < 1 or not 0 < self.share <= 1 or not self.end >= 0:
            raise InputError(
                f"Cyclical(batches={self.batches}, share={self.share}, end={self.end}): needs batches >= 1 in a cycle,"
                " a share in (0, 1] of them that rises, and end >= 0."
            )

    def __call__(self, batch: int) -> float:
        """beta for the batch with this number, counted from 0."""
        return self.end * min(1.0, batch % self.batches / (self.share * self.batches))


@dataclass(frozen=True)
class PerBatch:
    """One weight per batch of an epoch; they sum to one, and start over with every epoch."""

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.weights or min(self.weights) < 0 or not math.isclose(sum(self.weights), 1, abs_tol=1e-6):
            raise InputError(
                f"PerBatch: {len(self.weights)} weights that sum to {sum(self.weights):.6g}; an epoch's weights are not"
                " negative and sum to 1, so that the KL counts once per epoch."
            )

    def __call__(self, batch: int) -> float:
        """beta for the batch with this number, counted from 0."""
        return len(self.weights) * self.weights[batch % len(self.weights)]

    @classmethod
    def geometric(cls, batches: int, ratio: float) -> "PerBatch":
        """pi_i proportional to ratio^i, in log-space: any number of batches, any positive ratio."""
        if batches < 1 or not 0 < ratio < math.inf:
            raise InputError(f"PerBatch.geometric({batches}, ratio={ratio}): needs batches >= 1 and ratio > 0.")
        return cls(tuple(np.exp(log_softmax(np.arange(batches) * math.log(ratio))).tolist()))

    @classmethod
    def shaped(cls, batches: int, beta: Callable[[int], float]) -> "PerBatch":
        """pi_i proportional to the betas of one epoch, counted from 0: a schedule's shape, and the KL counts once."""
        values = [beta(i) for i in range(batches)]
        total = sum(values)
        if not values or min(values) < 0 or not 0 < total < math.inf:
            raise InputError(
                f"PerBatch.shaped({batches}, {beta!r}): the values of an epoch's batches are not negative, and one is"
                " positive, so that their sum can be divided by; an annealing wants more batches than one."
            )
        return cls(tuple(value / total for value in values))
