"""Whether uncertainty goes up where it should: away from the training data, and on the mistakes.

    auroc = P(u_out > u_in) + P(u_out = u_in) / 2                 Mann & Whitney 1947

over one score from outside and one from inside the training distribution: 1/2 is a coin, 1 perfect separation.

A selective predictor answers only when its uncertainty is at most t. Its risk-coverage curve (El-Yaniv & Wiener 2010),
over every threshold t that the data can tell apart, is

    coverage(t) = mean [u <= t],        risk(t) = share of mistakes among the points with u <= t.

Shapes: `inside` (n,), `outside` (m,); `uncertainty` and `correct` (n,), the curve one entry per distinct uncertainty.

>>> auroc(inside=torch.tensor([1.0, 2.0]), outside=torch.tensor([2.0, 3.0]))      # 3 pairs of 4, and half a tie
0.875
>>> risk_coverage(torch.tensor([0.1, 0.9]), torch.tensor([True, False]))
(array([0.5, 1. ]), array([0. , 0.5]))
"""

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import rankdata
from torch import Tensor

from credent.errors import InputError
from credent.metrics.inputs import ordered, same_shape, vector

Floats = npt.NDArray[np.float64]


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Probability that an outside point is the more uncertain one, ties counting half; exact, by ranks."""
    inside, outside = ordered("inside", inside), ordered("outside", outside)
    vector("inside", inside)
    vector("outside", outside)
    n, m = len(inside), len(outside)
    ranks = rankdata(torch.cat([inside, outside]).numpy())  # ties share their mean rank
    return float((ranks[n:].sum() - m * (m + 1) / 2) / (n * m))


def risk_coverage(uncertainty: Tensor, correct: Tensor) -> tuple[Floats, Floats]:
    """The curve (coverage, risk) by rising threshold; equal uncertainties are answered together or not at all."""
    uncertainty = ordered("uncertainty", uncertainty)
    vector("uncertainty", uncertainty)
    wrong = 1 - ordered("correct", correct)
    if correct.dtype != torch.bool:
        raise InputError(
            f"correct is {correct.dtype}, and each prediction is right or wrong; write `probs.argmax(1) == y`."
        )
    same_shape(uncertainty=uncertainty, correct=wrong)
    values, group = np.unique(uncertainty.numpy(), return_inverse=True)
    answered = np.cumsum(np.bincount(group, minlength=len(values)))
    mistakes = np.cumsum(np.bincount(group, weights=wrong.numpy(), minlength=len(values)))
    return answered / len(wrong), mistakes / answered
