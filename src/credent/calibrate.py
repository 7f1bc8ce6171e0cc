"""Predictions at the temperature that data which were not trained on choose.

    p(y | x) = (1/S) sum_s p(y | f_s(x)),     p_T(y | x) = p(y | x)^(1/T) / sum_k p(k | x)^(1/T)

    T = argmax_T sum_i log p_T(y_i | x_i)

The likeliest class stays. Labels that surprise the network tell most about T, and of a good one there are few: 5,000 of
Fashion-MNIST's tell it to 3 %, 300 of the digits', of which six are wrong, to a quarter. Above 1 it makes
predictions more doubtful: most single networks are too sure. Below 1 it makes them surer: ensembles of networks that
are each right about their doubt are together too doubtful. It is the average that is raised to 1/T and not every draw,
whose doubt the average would hide; of one draw it is the same. [Guo et al. 2017; of mixtures, Rahaman & Thiery 2021]

The likelihood keeps T, and with it every later prediction, file and page of it; training does not see it.

>>> from credent.families import Draws
>>> from credent.likelihoods import Bernoulli
>>> net = nn.Linear(1, 1, bias=False)
>>> likelihood, posterior = Bernoulli(), Draws([{"weight": torch.tensor([[4.0]])}])
>>> x, y = torch.ones(4, 1), torch.tensor([[1.0], [1.0], [1.0], [0.0]])          # three in four, where s(4) is 0.98
>>> round(calibrate(net, posterior, likelihood, x, y), 3)                        # 4 / log 3
3.641
>>> round(predict(net, posterior, likelihood, x).probs[0].item(), 3)
0.75
"""

import math
import warnings
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from credent.errors import InputError
from credent.families.posterior import Posterior
from credent.likelihoods import Bernoulli, Categorical, Likelihood
from credent.predict import predict
from credent.predictive import BinaryPredictive, ClassPredictive

_FARTHEST = 20.0
_NOTHING = 1e-6  # nats: labels that say nothing about it, since all of them are right


@torch.no_grad()
def calibrate(net: nn.Module, posterior: Posterior, likelihood: Likelihood, x: Any, y: Tensor, **options: Any) -> float:
    """Set the likelihood's temperature to the one under which the labels `y` of `x` are most probable; return it.

    Options are those of `predict`. Where no temperature is best, because all labels are right or none is known, it
    stays as it was, with a warning.
    """
    if not isinstance(likelihood, Categorical | Bernoulli):
        raise InputError(
            f"calibrate sets the temperature of Categorical and Bernoulli, and {type(likelihood).__name__} has none."
            " A regression's noise is learnt in training: likelihoods.Gaussian('learnt'), or 'heteroscedastic'."
        )
    if not isinstance(y, Tensor):
        raise InputError(f"calibrate needs labels as a tensor, and got {type(y).__name__}: torch.as_tensor(y).")
    before = float(likelihood.temperature)
    likelihood.temperature.fill_(1.0)
    try:
        pred = predict(net, posterior, likelihood, x, **options)
    finally:
        likelihood.temperature.fill_(before)
    assert isinstance(pred, ClassPredictive | BinaryPredictive)
    if bool(pred.log_probs.isnan().any()):
        raise InputError("calibrate: the network's outputs for these inputs are not all finite.")
    likelihood.log_prob(pred.log_probs, y)  # or it says what is wrong with these labels
    found = minimize_scalar(
        lambda log_t: -float(pred.at(math.exp(log_t)).log_prob(y).double().mean()),
        bounds=(-math.log(_FARTHEST), math.log(_FARTHEST)),
        method="bounded",
        options={"xatol": 1e-5},
    )
    if abs(found.x) > 0.99 * math.log(_FARTHEST) or found.fun < _NOTHING:
        warnings.warn(
            f"no temperature between 1/{_FARTHEST:.0f} and {_FARTHEST:.0f} is best for these {len(y)} labels: all"
            f" of them are right, or the network does not know them at all. It stays at {before:.3g}.",
            stacklevel=2,
        )
    else:
        likelihood.temperature.fill_(math.exp(found.x))
    return float(likelihood.temperature)
