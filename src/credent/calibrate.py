"""Predictions at the temperature that data which were not trained on choose.

    p_T(y | x) = (1/S) sum_s softmax(f_s(x) / T)_y,        T = argmax_T sum_i log p_T(y_i | x_i)

One number, so a few hundred labelled examples are enough, and nothing that is more likely than something else under all
draws becomes less so. Above 1 it makes predictions more doubtful: most single networks are too sure. Below 1 it makes
them surer: ensembles of networks that are each right about their doubt are together too doubtful. Every draw is divided
by T, so that the parts of the uncertainty still add up. [Guo et al. 2017; of mixtures, Rahaman & Thiery 2021]

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
from collections.abc import Iterable
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from credent.errors import InputError
from credent.families.posterior import Posterior
from credent.likelihoods import Bernoulli, Categorical, Likelihood
from credent.predict import predict
from credent.predictive import Predictive

_FARTHEST = 20.0
_NOTHING = 1e-6  # nats: labels that say nothing about it, since all of them are right


def calibrate(net: nn.Module, posterior: Posterior, likelihood: Likelihood, x: Any, y: Tensor, **options: Any) -> float:
    """Set the likelihood's temperature to the one under which the labels `y` of `x` are most probable; return it.

    Options are those of `predict`; the outputs of all draws are held at a time. Where no temperature is best, because
    all labels are right or none is known, it stays as it was, with a warning.
    """
    if not isinstance(likelihood, Categorical | Bernoulli):
        raise InputError(
            f"calibrate sets the temperature of Categorical and Bernoulli, and {type(likelihood).__name__} has none."
            " A regression's noise can be learnt, as in likelihoods.Gaussian('learnt')."
        )
    collected = _Collected(likelihood)
    predict(net, posterior, collected, x, **options)
    if not all(bool(f.isfinite().all()) for f in collected.outputs):
        raise InputError("calibrate: the network's outputs for these inputs are not all finite.")
    before = likelihood.temperature.clone()
    with torch.no_grad():
        likelihood.log_prob(collected.outputs[0], y)  # or it says what is wrong with these labels
        try:
            found = minimize_scalar(
                lambda log_t: _nll(likelihood, math.exp(log_t), collected.outputs, y),
                bounds=(-math.log(_FARTHEST), math.log(_FARTHEST)),
                method="bounded",
                options={"xatol": 1e-5},
            )
        except BaseException:
            likelihood.temperature.copy_(before)
            raise
        if abs(found.x) > 0.99 * math.log(_FARTHEST) or found.fun < _NOTHING:
            likelihood.temperature.copy_(before)
            warnings.warn(
                f"no temperature between 1/{_FARTHEST:.0f} and {_FARTHEST:.0f} is best for these {len(y)} labels: all"
                f" of them are right, or the network does not know them at all. It stays at {float(before):.3g}.",
                stacklevel=2,
            )
        else:
            likelihood.temperature.fill_(math.exp(found.x))
    return float(likelihood.temperature)


def _nll(likelihood: Categorical | Bernoulli, temperature: float, outputs: list[Tensor], y: Tensor) -> float:
    likelihood.temperature.fill_(temperature)
    return -float(likelihood.predictive(outputs).log_prob(y).double().mean())


class _Collected(Likelihood):
    """In the place of a likelihood, keeps what it would make a prediction of."""

    keeps_draws = True

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        self._likelihood, self.outputs = likelihood, list[Tensor]()

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        return self._likelihood.log_prob(outputs, y)

    def draw(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self._likelihood.draw(outputs, generator)

    def predictive(self, outputs: Iterable[Tensor]) -> Predictive:
        self.outputs = list(outputs)
        return self._likelihood.predictive(self.outputs)
