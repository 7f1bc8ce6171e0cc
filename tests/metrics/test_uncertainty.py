import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy import stats
from sklearn.metrics import roc_auc_score

from credent.errors import InputError
from credent.metrics import auroc, risk_coverage

grid = st.lists(st.integers(0, 5), min_size=1, max_size=25)


def test_auroc_by_hand():
    low, high = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.25, 0.35])
    assert auroc(low, high) == 5 / 6
    assert auroc(high, low) == 1 / 6
    assert auroc(low, low + 1) == 1
    assert auroc(low + 1, low) == 0
    assert auroc(torch.ones(3), torch.ones(2)) == 0.5
    assert auroc(torch.tensor([1, 2, 2]), torch.tensor([2, 3])) == (1 + 0.5 + 0.5 + 3) / 6


def test_auroc_takes_infinite_scores():
    assert auroc(torch.tensor([0.0, math.inf]), torch.tensor([math.inf])) == 0.75


@settings(max_examples=100, deadline=None, derandomize=True)
@given(inside=grid, outside=grid)
def test_auroc_agrees_with_sklearn_and_with_counting_pairs(inside, outside):
    a, b = torch.tensor(inside).double(), torch.tensor(outside).double()
    pairs = [(o > i) + 0.5 * (o == i) for i in inside for o in outside]
    assert auroc(a, b) == pytest.approx(sum(pairs) / len(pairs), abs=1e-14)
    label = np.r_[np.zeros(len(a)), np.ones(len(b))]
    assert auroc(a, b) == pytest.approx(roc_auc_score(label, torch.cat([a, b])), abs=1e-12)
    assert auroc(a.exp(), b.exp()) == auroc(a, b)  # only the order matters
    assert auroc(b, a) == pytest.approx(1 - auroc(a, b), abs=1e-14)


def test_auroc_of_two_gaussians_is_their_closed_form():
    n, g = 20_000, torch.Generator().manual_seed(0)
    inside, outside = torch.randn(n, generator=g), 1 + torch.randn(n, generator=g)
    assert abs(auroc(inside, outside) - stats.norm.cdf(1 / math.sqrt(2))) < 4 / math.sqrt(4 * n)


def test_auroc_in_float32_does_not_lose_ties_or_order():
    assert auroc(torch.tensor([0.1]), torch.tensor([0.1], dtype=torch.float32)) == 0.5
    tiny = torch.tensor([1.0, 1.0 + 2**-50], dtype=torch.float64)
    assert auroc(tiny[:1], tiny[1:]) == 1


def test_risk_coverage_by_hand():
    uncertainty = torch.tensor([0.4, 0.1, 0.3, 0.2])
    correct = torch.tensor([False, True, True, False])
    coverage, risk = risk_coverage(uncertainty, correct)
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert risk.tolist() == [0, 1 / 2, 1 / 3, 1 / 2]


def test_equal_uncertainties_are_answered_together():
    coverage, risk = risk_coverage(torch.tensor([0.0, 0.5, 0.5, 0.5]), torch.tensor([True, False, True, True]))
    assert coverage.tolist() == [0.25, 1]
    assert risk.tolist() == [0, 0.25]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25), seed=st.integers(0, 99))
def test_risk_coverage_is_the_definition_in_any_order(data, seed):
    u, correct = torch.tensor([u for u, _ in data]), torch.tensor([c for _, c in data])
    coverage, risk = risk_coverage(u, correct)
    for i, t in enumerate(sorted(set(u.tolist()))):
        answered = [c for v, c in data if v <= t]
        assert coverage[i] == pytest.approx(len(answered) / len(data))
        assert risk[i] == pytest.approx(answered.count(False) / len(answered))
    assert len(coverage) == len(risk) == len(set(u.tolist()))
    assert (coverage[-1], risk[-1]) == (1, pytest.approx(1 - correct.double().mean().item()))

    order = torch.randperm(len(u), generator=torch.Generator().manual_seed(seed))
    shuffled = risk_coverage(u[order], correct[order])
    np.testing.assert_array_equal(shuffled, (coverage, risk))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: auroc(torch.zeros(0), torch.ones(1)), "inside is empty"),
        (lambda: auroc(torch.ones(1), torch.tensor([math.nan])), "outside holds 1 NaN"),
        (lambda: auroc(torch.ones(2, 1), torch.ones(1)), r"inside.flatten\(\)"),
        (lambda: auroc(torch.ones(1), torch.tensor(1.0)), r"outside.flatten\(\)"),
        (lambda: auroc(np.ones(2), torch.ones(1)), "inside is a ndarray"),
        (lambda: risk_coverage(torch.ones(2), torch.ones(2)), r"probs.argmax\(1\) == y"),
        (lambda: risk_coverage(torch.ones(2), torch.ones(3, dtype=torch.bool)), "shapes differ"),
        (lambda: risk_coverage(torch.ones(2, 1), torch.ones(2, 1, dtype=torch.bool)), "uncertainty has shape"),
    ],
)
def test_bad_input_is_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()
