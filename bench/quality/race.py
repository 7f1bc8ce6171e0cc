"""The race's cells: trials, which see validation rows alone, and finals of the chosen settings, which see the test."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bench.quality.images import entropy, exam, learning, scored
from bench.quality.methods import METHODS
from bench.quality.settings import TRIAL_SEED, Scale, Size
from bench.quality.training import Trained, train
from credent import metrics
from credent.cells import Cell


@dataclass(frozen=True)
class Trial(Cell):
    """One setting of a method, scored on validation images."""

    data: str
    method: str
    lr: float
    knob: float
    size: Size
    seed: int

    def run(self) -> dict[str, Any]:
        """Scores of the validation images."""
        found = learning(self.data, self.size)
        trained = train(METHODS[self.method], found, self.lr, self.knob, self.size, self.seed)
        x, y = found.val[: METHODS[self.method].limit]
        return {**scored(trained.probabilities(x), y), "cost": trained.cost}


@dataclass(frozen=True)
class Final(Cell):
    """The chosen setting of a method under another seed, scored on test images, shifted ones and strangers."""

    data: str
    method: str
    lr: float
    knob: float
    size: Size
    seed: int

    def run(self) -> dict[str, Any]:
        """All of the table's numbers."""
        method = METHODS[self.method]
        trained = train(method, learning(self.data, self.size), self.lr, self.knob, self.size, self.seed)
        return {
            **_examined(trained, self.data, self.size),
            "cost": trained.cost,
            "predicting": trained.predicting.ratio,
        }


def _examined(trained: Trained, data: str, size: Size) -> dict[str, float]:
    given = exam(data, size)
    x, y = given.test
    probs = trained.probabilities(x)
    found = scored(probs, y)
    if trained.method.limit is not None:
        return found
    for name, (images, labels) in given.shifted.items():
        scores = scored(trained.probabilities(images), labels)
        found |= {f"{name}_nll": scores["nll"], f"{name}_accuracy": scores["accuracy"]}
    familiar = entropy(probs[: size.strange])
    for name, images in given.strange.items():
        doubt = entropy(trained.probabilities(images))
        known = torch.isfinite(familiar).all() and torch.isfinite(doubt).all()
        found[f"auroc_{name}"] = metrics.auroc(familiar, doubt) if known else 0.5
    return found


def trials(scale: Scale, data: str, methods: Iterable[str]) -> list[Trial]:
    """Everything that is tried on a data set; a method that takes another's setting has that one's trials."""
    size = scale.sizes[data]
    tuned = dict.fromkeys(METHODS[name].tuned_as or name for name in methods)
    return [
        Trial(data, name, lr, knob, size, TRIAL_SEED)
        for name in tuned
        for lr, knob in dict.fromkeys(METHODS[name].trials)
    ]


def chosen(results: Mapping[Cell, Mapping[str, Any]]) -> dict[tuple[str, str], Trial]:
    """By (data, method), the trial of least validation NLL; one that is infinite or missing is never chosen."""
    best: dict[tuple[str, str], tuple[float, Trial]] = {}
    for cell, result in results.items():
        if not isinstance(cell, Trial) or not result or not result["nll"] < float("inf"):
            continue
        place = (cell.data, cell.method)
        if place not in best or result["nll"] < best[place][0]:
            best[place] = (result["nll"], cell)
    return {place: cell for place, (_, cell) in best.items()}


def finals(scale: Scale, data: str, methods: Iterable[str], picked: Mapping[tuple[str, str], Trial]) -> list[Final]:
    """The chosen settings under the scale's seeds, which no trial had."""
    found = []
    for name in methods:
        trial = picked.get((data, METHODS[name].tuned_as or name))
        if trial is not None:
            found += [Final(data, name, trial.lr, trial.knob, trial.size, seed) for seed in scale.seeds_of(data, name)]
    return found
