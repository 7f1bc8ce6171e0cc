"""The robust region of heavy-ball momentum: rates at which every curvature contracts alike.

    v <- mu v - alpha g,  w <- w + v     on  h w^2 / 2  contracts at the rate  sqrt(mu)  exactly where

    (1 - sqrt(mu))^2  <=  alpha h  <=  (1 + sqrt(mu))^2                                   [Zhang, Mitliagkas 2019]

Elsewhere it is slower, and beyond alpha h = 2 (1 + mu) it diverges.

>>> [round(spectral_radius(0.25, rate), 4) for rate in (0.5 * 0.25, 1.0, 1.05 * 2.25)]        # h = 1
[0.8202, 0.5, 0.8]
>>> rates(0.25, curvature=2.0)
(0.125, 1.125)
>>> region(curvature=2.0, momenta=(0.0, 0.25)).highest
(0.5, 1.125)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.objectives.objective import Objective

_MOMENTA = tuple(i / 100 for i in range(100))


def rates(momentum: float, curvature: float) -> tuple[float, float]:
    """The smallest and the largest rate inside the region for this curvature."""
    if not (0 <= momentum < 1 and curvature > 0):
        raise InputError(f"rates({momentum}, curvature={curvature}): momentum in [0, 1) and a positive curvature.")
    root = math.sqrt(momentum)
    return (1 - root) ** 2 / curvature, (1 + root) ** 2 / curvature


@dataclass(frozen=True)
class Region:
    """The region of one curvature in the plane of momentum and rate: two curves, (m,) each."""

    curvature: float
    momenta: tuple[float, ...]
    lowest: tuple[float, ...]
    """The smallest robust rate at each momentum."""
    highest: tuple[float, ...]
    """The largest."""


def region(curvature: float, momenta: Sequence[float] = _MOMENTA) -> Region:
    """The curves that bound the region of this curvature."""
    lowest, highest = zip(*(rates(momentum, curvature) for momentum in momenta), strict=True)
    return Region(curvature, tuple(momenta), lowest, highest)


def region_of(objective: Objective, batch: tuple[Any, Tensor], steps: int = 30) -> Region:
    """The same for the largest curvature of an objective, estimated on a batch: `region(curvature(...))`.

    Flatter directions ask for larger rates; the momentum that takes them all in is where their regions overlap.
    """
    found = curvature(objective, batch, steps)
    if not found > 0:
        raise InputError(
            f"region_of: the largest curvature in size is {found:.3g} on this batch, and momentum contracts on positive"
            " ones alone. Train for some steps, or give a larger batch, and ask again."
        )
    return region(found)


def spectral_radius(momentum: float, rate: float, curvature: float = 1.0) -> float:
    """The factor by which the distance to the optimum shrinks per step in the long run; above one it grows."""
    half = (1 + momentum - rate * curvature) / 2
    inside = half**2 - momentum
    return math.sqrt(momentum) if inside <= 0 else abs(half) + math.sqrt(inside)


def curvature(objective: Objective, batch: tuple[Any, Tensor], steps: int = 30) -> float:
    """The eigenvalue, largest in size, of the Hessian of a batch's mean NLL at the means, by power iteration."""
    if steps < 1:
        raise InputError(f"curvature(steps={steps}): at least one step of the power iteration.")
    x, y = batch
    means = list(objective.layout.params().values())
    with objective.network.frozen_statistics():
        nll = objective.likelihood.mean_nll(objective.network.mean(x), y)
    grads = torch.autograd.grad(nll, means, create_graph=True)
    direction = [torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(0)) for p in means]
    direction = [d.to(p.device) for d, p in zip(direction, means, strict=True)]
    value = 0.0
    for _ in range(steps):
        length = nn.utils.get_total_norm(direction)
        direction = [d / length for d in direction]
        product = torch.autograd.grad(grads, means, direction, retain_graph=True)
        value = sum(float((d * p).sum()) for d, p in zip(direction, product, strict=True))
        direction = list(product)
    return value
