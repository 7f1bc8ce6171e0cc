"""What a sampler must agree on with the rest of a run, for its draws to be those of the posterior.

It walks on MAP's gradient under a prior with a density, for as many data as the objective has, on the random parameters
and no others; nothing bends the gradient between the two, and what is kept comes from after its burn-in.
"""

import math
import warnings

from torch import Tensor, nn
from torch.optim import Optimizer

from credent.errors import InputError
from credent.noise import Noise
from credent.objectives import MAP, Objective, Stacked
from credent.priors import Prior
from credent.samplers import BNPSGLD, Langevin
from credent.training.thin import Thin


def noises(objective: nn.Module, optimizer: Optimizer) -> list[Noise]:
    """Every stream that weights are drawn from: the objective's own, and a sampler's."""
    found = [module for module in objective.modules() if isinstance(module, Noise)]
    return [*found, optimizer.noise] if isinstance(optimizer, Langevin) else found


def check_sampler(objective: Objective, sampler: Langevin, clip: float | None) -> None:
    """A sampler draws from the posterior that the objective describes only if both speak of the same one."""
    name = type(sampler).__name__
    draws = _draws(sampler)
    if isinstance(objective, Stacked) and isinstance(sampler, BNPSGLD):
        raise InputError(
            "BNPSGLD knows the inputs of one network's layers, and a stack runs many networks in one call: take PSGLD"
            " for the stack, or BNPSGLD for chains in processes of their own, cr.chains(...)."
        )
    if draws and not isinstance(objective, MAP | Stacked):
        raise InputError(
            f"{name} walks on the gradient of the log joint density, which is MAP's, and got"
            f" {type(objective).__name__}, which learns a distribution of its own: write cr.MAP(net,"
            f" likelihood, prior, num_data={sampler.num_data})."
        )
    if draws and not isinstance(objective.penalty, Prior):
        raise InputError(
            f"{name} draws from a density, and {objective.described} is a penalty without one. Take the prior"
            " behind it: for L2 cr.priors.Gaussian and for L1 cr.priors.Laplace with the same rule, or, for a number,"
            " cr.penalties.prior_of(penalty, cr.penalties.Dirac); groups have none. Or keep the penalty and take an"
            " optimiser such as torch.optim.Adam."
        )
    if sampler.num_data != objective.num_data:
        raise InputError(
            f"{name}(num_data={sampler.num_data}) and an objective with num_data={objective.num_data}: the noise is"
            " right for one number of data only. Give both the size of the training set."
        )
    random = {id(p) for p in objective.layout.params().values()}
    others = [k for k, p in objective.named_parameters() if id(p) not in random and _holds(sampler, p)]
    if draws and others:
        raise InputError(
            f"{name} would add noise to {others[0]!r}, which is not random: give it the random parameters only, as in"
            f" {name}(objective.layout.params().values(), ...)."
        )
    if draws:
        objective.layout.warn_of_padding()
    if draws and clip is not None:
        warnings.warn(
            f"clip={clip} bounds the gradient and not the noise, so {name} does not sample the posterior any more:"
            " leave clip out, and lower lr if the chain diverges.",
            stacklevel=3,
        )


def warn_of_no_draws(sampler: Langevin, keep: Thin | None) -> None:
    """A chain of which nothing is kept is a point, and knows no more than one."""
    if keep is None and _draws(sampler):
        warnings.warn(
            f"no draw of {type(sampler).__name__} is kept, so the posterior will be the point where the chain ends:"
            " write fit(..., keep=cr.Thin(after=0.5)), and predict with the result's posterior.",
            stacklevel=3,
        )


def warn_of_burn_in(sampler: Langevin, keep: Thin, total: int | None) -> None:
    """Draws from before the preconditioner is frozen are of no stationary law."""
    if total is None or sampler.burn_in is None or not _draws(sampler):
        return
    first = next(t for t in range(1, total + 1) if keep.keeps(t, total))
    if first > sampler.burn_in:
        return
    shares = (math.ceil(sampler.burn_in / total * 10**digits) / 10**digits for digits in (2, 3, 4, 5, 6))
    later = [Thin(after, keep.every, keep.max_bytes) for after in shares if after < 1]
    fitting = [thin for thin in later if thin.count(total) > 0]
    advice = f"Write Thin(after={fitting[0].after}), or run longer." if fitting else "Run longer."
    if not fitting and first > 1:
        advice = f"Write burn_in={first - 1}, or run longer."
    warnings.warn(
        f"draws are kept from step {first} on, and {type(sampler).__name__} adapts until step {sampler.burn_in}: until"
        f" then it does not sample the posterior. {advice}",
        stacklevel=3,
    )


def _draws(sampler: Langevin) -> bool:
    """Whether it adds noise; at temperature 0 it is an optimiser, of whatever objective."""
    return any(group["temperature"] > 0 for group in sampler.param_groups)


def _holds(optimizer: Optimizer, parameter: Tensor) -> bool:
    return any(p is parameter for group in optimizer.param_groups for p in group["params"])
