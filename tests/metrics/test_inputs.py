import math

import pytest
import torch

from credent.errors import InputError
from credent.metrics import accuracy, brier, classwise_ece, ece, mce, nll, reliability

HALF = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
Y = torch.tensor([0, 1])

BAD = {
    "one column for a binary classifier": (torch.tensor([0.2, 0.8]), Y, r"torch.stack\(\[1 - p, p\], dim=1\)"),
    "a lone column": (torch.ones(2, 1), Y, "C >= 2"),
    "logits": (torch.tensor([[3.0, 1.0], [0.5, 0.5]]), Y, r"row 0 of probs sums to 4.*logits.softmax\(1\)"),
    "negative": (torch.tensor([[-0.5, 1.5], [0.5, 0.5]]), Y, "holds -0.5"),
    "log-probabilities": (HALF.log(), Y, r"log_probs.exp\(\)"),
    "a sum off by more than 1e-3": (torch.tensor([[0.5, 0.5], [0.5, 0.502]]), Y, "row 1 of probs"),
    "an infinite entry": (torch.tensor([[0.5, 0.5], [math.inf, 0.5]]), Y, "row 1 of probs sums to inf"),
    "NaN": (torch.tensor([[0.5, 0.5], [math.nan, 0.5]]), Y, "1 NaN of 4"),
    "no data": (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "probs is empty"),
    "a list": ([[0.5, 0.5]], torch.tensor([0]), r"torch.as_tensor\(probs\)"),
    "a list of labels": (HALF, [0, 1], r"torch.as_tensor\(y\)"),
    "too few labels": (HALF, torch.tensor([0]), r"shape \(2,\)"),
    "labels in a column": (HALF, Y[:, None], r"y.squeeze\(1\)"),
    "one-hot labels": (HALF, torch.eye(2).long(), r"y.argmax\(1\)"),
    "float labels": (HALF, Y.double(), r"y.long\(\)"),
    "a label past the last class": (HALF, torch.tensor([1, 2]), "from 1 to 2, .* classes 0 to 1"),
    "an ignore index": (HALF, torch.tensor([-100, 1]), "from -100 to 1"),
}


@pytest.mark.parametrize("metric", [accuracy, nll, brier, reliability, ece, mce, classwise_ece])
@pytest.mark.parametrize(("probs", "y", "says"), BAD.values(), ids=BAD)
def test_bad_classification_input_is_refused_by_every_metric(metric, probs, y, says):
    with pytest.raises(InputError, match=says):
        metric(probs, y)


def test_rounding_of_a_float32_average_is_accepted():
    probs = torch.randn(64, 10, 1000, generator=torch.Generator().manual_seed(0)).softmax(2).mean(0)
    assert nll(probs, torch.arange(10)) > 0
    assert nll(torch.tensor([[0.5, 0.5009]]), torch.tensor([0])) == math.log(2)


def test_labels_may_be_bool_and_the_inputs_are_left_as_they_were():
    probs, y = HALF.clone(), torch.tensor([False, True])
    assert accuracy(probs, y) == 0.5
    ece(probs, y, scheme="mass")
    assert torch.equal(probs, HALF)
    assert y.dtype == torch.bool
