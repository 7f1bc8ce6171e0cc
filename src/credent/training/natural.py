"""What `optim.Natural` must agree on with the rest of a run, for q to be the posterior that its budget names.

Nothing bends the gradient between the two, and at the end all of the budget is spent.
"""

import warnings

from torch.optim import Optimizer

from credent.errors import ConvergenceWarning, InputError
from credent.optim.natural import Natural
from credent.optim.together import Together


def naturals(optimizer: Optimizer) -> list[Natural]:
    """The optimiser itself, or those within `optim.Together`."""
    if isinstance(optimizer, Together):
        return [found for each in optimizer.optimizers for found in naturals(each)]
    return [optimizer] if isinstance(optimizer, Natural) else []


def check_natural(optimizer: Optimizer, clip: float | None) -> None:
    """A clipped gradient of the means would not belong to the curvature that moves the scales."""
    if clip is not None and naturals(optimizer):
        raise InputError(
            f"clip={clip} bounds the gradient and not the curvature, so q would not be the posterior any more: leave"
            " clip out, and build optim.Natural with more steps= if training diverges."
        )


def warn_of_budget(optimizer: Optimizer) -> None:
    """Less than the budget is another power of the likelihood than was asked for."""
    for each in naturals(optimizer):
        if not each.done:
            spent = each.param_groups[0]["spent"]
            warnings.warn(
                f"{spent:.3g} of Natural(budget={each.budget:g}) is spent: q is the posterior under the likelihood to"
                f" the power of {spent:.3g}. Give steps= the number of optimiser steps (ceil(len(loader) / accumulate)"
                " an epoch) and no schedule that only lowers the rate, or train on.",
                ConvergenceWarning,
                stacklevel=3,
            )
