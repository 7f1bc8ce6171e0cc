"""The images of a race: training and validation rows for the trials, and, apart from them, what is only for the end.

Everything is standardised as the training images are, other data sets and shifted images too.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from bench.quality.settings import STRANGERS, Size
from bench.quality.shift import SHIFTS
from credent import metrics
from credent.data import Data, load
from credent.evaluation import strange_inputs

_VAL_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Learning:
    """What trials and training see; of trials and finals no test row is in it."""

    train: TensorDataset
    val: TensorDataset
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Exam:
    """What the chosen settings are scored on."""

    test: tuple[Tensor, Tensor]
    shifted: dict[str, tuple[Tensor, Tensor]]
    strange: dict[str, Tensor]


@functools.lru_cache(maxsize=1)  # a worker runs many cells on the same images, and shall not hold all the others
def learning(data: str, size: Size) -> Learning:
    """The first rows of the training and of the validation part."""
    found = _loaded(data)
    train, val = found.train[: size.train or len(found.train)], found.val[: size.val]
    copies = [TensorDataset(*(t.clone() for t in part)) for part in (train, val)]
    return Learning(copies[0], copies[1], found.shape)


def learning_and_test(data: str, size: Size) -> tuple[Learning, tuple[Tensor, Tensor]]:
    """What is learnt from, and the test images."""
    test = _loaded(data).test
    return learning(data, size), test[: size.test or len(test)]


@functools.lru_cache(maxsize=1)
def exam(data: str, size: Size) -> Exam:
    """Test images, some of them shifted, and strangers: another data set, and noise with the pixels' law."""
    found = _loaded(data)
    x, y = (t.clone() for t in found.test[: size.test or len(found.test)])
    few, labels = x[: size.strange], y[: size.strange]
    pixels = few * found.std + found.mean
    shifted = {name: ((shift(pixels) - found.mean) / found.std, labels) for name, shift in SHIFTS.items()}
    other = _loaded(STRANGERS[data])
    theirs = other.test[: size.strange][0] * other.std + other.mean
    strange = {STRANGERS[data]: (theirs - found.mean) / found.std, "noise": strange_inputs(few)["noise"]}
    return Exam((x, y), shifted, strange)


def _loaded(name: str) -> Data:
    return load(name, seed=0, val_share=_VAL_SHARE)


def scored(probs: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, NLL, ECE of 15 bins, chance's part in it, and Brier score; what is no number has an infinite NLL."""
    if not probs.isfinite().all():
        return {"accuracy": 0.0, "nll": float("inf"), "ece": 1.0, "chance": 0.0, "brier": 2.0}
    probs = normalised(probs)
    return {
        "accuracy": metrics.accuracy(probs, y),
        "nll": metrics.nll(probs, y),
        "ece": metrics.ece(probs, y, bins=15),
        "chance": metrics.ece_by_chance(probs, bins=15)[0],
        "brier": metrics.brier(probs, y),
    }


def normalised(probs: Tensor) -> Tensor:
    """In float64, none of them zero, which a float32 softmax may say."""
    probs = probs.double().clamp_min(torch.finfo(torch.float32).tiny)
    return probs / probs.sum(-1, keepdim=True)


def entropy(probs: Tensor) -> Tensor:
    """Of the averaged prediction, in nats: everyone's measure of doubt."""
    return torch.special.entr(probs.double()).sum(-1)
