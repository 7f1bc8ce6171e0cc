"""Calibration: of the predictions made with confidence p, a share p should come true.

Predictions are put into M bins B_m by confidence; conf(B) is a bin's mean confidence, acc(B) the share that came true:

    ECE = sum_m |B_m|/n |acc(B_m) - conf(B_m)|        expected calibration error (Naeini et al. 2015)
    MCE = max_m |acc(B_m) - conf(B_m)|                over the bins that are not empty

`reliability`, `ece` and `mce` look at the top label: confidence max_k p_k, true when that class is the label (of tied
classes the first is predicted). `classwise_ece` is the mean over k of the ECE of p_k as a forecast of [y = k].

Bins are (lower, upper], and the first also holds its lower edge. "width" cuts [0, 1] into M equal parts (Guo et al.
2017); "mass" cuts the sorted confidences into M groups of nearly equal count, never between equal confidences, so that
the order of the data does not matter. On an edge of "width" the last bit of a confidence decides its bin.

ECE is biased upwards: where labels follow the confidences exactly, chance leaves each bin a gap that is nearly normal
with variance v_m, and their sizes sum to

    sqrt(2/pi) sum_m sqrt(v_m) / n  ±  sqrt((1 - 2/pi) sum_m v_m) / n,        v_m = sum_{i in m} p_i (1 - p_i)

and not to 0 (Bröcker & Smith 2007 draw it). Quote it beside an ECE: two models that are both about there are not told
apart. A bin that expects less than one error is not nearly normal: of 100 predictions at 0.999 the mean is 0.0018, and
not 0.0025.

Shapes: `probs` (n, C), labels (n,); the arrays of `Reliability` (M,).

>>> import torch
>>> probs, y = torch.tensor([[0.2, 0.8], [0.1, 0.9], [0.7, 0.3]]), torch.tensor([1, 0, 0])
>>> reliability(probs, y, bins=2).count
array([0, 3])
>>> round(ece(probs, y, bins=2), 6)         # |2/3 - 2.4/3|
0.133333
>>> chance = ece_by_chance(torch.full((10_000, 2), 0.5))      # of coins: sqrt(2/pi) / 2 in a hundred
>>> [round(value, 5) for value in chance]
[0.00399, 0.00301]
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from credent.errors import InputError
from credent.metrics.inputs import classified, distributions

Scheme = Literal["width", "mass"]
Floats = npt.NDArray[np.float64]

_SIZE = math.sqrt(2 / math.pi)  # of a standard normal number, on average


@dataclass(frozen=True, eq=False)  # eq=False: comparing arrays has no single truth value
class Reliability:
    """A reliability diagram as numbers, one entry per bin; an empty bin has count 0 and NaN for its two means."""

    lower: Floats
    upper: Floats
    confidence: Floats
    accuracy: Floats
    count: npt.NDArray[np.int64]


def reliability(probs: Tensor, y: Tensor, bins: int = 15, scheme: Scheme = "width") -> Reliability:
    """Mean confidence and accuracy of the top label in each bin."""
    p, labels = _arrays(probs, y)
    return _binned(p.max(1), p.argmax(1) == labels, bins, scheme)


def ece(probs: Tensor, y: Tensor, bins: int = 15, scheme: Scheme = "width") -> float:
    """Expected calibration error of the top label, 0 to 1."""
    return _expected_gap(reliability(probs, y, bins, scheme))


def ece_by_chance(probs: Tensor, bins: int = 15, scheme: Scheme = "width") -> tuple[float, float]:
    """Mean and standard deviation of the ECE of these probabilities, if they were exactly right about themselves.

    Gaps of bins are taken for normal, which they are where a bin expects an error or more.
    """
    confidence = distributions(probs).numpy().max(1).clip(max=1.0)
    variances = np.bincount(
        _places(confidence, _edges(confidence, bins, scheme)), weights=confidence * (1 - confidence)
    )
    n = len(confidence)
    return float(_SIZE * np.sqrt(variances).sum() / n), float(math.sqrt((1 - _SIZE**2) * variances.sum()) / n)


def mce(probs: Tensor, y: Tensor, bins: int = 15, scheme: Scheme = "width") -> float:
    """Maximum calibration error of the top label, 0 to 1; a bin of few points weighs as much as any other."""
    r = reliability(probs, y, bins, scheme)
    return float(np.nanmax(abs(r.accuracy - r.confidence)))


def classwise_ece(probs: Tensor, y: Tensor, bins: int = 15, scheme: Scheme = "width") -> float:
    """Mean over the C classes of the binary ECE of that class's probability, 0 to 1 (Kull et al. 2019)."""
    p, labels = _arrays(probs, y)
    return float(np.mean([_expected_gap(_binned(p[:, k], labels == k, bins, scheme)) for k in range(p.shape[1])]))


def _arrays(probs: Tensor, y: Tensor) -> tuple[Floats, npt.NDArray[np.int64]]:
    probs, y = classified(probs, y)
    return probs.numpy(), y.numpy()


def _binned(confidence: Floats, came_true: npt.NDArray[np.bool_], bins: int, scheme: Scheme) -> Reliability:
    edges = _edges(confidence, bins, scheme)
    index = _places(confidence, edges)
    count = np.bincount(index, minlength=bins)
    total = np.where(count > 0, count, np.nan)
    return Reliability(
        lower=edges[:-1],
        upper=edges[1:],
        confidence=np.bincount(index, weights=confidence, minlength=bins) / total,
        accuracy=np.bincount(index, weights=came_true, minlength=bins) / total,
        count=count,
    )


def _places(confidence: Floats, edges: Floats) -> npt.NDArray[np.int64]:
    """The bin of each confidence."""
    # Searching the inner edges alone sends 0 to the first bin, and 1, or 1 and a rounding error, to the last.
    return np.searchsorted(edges[1:-1], confidence, side="left")


def _edges(confidence: Floats, bins: int, scheme: Scheme) -> Floats:
    if not isinstance(bins, int) or bins < 1:
        raise InputError(f"bins={bins!r}, and predictions need at least one whole bin; write `bins=15`.")
    if scheme == "width":
        return np.linspace(0.0, 1.0, bins + 1)
    if scheme == "mass":
        last = np.arange(bins + 1) * len(confidence) // bins - 1  # floor(m n / M) points lie in the first m bins
        return np.sort(confidence)[np.maximum(last, 0)]
    raise InputError(f'scheme={scheme!r} is no way to cut bins; write scheme="width" or scheme="mass".')


def _expected_gap(r: Reliability) -> float:
    return float(np.nansum(r.count * abs(r.accuracy - r.confidence)) / r.count.sum())
