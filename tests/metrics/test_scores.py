import itertools
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from scipy import integrate, stats
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error
from torchmetrics.regression import ContinuousRankedProbabilityScore

from credent.errors import InputError
from credent.metrics import accuracy, brier, coverage, crps_mixture, nll, rmse, scores

# Three data points, three classes; powers of two, so that sums below are exact by hand.
PROBS = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.5, 0.25, 0.25]])
Y = torch.tensor([0, 1, 2])


def random_classifier(n=500, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    probs = torch.randn(n, classes, generator=g, dtype=torch.float64).mul(2).softmax(1)
    return probs, torch.randint(classes, (n,), generator=g)


def test_classification_scores_by_hand():
    assert accuracy(PROBS, Y) == 2 / 3
    assert nll(PROBS, Y) == pytest.approx((math.log(2) + math.log(4 / 3) + math.log(4)) / 3, abs=1e-15)
    # (1/4 + 1/16 + 1/16), (1/64 + 1/16 + 1/64), (1/4 + 1/16 + 9/16)
    assert brier(PROBS, Y) == pytest.approx((0.375 + 0.09375 + 0.875) / 3, abs=1e-15)


def test_accuracy_predicts_the_first_of_tied_classes():
    tied = torch.full((3, 3), 1 / 3)
    assert accuracy(tied, torch.tensor([0, 1, 2])) == 1 / 3
    assert accuracy(tied, torch.tensor([0, 0, 0])) == 1


def test_nll_of_the_impossible_is_infinite():
    assert nll(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 0])) == math.inf


def test_nll_does_not_clamp_the_improbable():
    assert nll(torch.tensor([[1e-300, 1.0]], dtype=torch.float64), torch.tensor([0])) == pytest.approx(
        300 * math.log(10)
    )


def test_brier_runs_from_zero_to_two():
    certain = torch.eye(2)
    assert brier(certain, torch.tensor([0, 1])) == 0
    assert brier(certain, torch.tensor([1, 0])) == 2


def test_brier_of_two_columns_is_twice_the_one_column_form():
    p, y = torch.tensor([0.25, 0.5]), torch.tensor([1, 0])
    assert brier(torch.stack([1 - p, p], dim=1), y) == 2 * ((0.75**2 + 0.5**2) / 2)


def test_classification_scores_agree_with_sklearn():
    probs, y = random_classifier()
    assert accuracy(probs, y) == pytest.approx(accuracy_score(y, probs.argmax(1)), abs=1e-14)
    assert nll(probs, y) == pytest.approx(log_loss(y, probs.numpy(), labels=range(4)), abs=1e-13)
    assert brier(probs, y) == pytest.approx(4 * mean_squared_error(torch.eye(4)[y], probs), abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_dtype_is_scored_in_float64(dtype):
    probs = PROBS.to(dtype).requires_grad_()
    assert nll(probs, Y.to(torch.int32)) == nll(PROBS, Y)
    mean = torch.tensor([0.0, 3.0], dtype=dtype, requires_grad=True)
    assert rmse(mean, torch.tensor([1, 1])) == pytest.approx(math.sqrt(2.5), abs=1e-15)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 30))
def test_scores_do_not_depend_on_the_order_of_the_data(seed, n):
    probs, y = random_classifier(n, seed=seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    for score in (accuracy, nll, brier):
        assert score(probs[order], y[order]) == pytest.approx(score(probs, y), rel=1e-12)


def test_rmse_by_hand():
    assert rmse(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0])) == math.sqrt(12.5)
    assert rmse(torch.zeros(2, 2), torch.tensor([[1.0, 1.0], [1.0, 3.0]])) == math.sqrt(3)


def test_coverage_by_hand_with_closed_and_open_ends():
    lower, upper = torch.tensor([0.0, 0.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 1.0, math.inf])
    assert coverage(lower, upper, torch.tensor([0.0, 1.0, 1.5, 1e30])) == 0.75
    assert coverage(lower, upper, torch.tensor([-0.1, 1.1, 0.5, -1.0])) == 0.25


def test_coverage_of_a_true_interval_is_its_level():
    n = 40_000
    y = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    edge = torch.full((n,), stats.norm.ppf(0.95))
    assert abs(coverage(-edge, edge, y) - 0.9) < 4 * math.sqrt(0.9 * 0.1 / n)


def test_crps_of_one_gaussian_is_its_closed_form():
    mean, scale = torch.tensor([[0.0, 1.0, -2.0]], dtype=torch.float64), torch.tensor([[1.0, 0.5, 3.0]])
    y = torch.tensor([0.0, 2.0, 5.0], dtype=torch.float64)
    z = ((y - mean) / scale)[0].numpy()
    closed = scale[0].numpy() * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert crps_mixture(mean, scale, y) == pytest.approx(closed.mean(), abs=1e-14)


def test_crps_is_the_integral_that_defines_it():
    means, scales, truth = [-1.0, 0.5, 4.0, 0.5], [0.3, 1.0, 0.05, 2.0], [0.2, 4.0, -6.0]

    def cdf(x):
        return sum(stats.norm.cdf(x, m, s) for m, s in zip(means, scales, strict=True)) / 4

    def integral(y):  # of (F(x) - [x >= y])^2
        cuts = sorted([-14.0, 16.0, y, *(m + k * s for m, s in zip(means, scales, strict=True) for k in (-3, 0, 3))])
        return sum(
            integrate.quad(lambda x: (cdf(x) - (x >= y)) ** 2, a, b, epsabs=1e-12)[0]
            for a, b in itertools.pairwise(cuts)
            if b > a
        )

    for y in truth:
        ours = crps_mixture(torch.tensor(means)[:, None], torch.tensor(scales)[:, None], torch.tensor([y]))
        assert ours == pytest.approx(integral(y), abs=1e-7)  # float32 inputs: 0.05 and 0.3 are rounded

    together = torch.tensor(truth, dtype=torch.float64)
    m, s = (torch.tensor(v, dtype=torch.float64)[:, None].expand(4, 3) for v in (means, scales))
    assert crps_mixture(m, s, together) == pytest.approx(sum(map(integral, truth)) / 3, abs=1e-9)


def test_crps_of_narrow_components_is_the_ensemble_crps():
    g = torch.Generator().manual_seed(0)
    means, y = torch.randn(7, 20, generator=g), torch.randn(20, generator=g)
    ensemble = ContinuousRankedProbabilityScore()(means.T.contiguous(), y)
    assert crps_mixture(means, torch.full_like(means, 1e-9), y) == pytest.approx(float(ensemble), abs=1e-6)


def test_crps_of_a_repeated_component_is_that_of_the_component():
    one = crps_mixture(torch.tensor([[0.3]]), torch.tensor([[0.7]]), torch.tensor([1.0]))
    assert crps_mixture(torch.full((6, 1), 0.3), torch.full((6, 1), 0.7), torch.tensor([1.0])) == pytest.approx(one)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    means=hnp.arrays(float, (4, 3), elements=st.floats(-5, 5)),
    scales=hnp.arrays(float, (4, 3), elements=st.floats(0.01, 5)),
    y=hnp.arrays(float, 3, elements=st.floats(-5, 5)),
    shift=st.floats(-100, 100),
    factor=st.floats(0.1, 10),
)
def test_crps_is_in_the_units_of_y(means, scales, y, shift, factor):
    m, s, t = map(torch.from_numpy, (means, scales, y))
    base = crps_mixture(m, s, t)
    assert 0 <= base <= 11 + 5  # at most E|X - y|
    assert crps_mixture(m.flip(0), s.flip(0), t) == pytest.approx(base, rel=1e-10, abs=1e-12)
    assert crps_mixture(factor * m + shift, factor * s, factor * t + shift) == pytest.approx(
        factor * base, rel=1e-8, abs=1e-11
    )


def test_crps_needs_memory_for_components_not_for_pairs(monkeypatch):
    """The largest tensor of the pair term has S n entries; all pairs at once would have S^2 n."""
    sizes, original = [], scores._mean_abs
    monkeypatch.setattr(scores, "_mean_abs", lambda m, s: sizes.append(m.numel()) or original(m, s))
    crps_mixture(torch.zeros(20, 50), torch.ones(20, 50), torch.zeros(50))
    assert max(sizes) == 20 * 50


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rmse(torch.zeros(3, 1), torch.zeros(3)), "never broadcast"),
        (lambda: rmse(torch.zeros(0), torch.zeros(0)), "empty"),
        (lambda: rmse(torch.tensor([math.nan]), torch.zeros(1)), "1 NaN of 1"),
        (lambda: rmse(torch.tensor([math.inf]), torch.zeros(1)), "infinite"),
        (lambda: rmse([0.0], torch.zeros(1)), r"torch.as_tensor\(mean\)"),
        (lambda: coverage(torch.ones(2), torch.zeros(2), torch.zeros(2)), "in 2 of 2 intervals"),
        (lambda: coverage(torch.zeros(2), torch.ones(2), torch.zeros(1)), "shapes differ: lower"),
        (lambda: coverage(torch.zeros(1), torch.tensor([math.nan]), torch.zeros(1)), "upper holds 1 NaN"),
        (lambda: crps_mixture(torch.zeros(2), torch.ones(2), torch.zeros(2)), r"means\[None\]"),
        (lambda: crps_mixture(torch.zeros(3, 2), torch.ones(3, 2), torch.zeros(3)), "means.T"),
        (lambda: crps_mixture(torch.zeros(3, 2), torch.ones(1, 2), torch.zeros(2)), "shapes differ"),
        (lambda: crps_mixture(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1)), "standard deviation is positive"),
    ],
)
def test_bad_regression_input_is_refused(call, says):
    with pytest.raises(InputError, match=says):
        call()
