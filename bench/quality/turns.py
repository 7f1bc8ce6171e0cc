"""Every image once: test sets that take turns, where one is too small to tell who is calibrated.

The ECE of 10,000 images and 15 bins is about 0.6 % ± 0.14 % by chance alone, on Fashion-MNIST, however good a
network's confidences are, and the same images decide for all seeds. So training and test images are put together and
cut into parts of about 10,000; each is the test set of a run that was trained on the others. Settings, and the
temperatures of calibrated rows, are still those of the validation images, which are in no part.

    score   mean over parts ± standard error; rows are compared part by part, since they saw the same images
    ECE     of all images together, too: gaps of single runs that differ in sign are no fault of a method
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from bench.quality.images import Learning, learning_and_test, normalised, scored
from bench.quality.methods import METHODS
from bench.quality.race import Trial
from bench.quality.settings import Scale, Size
from bench.quality.training import train
from credent import metrics
from credent.cells import Cell


@dataclass(frozen=True)
class Turn(Cell):
    """The chosen setting of a method, scored on one part of the images; the seed is the number of the part, from 1."""

    data: str
    method: str
    lr: float
    knob: float
    size: Size
    seed: int
    parts: int

    def run(self) -> dict[str, Any]:
        """Scores, cost, and for each bin of confidence what sums over parts."""
        learning, (x, y) = turned(*learning_and_test(self.data, self.size), self.seed - 1, self.parts)
        trained = train(METHODS[self.method], learning, self.lr, self.knob, self.size, self.seed)
        probs = trained.probabilities(x)
        return {**scored(probs, y), "bins": bins(probs, y), "cost": trained.cost}


def turned(
    learning: Learning, test: tuple[torch.Tensor, torch.Tensor], part: int, parts: int
) -> tuple[Learning, tuple[torch.Tensor, torch.Tensor]]:
    """One part of all images to be tested on, and the others to learn from; validation images stay what they are."""
    x, y = (torch.cat(both) for both in zip(learning.train[:], test, strict=True))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    mine = torch.zeros(len(x), dtype=torch.bool)
    mine[order.tensor_split(parts)[part]] = True
    return Learning(TensorDataset(x[~mine], y[~mine]), learning.val, learning.shape), (x[mine], y[mine])


def bins(probs: torch.Tensor, y: torch.Tensor) -> dict[str, list[float]]:
    """How many predictions each of 15 bins has, and the sums of their confidences and of those that came true.

    Of predictions that are no numbers there are none.
    """
    if not probs.isfinite().all():
        return {}
    found = metrics.reliability(normalised(probs), y, bins=15)
    count = found.count.astype(float)
    sums = {"confidence": found.confidence * count, "hits": found.accuracy * count}
    return {"count": count.tolist()} | {name: np.nan_to_num(value).tolist() for name, value in sums.items()}


def pooled(results: Iterable[Mapping[str, Any]]) -> float:
    """The ECE of the images of several parts together, infinite where a part has none."""
    each = [result["bins"] for result in results]
    if not all(each):
        return float("inf")
    count, confidence, hits = (
        np.sum([found[name] for found in each], axis=0) for name in ("count", "confidence", "hits")
    )
    return float(abs(confidence - hits).sum() / count.sum())


def turns(scale: Scale, data: str, methods: Iterable[str], picked: Mapping[tuple[str, str], Trial]) -> list[Turn]:
    """Of the methods that the scale wants to be told apart."""
    found = []
    for name in methods:
        trial = picked.get((data, METHODS[name].tuned_as or name))
        if trial is not None and name in scale.turns.get(data, ()):
            parts = range(1, scale.parts + 1)
            found += [Turn(data, name, trial.lr, trial.knob, trial.size, part, scale.parts) for part in parts]
    return found
