"""Do the scales of q hold, or do they collapse? A monitor for `fit(..., monitors=[...])`.

    scale_ratio = mean over the weights of sigma / sigma_0,            sigma_0 when the monitor was built

sigma is what weights are drawn with: under a prior that changes q, the scale of what it makes of it.

It stays above zero where something holds the scales up, and falls towards zero where nothing does: without a KL, or
with one whose gradient is zero. The run's page draws it.

>>> from credent import VI, likelihoods
>>> bnn = VI(torch.nn.Linear(2, 1), likelihoods.Gaussian(), num_data=4)
>>> monitor = ScaleRatio(bnn, every=10)
>>> _ = bnn.posterior.scales.rho.data.sub_(0.6931472)     # log 2
>>> {k: round(v, 4) for k, v in monitor(bnn).items()}
{'scale_ratio': 0.5}
"""

from typing import Any

import torch
from torch import Tensor

from credent.errors import InputError
from credent.families.location_scale import LocationScale
from credent.objectives import Objective


class ScaleRatio:
    """Mean sigma / sigma_0, every so many optimiser steps."""

    def __init__(self, objective: Objective, every: int = 100) -> None:
        self.every = every
        self._first = _log_sigma(objective).clone()

    def __call__(self, objective: Objective) -> dict[str, float]:
        """The ratio now."""
        now = _log_sigma(objective)
        return {"scale_ratio": float((now - self._first.to(now)).exp().double().mean())}

    def state_dict(self) -> dict[str, Any]:
        """The first scales."""
        return {"first": self._first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with these."""
        self._first = state["first"]


def _log_sigma(objective: Objective) -> Tensor:
    q = objective.posterior
    if not isinstance(q, LocationScale):
        raise InputError(
            f"ScaleRatio watches the scales of q, and {type(objective).__name__} has none: train with cr.VI or cr.VL."
        )
    rho = q.scales.log_sigma().detach()
    return rho if rho.dtype == torch.float64 else rho.float()
