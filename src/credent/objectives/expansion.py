"""What a second-order expansion asks for: second derivatives, curvature of the right sign, a prior with a variance.

    E_q [-log p]  =  -log p(mu) + 1/2 sum_i sigma_i^2 H_ii ,        H_ii > -beta / (N s_i^2)

H is the Hessian of the mean loss, s the prior's deviation: where H_ii is less, sigma_i grows without bound.
[Unlu & Aitchison 2021, eq. 20]

>>> spreads(priors.Gaussian(scale=0.5).bind(Layout(nn.Linear(1, 1))), Layout(nn.Linear(1, 1)))
{'weight': 0.5, 'bias': 0.5}
"""

import math
import warnings
from collections.abc import Mapping

from torch import Tensor, nn  # noqa: F401  (nn: the doctest's)

from credent import priors
from credent.errors import InputError
from credent.layout import Layout
from credent.penalty import Penalty
from credent.smooth import Watch


def spreads(penalty: Penalty, layout: Layout) -> Mapping[str, float]:
    """The prior's standard deviation of each tensor; a penalty without a density has the layers' natural scale."""
    if not isinstance(penalty, priors.Prior):
        return {k: role.natural_scale for k, role in layout.roles.items()}
    spread = penalty.stddev()
    if spread is None or not all(math.isfinite(s) for s in spread.values()):
        raise InputError(
            "VL needs the prior's E[w^2], and this prior has no variance: take priors.Gaussian, priors.Laplace or"
            " another with one."
        )
    return spread


def refuse(watch: Watch, who: str, mend: str = "") -> None:
    """Kinks and dropout, seen by a forward that was watched, have no place where curvature is differentiated."""
    if watch.kinks:
        others = "curvature='finite_difference', which takes any network"
        smoothed = f"VL(credent.smooth(net), ...), which has softplus there, or {others}"
        mend = mend or (others if watch.stubborn else smoothed)
        raise InputError(
            f"{who} differentiates the network twice, and {_listed(watch.stubborn or watch.kinks)} is linear in"
            f" pieces: all its curvature sits in kinks where no derivative finds it. Write {mend}."
        )
    if watch.dropout:
        raise InputError(
            f"{who} differentiates the network twice, and with {_listed(watch.dropout)} the curvature would be that"
            " of one random mask. Take curvature='finite_difference', which holds the masks fixed, or set p=0."
        )


def warn_of_wrong_curvature(diagonal: Mapping[str, Tensor], spread: Mapping[str, float], over: float) -> bool:
    """Say where H_ii < -over / s_i^2, over = beta / N; whether there was anything to say."""
    wrong = {k: int((-h > over / spread[k] ** 2).sum()) for k, h in diagonal.items()}
    if not any(wrong.values()):
        return False
    worst, total = max(wrong, key=lambda k: wrong[k]), sum(h.numel() for h in diagonal.values())
    warnings.warn(
        f"VL(curvature='hessian'): {sum(wrong.values())} of {total} weights, most of them in"
        f" {worst!r}, lie where the log-likelihood curves up by more than the prior curves down (H > beta/s^2):"
        " their scales grow without bound. The Fisher information never does this:"
        " curvature='finite_difference'. This is said once.",
        stacklevel=7,  # the line that calls the objective
    )
    return True


def _listed(names: list[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:3]) + (f" and {len(distinct) - 3} more" if len(distinct) > 3 else "")
