"""The page of a run and its figures: training, trust in its confidence, strange inputs, and the hardest cases."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from credent import metrics
from credent.data import Data, batches
from credent.evaluation import Evaluation, evaluate
from credent.families import Posterior
from credent.families.location_scale import LocationScale
from credent.likelihoods import Bernoulli, Categorical
from credent.objectives import Objective
from credent.predict import predict
from credent.predictive import ClassPredictive, GaussianPredictive
from credent.priors import Prior
from credent.report import Column, Estimate, Figure, Note, Page, Section, Table, plots, run_page
from credent.training.convergence import convergence

V = TypeVar("V")
_SHOWN = 12
_LEVELS = np.linspace(0.05, 0.95, 19)


def page(
    objective: Objective,
    posterior: Posterior,
    data: Data,
    history: Sequence[dict[str, Any]] = (),
    found: Evaluation | None = None,
    *,
    title: str = "",
    subtitle: str = "",
    settings: Mapping[str, Any] | None = None,
    footer: str = "",
) -> Page:
    """The page of a trained run: scores on its test data, every figure, what was run; `page(...).write("run.html")`.

    found: the scores and predictions of `evaluate`, where they are there already.
    """
    found = evaluate(objective, posterior, data) if found is None else found
    warning = f" Warning: {found.warning}" if found.warning else ""
    at = tempered(objective)
    calibrated = {} if at is None else {"calibrated temperature": f"{at:.3f}"}
    return run_page(
        title or f"{type(objective).__name__} on {data.name}",
        shown(found.scores),
        figures(objective, posterior, data, found, history),
        {**(settings or {}), **calibrated, "draws at test time": found.predictive.num_draws},
        more=[convergence_section(objective, data)] if pulled(objective) else [],
        subtitle=f"{subtitle}{len(data.train):,} training and {len(data.test):,} test examples.{warning}",
        footer=footer,
    )


def tempered(objective: Objective) -> float | None:
    """The temperature that calibration has set."""
    likelihood = objective.likelihood
    if not isinstance(likelihood, Categorical | Bernoulli) or likelihood.temperature == 1:
        return None
    return float(likelihood.temperature)


def figures(
    objective: Objective, posterior: Posterior, data: Data, evaluation: Evaluation, history: Sequence[dict[str, Any]]
) -> list[Figure]:
    """All figures that this kind of data has."""
    training = [plots.training_curves(history), *_scale_ratio(history)] if history else []
    x, y = data.test[:]
    if isinstance(evaluation.predictive, GaussianPredictive):
        band = [_band(objective, posterior, data)] if data.shape == (1,) else []
        return [*band, _interval_calibration(evaluation.predictive, y), *training]
    pred = evaluation.predictive
    return [*_trust(pred, y), *_strangers(evaluation), *_hardest(pred, x, y, data), *training]


def pulled(objective: Objective) -> bool:
    """Whether the question below can be asked: q has scales, and a prior with a density holds them up."""
    held = isinstance(objective.penalty, Prior) and objective.beta != 0
    return held and isinstance(objective.posterior, LocationScale)


def convergence_section(objective: Objective, data: Data) -> Section:
    """How far the scales of q are from where the loss wants them, tensor by tensor."""
    found = convergence(objective, batches(data.train, min(128, len(data.train)), shuffle=True, seed=0))
    columns = (
        Column("parameter"),
        Column("scales"),
        Column("log sigma / prior's"),
        Column("pull"),
        Column("still moving", "%"),
        Column("converged"),
    )
    rows = tuple(
        (c.name, c.size, c.log_ratio, Estimate(c.pull, c.error), c.moving, "yes" if c.converged else "no")
        for c in found
    )
    share = sum(c.moving * c.size for c in found) / sum(c.size for c in found)
    note = Note(
        f"{share:.1%} of all scales are still moving. The pull is sigma^2 over its optimum, less one, with its standard"
        " error over batches: zero where training is done, positive where a scale is still too wide, negative where it"
        " is too narrow and wants more steps or a larger rate for the scales. A tensor counts as converged where its"
        " mean pull is within 0.2, or within three standard errors, of zero."
    )
    return Section("Did the scales converge?", (note, Table("By parameter", columns, rows)))


def shown(scores: Mapping[str, V]) -> dict[str, V]:
    """The scores that stand on a page; strangers are noticed by the entropy, which every method has."""
    names = ("accuracy", "nll", "ece", "brier", "rmse", "crps", "coverage", "interval_width")
    strangers = {"auroc": scores["auroc_shuffled"]} if "auroc_shuffled" in scores else {}
    return {k: v for k, v in scores.items() if k in names} | strangers


def _scale_ratio(history: Sequence[dict[str, Any]]) -> list[Figure]:
    """How the scales went, where `training.ScaleRatio` watched them."""
    rows = [row for row in history if row.get("scale_ratio") is not None]
    if not rows:
        return []
    ratio = {"mean over all weights": ([row["step"] for row in rows], [row["scale_ratio"] for row in rows])}
    return [
        plots.curves(
            "Do its scales hold?",
            ratio,
            "Optimiser step",
            "Scale of q over its first",
            "The spread that training leaves the weights, over the spread they began with. It levels off where a prior"
            " holds it up; a curve that keeps falling towards zero is a network becoming a single set of weights.",
            topic="How it learned",
        )
    ]


def _trust(pred: ClassPredictive, y: Tensor) -> list[Figure]:
    bins = metrics.reliability(pred.probs, y, bins=15)
    diagram = plots.reliability_diagram(
        bins.lower,
        bins.upper,
        bins.confidence,
        bins.accuracy,
        bins.count,
        ece=metrics.ece(pred.probs, y, bins=15),
        chance=metrics.ece_by_chance(pred.probs, bins=15),
    )
    return [diagram, plots.risk_coverage({"by entropy": metrics.risk_coverage(pred.entropy, pred.label == y)})]


def _strangers(evaluation: Evaluation) -> list[Figure]:
    pred = evaluation.predictive
    assert isinstance(pred, ClassPredictive)
    found = [
        plots.separation(
            pred.entropy.numpy(),
            {f"{name} pixels": other.entropy.numpy() for name, other in evaluation.strange.items()},
            auroc={f"{name} pixels": evaluation.scores[f"auroc_{name}"] for name in evaluation.strange},
        )
    ]
    if pred.num_draws > 1:
        key = "auroc_{}_mutual_information"
        found.append(
            plots.separation(
                pred.mutual_information.numpy(),
                {f"{name} pixels": other.mutual_information.numpy() for name, other in evaluation.strange.items()},
                "Mutual information (nats)",
                {f"{name} pixels": evaluation.scores[key.format(name)] for name in evaluation.strange},
            )
        )
    return found


def _hardest(pred: ClassPredictive, x: Tensor, y: Tensor, data: Data) -> list[Figure]:
    if len(data.shape) != 3:
        return []
    worst = pred.entropy.argsort(descending=True)[:_SHOWN]
    images = (x[worst] * data.std + data.mean).permute(0, 2, 3, 1).clamp(0, 1)
    return [plots.image_grid(images.numpy(), pred.probs[worst].numpy(), y[worst].numpy())]


def _band(objective: Objective, posterior: Posterior, data: Data) -> Figure:
    x, y = data.train[:]
    reach = 0.4 * (x.max() - x.min())
    grid = torch.linspace(float(x.min() - reach), float(x.max() + reach), 240)[:, None]
    pred = predict(objective.net, posterior, objective.likelihood, grid, samples=200, how=objective.how)
    assert isinstance(pred, GaussianPredictive)

    def units(t: Tensor) -> Any:
        return (t * data.target_std).flatten().numpy()

    return plots.predictive_band(
        (grid * data.std + data.mean).flatten().numpy(),
        units(pred.mean) + data.target_mean,
        units(pred.epistemic),
        units(pred.stddev),
        (x * data.std + data.mean).flatten().numpy(),
        units(y) + data.target_mean,
    )


def _interval_calibration(pred: GaussianPredictive, y: Tensor) -> Figure:
    observed = [metrics.coverage(*pred.interval(float(level)), y) for level in _LEVELS]
    return plots.curves(
        "Do its intervals hold?",
        {"this run": (_LEVELS, np.array(observed)), "ideal": (_LEVELS, _LEVELS)},
        "Promised share inside",
        "True share inside",
        "For each size of interval, how many true answers fell inside against how many it promised. On the diagonal its"
        " intervals hold; below it they are too narrow (overconfident), above it too wide.",
        topic="Can its confidence be trusted?",
        percent=True,
    )
