"""How noisy a batch's gradient is: its mean and variance over the draws of the weights, for each group of parameters.

    g_k = gradient of the loss of one and the same batch at draw k,        k = 1 ... K, independent

    mean = (1/K) sum_k g_k,  good to sqrt(variance / K);      variance = sum_k (g_k - mean)^2 / (K - 1)

What estimators and kinds of noise differ in is the variance: the mean says that they train towards the same. Compare
`VI(estimator="path" | "total" | "score")` with each other, and `VI(noise="weight" | "local" | "flipout")`.

Shapes: all that a `GradientNoise` holds is (p,), one number for every parameter of the group, in the order of
`objective.param_groups`.

>>> bnn = VI(nn.Linear(1, 1, bias=False), likelihoods.Gaussian(1.0), num_data=1, estimator="path")
>>> _ = bnn.net.weight.data.fill_(0.0)
>>> _ = bnn.q.scales.rho.data.fill_(math.log(0.5))            # q = N(0, 1/4), p = N(0, 1): path is (s - 1/s) e by mu
>>> found = gradient_noise(bnn, (torch.zeros(1, 1), torch.zeros(1, 1)), draws=500)
>>> abs(found["means"].total - 1.5**2) < 4 * found["means"].variance_error.item()
True
"""

import copy
import math  # noqa: F401  (the doctest's)
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn  # noqa: F401  (nn: the doctest's)

from credent import likelihoods  # noqa: F401  (the doctest's)
from credent.errors import InputError
from credent.noise import Noise
from credent.objectives.objective import Objective
from credent.objectives.vi import VI  # noqa: F401  (the doctest's)


@dataclass(frozen=True)
class GradientNoise:
    """Mean and variance of one group's gradient, parameter by parameter, and how well they are known."""

    mean: Tensor
    variance: Tensor
    mean_error: Tensor
    """Standard error of the mean."""
    variance_error: Tensor
    """Standard error of the variance, from the fourth moment."""
    draws: int

    @property
    def total(self) -> float:
        """The variance summed over the group: the expected squared distance of a gradient from its mean."""
        return self.variance.sum().item()


def gradient_noise(
    objective: Objective, batch: tuple[Any, Tensor], draws: int = 200, seed: int = 0
) -> dict[str, GradientNoise]:
    """Differentiate the loss of `batch` at so many independent draws; by the name of the group.

    Training draws in mirrored pairs; here every draw has a seed of its own. Dropout draws anew, too. The objective is
    as it was afterwards: streams, running statistics, gradients.
    """
    if draws < 2:
        raise InputError(f"gradient_noise(draws={draws}): a variance needs two draws, and a good one hundreds.")
    groups = {group["name"]: list(group["params"]) for group in objective.param_groups(lr=0.0)}
    leaves = [p for params in groups.values() for p in params]
    streams = [module for module in objective.modules() if isinstance(module, Noise)]
    seeds = torch.Generator().manual_seed(seed)
    state, last = copy.deepcopy(objective.state_dict()), objective.last
    moments = _Moments()
    try:
        with torch.random.fork_rng(), objective.network.frozen_statistics(), objective.steady():
            for _ in range(draws):
                for each in streams:
                    each.seed(_drawn(seeds))
                torch.manual_seed(_drawn(seeds))
                grads = torch.autograd.grad(objective(*batch), leaves, allow_unused=True, materialize_grads=True)
                moments.add(torch.cat([g.flatten() for g in grads]).double())
    finally:
        objective.load_state_dict(state)
        objective.last = last
    sizes = [sum(p.numel() for p in params) for params in groups.values()]
    columns = (torch.split(each, sizes) for each in moments.found())
    return {
        name: GradientNoise(mean, variance, mean_error, variance_error, draws)
        for name, mean, variance, mean_error, variance_error in zip(groups, *columns, strict=True)
    }


def _drawn(seeds: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=seeds))


class _Moments:
    """Four sums of distances from the first gradient, from which central moments follow without keeping the rest."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, g: Tensor) -> None:
        """One more gradient, (p,)."""
        if self.count == 0:
            self._first, self._sums = g, [torch.zeros_like(g) for _ in range(4)]
        distance = g - self._first
        for power, total in enumerate(self._sums, 1):
            total.add_(distance**power)
        self.count += 1

    def found(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean, variance, and the standard error of each."""
        n = self.count
        a, b, c, d = (total / n for total in self._sums)
        spread = (b - a**2).clamp_min(0)
        fourth = d - 4 * a * c + 6 * a**2 * b - 3 * a**4
        variance = spread * (n / (n - 1))
        error = ((fourth - spread**2).clamp_min(0) / n).sqrt()
        return self._first + a, variance, (variance / n).sqrt(), error
