"""A recipe's chain: a sampler at a constant step, adapting for half of the run, and at most 50 draws of the other half.

    steps t with  t > T/2  and  (t - T/2) divisible by ceil(T / 100)                    of T in all

>>> thin(960), thin(960).count(960)
(Thin(after=0.5, every=10, max_bytes=4294967296), 48)
"""

import math
from typing import Any

from credent.objectives import Objective
from credent.samplers import BNPSGLD, PSGLD, SGLD, Langevin
from credent.training import Thin

_AFTER, _DRAWS = 0.5, 50
_STREAM = 2**31  # a smaller seed's numbers are in the first weights; of a seed torch takes the lower 32 bits alone


def burn_in(total: int) -> int:
    """Steps before the first that may be a draw."""
    return math.ceil(_AFTER * total)


def thin(total: int) -> Thin:
    """Which weights are kept of a run of so many steps."""
    return Thin(_AFTER, every=max(1, math.ceil((total - burn_in(total)) / _DRAWS)))


def check(objective: Objective, total: int) -> None:
    """Refuse what would give no draw, or more bytes of them than `Thin` allows."""
    each = sum(p.numel() * p.element_size() for p in objective.layout.params().values())
    thin(total).check(total, each)


def sampler(method: str, objective: Objective, lr: float, temperature: float, total: int, seed: int) -> Langevin:
    """The method's walk on the objective's random parameters."""
    shared: dict[str, Any] = {"num_data": objective.num_data, "temperature": temperature, "seed": _STREAM + seed}
    if method == "bnp":
        return BNPSGLD(objective.net, lr, burn_in=burn_in(total), **shared)
    params = objective.layout.params().values()
    if method == "psgld":
        return PSGLD(params, lr, burn_in=burn_in(total), **shared)
    return SGLD(params, lr, **shared)
