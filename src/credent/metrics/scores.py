"""Scores of a prediction against what happened, each a mean over the n data points.

    accuracy = mean [argmax_k p_k = y]                            higher is better
    nll      = mean -log p_y                                      nats, lower is better
    brier    = mean sum_k (p_k - [y = k])^2                       0 to 2, lower is better (Brier 1950)
    rmse     = sqrt(mean (m - y)^2)                               in units of y, lower is better
    coverage = mean [lower <= y <= upper]                         to be compared with the interval's nominal level
    crps     = mean E|X - y| - E|X - X'| / 2                      in units of y, lower is better

CRPS (Gneiting & Raftery 2007) is exact for an equally weighted mixture of Gaussians (Grimit et al. 2006), with X and
X' independent draws of the mixture:

    E|X - y|  = (1/S)   sum_i  A(m_i - y,   s_i^2)
    E|X - X'| = (1/S^2) sum_ij A(m_i - m_j, s_i^2 + s_j^2)
    A(m, s^2) = E|N(m, s^2)| = m (2 Phi(m/s) - 1) + 2 s phi(m/s)

Shapes: `probs` (n, C), labels (n,); `mean`, `lower`, `upper` and a real `y` of any one common shape; a mixture's
`means` and `scales` (S, n) with `y` (n,). Binary probabilities p (n,) are stacked by the caller into (n, 2):
`torch.stack([1 - p, p], dim=1)`.

>>> probs, y = torch.tensor([[0.5, 0.5], [0.25, 0.75]]), torch.tensor([0, 1])
>>> accuracy(probs, y), brier(probs, y)       # (0.5 + 0.125) / 2
(1.0, 0.3125)
>>> round(crps_mixture(torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(1)), 6)      # (sqrt 2 - 1) / sqrt pi
0.233695
"""

import math

import torch
from torch import Tensor

from credent.errors import InputError
from credent.metrics.inputs import classified, finite, ordered, same_shape


def accuracy(probs: Tensor, y: Tensor) -> float:
    """Share of the n rows whose most probable class is the label; of tied classes the first counts as predicted."""
    probs, y = classified(probs, y)
    # NumPy's argmax promises the first maximum, torch's promises nothing.
    return float((probs.numpy().argmax(1) == y.numpy()).mean())


def nll(probs: Tensor, y: Tensor) -> float:
    """Mean negative log probability of the labels, in nats; infinite when a label was given probability 0."""
    probs, y = classified(probs, y)
    return float(-probs.gather(1, y[:, None]).log().mean())


def brier(probs: Tensor, y: Tensor) -> float:
    """Mean squared distance to the one-hot label, summed over classes: 0 to 2, twice the binary one-column form."""
    probs, y = classified(probs, y)
    return float((probs - torch.nn.functional.one_hot(y, probs.shape[1])).square().sum(1).mean())


def rmse(mean: Tensor, y: Tensor) -> float:
    """Root mean squared error over all entries of two tensors of one shape."""
    mean, y = finite("mean", mean), finite("y", y)
    same_shape(mean=mean, y=y)
    return float((mean - y).square().mean().sqrt())


def coverage(lower: Tensor, upper: Tensor, y: Tensor) -> float:
    """Share of y inside the closed intervals [lower, upper], of one shape; an open end is written as infinity."""
    lower, upper, y = ordered("lower", lower), ordered("upper", upper), finite("y", y)
    same_shape(lower=lower, upper=upper, y=y)
    crossed = int((lower > upper).sum())
    if crossed:
        raise InputError(
            f"lower exceeds upper in {crossed} of {y.numel()} intervals, and nothing lies inside those; "
            "the order is `coverage(lower, upper, y)`."
        )
    return float(((lower <= y) & (y <= upper)).double().mean())


def crps_mixture(means: Tensor, scales: Tensor, y: Tensor) -> float:
    """Mean CRPS of n equally weighted mixtures of S Gaussians (S, n), whose `scales` are standard deviations."""
    means, scales, y = finite("means", means), finite("scales", scales), finite("y", y)
    same_shape(means=means, scales=scales)
    if means.dim() != 2 or y.shape != means.shape[1:]:
        raise InputError(
            f"means has shape {tuple(means.shape)} and y {tuple(y.shape)}; S components for n data points are "
            "(S, n) and (n,): write `means[None]` for a single Gaussian, `means.T` if components come last."
        )
    if not float(scales.min()) > 0:
        raise InputError(
            f"scales holds {float(scales.min()):g}, and a standard deviation is positive; "
            "write `variances.sqrt()` for variances, `log_scales.exp()` for their logarithms."
        )
    size = len(means)
    to_truth = _mean_abs(means - y, scales).mean(0)
    # One component against the later ones at a time: memory stays that of the input, S n, where all pairs need S^2 n.
    between = _mean_abs(torch.zeros_like(means), scales * math.sqrt(2)).sum(0)
    for i in range(size - 1):
        between += 2 * _mean_abs(means[i] - means[i + 1 :], torch.hypot(scales[i], scales[i + 1 :])).sum(0)
    return float((to_truth - between / (2 * size**2)).mean())


def _mean_abs(mean: Tensor, scale: Tensor) -> Tensor:
    z = mean / (scale * math.sqrt(2))
    return mean * torch.erf(z) + scale * math.sqrt(2 / math.pi) * torch.exp(-z * z)
