"""A trained run on data it never saw: the scores, and the numbers behind the pictures.

Classification: accuracy, NLL, Brier, ECE and MCE at 10 and 15 bins, what chance alone makes of the ECE, and how well
uncertainty tells strange inputs from familiar ones (AUROC of the predictive entropy and of the mutual information).
Regression: RMSE, NLL, CRPS, and coverage and width of 95 % intervals, all in the target's original units.

Strange inputs are made from the test inputs: `shuffled` permutes the pixels of each (same values, no shape), `noise`
draws every pixel from the marginal law of all pixels.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from credent import metrics
from credent.data import Data
from credent.families import Posterior
from credent.families.dirac import DiracPosterior
from credent.objectives import Objective
from credent.predict import predict
from credent.predictive import ClassPredictive, GaussianPredictive
from credent.training.short_chains import warn_of_short_chains

_ASKED = 64  # test inputs on which chains are compared


@dataclass(frozen=True)
class Evaluation:
    """Scores by name, the prediction they come from, and predictions on strange inputs by name."""

    scores: dict[str, float]
    predictive: ClassPredictive | GaussianPredictive
    strange: dict[str, ClassPredictive] = field(default_factory=dict)
    warning: str = ""
    """What is to be known before any of it is believed."""


def evaluate(objective: Objective, posterior: Posterior, data: Data, samples: int = 32, seed: int = 0) -> Evaluation:
    """Score a posterior on the test part of its data with `samples` draws; chains that are too short are warned of."""
    device = objective.layout.first().device
    x, y = (t.to(device) for t in data.test[:])

    statistics = statistics_for(objective, posterior, data)

    def ask(inputs: Tensor) -> ClassPredictive | GaussianPredictive:
        answer = predict(
            objective.net,
            posterior,
            objective.likelihood,
            inputs,
            samples=samples,
            how=objective.how,
            seed=seed,
            statistics=statistics,
        )
        assert isinstance(answer, ClassPredictive | GaussianPredictive)
        return answer

    warning = warn_of_short_chains(
        posterior, objective.net, objective.likelihood, x[:_ASKED], how=objective.how, statistics=statistics
    )
    pred = ask(x)
    if isinstance(pred, GaussianPredictive):
        return Evaluation(_regression_scores(pred, y, data), pred, warning=warning)
    strange = {}
    for name, inputs in strange_inputs(x, seed).items():
        answer = ask(inputs)
        assert isinstance(answer, ClassPredictive)
        strange[name] = answer
    return Evaluation(_class_scores(pred, y, strange), pred, strange, warning)


def statistics_for(objective: Objective, posterior: Posterior, data: Data) -> list[Tensor] | None:
    """Training inputs on which BatchNorm is re-estimated for each draw, where it follows random weights."""
    drawn = objective.how == "sampled" and not isinstance(posterior, DiracPosterior)
    if not drawn or not objective.network.normalises_after(objective.layout.names):
        return None
    device = objective.layout.first().device
    return [x.to(device) for x in data.train[:1024][0].split(256)]


def strange_inputs(x: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """Inputs that look like no test input, with the test inputs' values, each (n, *shape)."""
    generator = torch.Generator().manual_seed(seed)
    flat = x.flatten(1).cpu()
    order = torch.rand(flat.shape, generator=generator).argsort(1)
    drawn = torch.randint(flat.numel(), flat.shape, generator=generator)
    shuffled, noise = flat.gather(1, order), flat.flatten()[drawn]
    return {"shuffled": shuffled.reshape(x.shape).to(x), "noise": noise.reshape(x.shape).to(x)}


def _class_scores(pred: ClassPredictive, y: Tensor, strange: dict[str, ClassPredictive]) -> dict[str, float]:
    probs = pred.probs
    scores = {
        "accuracy": metrics.accuracy(probs, y),
        "nll": -pred.log_prob(y).double().mean().item(),  # from log-probabilities, which do not underflow
        "brier": metrics.brier(probs, y),
        "ece": metrics.ece(probs, y, bins=15),
        "ece_by_chance": metrics.ece_by_chance(probs, bins=15)[0],
        "mce": metrics.mce(probs, y, bins=15),
        "ece_10_bins": metrics.ece(probs, y, bins=10),
        "mce_10_bins": metrics.mce(probs, y, bins=10),
    }
    for name, other in strange.items():
        scores[f"auroc_{name}"] = metrics.auroc(pred.entropy, other.entropy)
        if pred.num_draws > 1:
            scores[f"auroc_{name}_mutual_information"] = metrics.auroc(
                pred.mutual_information, other.mutual_information
            )
    return scores


def _regression_scores(pred: GaussianPredictive, y: Tensor, data: Data) -> dict[str, float]:
    unit = data.target_std
    lower, upper = pred.interval(0.95)
    scales = pred.scales.expand_as(pred.means)
    return {
        "rmse": unit * metrics.rmse(pred.mean, y),
        "nll": math.log(unit) - pred.log_prob(y).double().mean().item(),
        "crps": unit * metrics.crps_mixture(pred.means[..., 0], scales[..., 0], y[:, 0]),
        "coverage": metrics.coverage(lower, upper, y),
        "interval_width": unit * (upper - lower).double().mean().item(),
    }
