import math
import statistics

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torchmetrics.functional.classification import multiclass_calibration_error

from credent.errors import InputError
from credent.metrics import classwise_ece, ece, ece_by_chance, mce, reliability

CONFIDENCE = torch.tensor([0.96, 0.91, 0.87, 0.62, 0.57, 0.33, 0.99, 0.81, 0.72, 0.23], dtype=torch.float64)
CORRECT = torch.tensor([1, 1, 0, 1, 0, 0, 1, 1, 0, 1])


def top_label(confidence, correct):
    """Ten classes: the given confidence on class 0, the rest shared, so that the confidences may be as low as 0.1."""
    rest = ((1 - confidence) / 9)[:, None].expand(-1, 9)
    return torch.cat([confidence[:, None], rest], 1), 1 - correct


def random_classifier(n, classes=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    probs = torch.randn(n, classes, generator=g, dtype=torch.float64).mul(2).softmax(1)
    return probs, torch.multinomial(probs.pow(0.5), 1, generator=g).squeeze(1)  # over-confident


@pytest.mark.parametrize(
    ("bins", "scheme", "expected", "worst"),
    [
        (5, "width", 0.189, 0.57),
        (10, "width", 0.359, 0.77),
        (15, "width", 0.379, 0.77),
        (5, "mass", 0.199, None),
        (10, "mass", 0.397, 0.87),
        (15, "mass", 0.397, 0.87),
    ],
)
def test_known_vector(bins, scheme, expected, worst):
    probs, y = top_label(CONFIDENCE, CORRECT)
    assert ece(probs, y, bins, scheme) == pytest.approx(expected, abs=1e-12)
    if worst is not None:
        assert mce(probs, y, bins, scheme) == pytest.approx(worst, abs=1e-12)


def test_fifteen_bins_of_equal_width_are_the_default():
    probs, y = random_classifier(200)
    for metric in (ece, mce, classwise_ece):
        assert metric(probs, y) == metric(probs, y, bins=15, scheme="width")
        assert len({metric(probs, y, bins, scheme) for bins in (10, 15) for scheme in ("width", "mass")}) == 4
    assert reliability(probs, y).upper.tolist() == reliability(probs, y, bins=15, scheme="width").upper.tolist()


def test_reliability_by_hand():
    probs, y = top_label(CONFIDENCE, CORRECT)
    r = reliability(probs, y, bins=5)
    np.testing.assert_allclose(r.lower, [0, 0.2, 0.4, 0.6, 0.8], atol=1e-15)
    np.testing.assert_allclose(r.upper, [0.2, 0.4, 0.6, 0.8, 1], atol=1e-15)
    assert r.count.tolist() == [0, 2, 1, 2, 5]
    np.testing.assert_allclose(r.confidence, [math.nan, 0.28, 0.57, 0.67, 0.908], atol=1e-12)
    np.testing.assert_allclose(r.accuracy, [math.nan, 0.5, 0, 0.5, 0.8], atol=1e-12)


def test_mass_bins_by_hand():
    probs, y = top_label(CONFIDENCE, CORRECT)
    r = reliability(probs, y, bins=5, scheme="mass")
    assert r.count.tolist() == [2] * 5
    assert r.lower.tolist() == [0.23, 0.33, 0.62, 0.81, 0.91]
    assert r.upper.tolist() == [0.33, 0.62, 0.81, 0.91, 0.99]
    np.testing.assert_allclose(r.accuracy, [0.5, 0.5, 0.5, 0.5, 1], atol=1e-12)
    np.testing.assert_allclose(r.confidence, [0.28, 0.595, 0.765, 0.89, 0.975], atol=1e-12)


@pytest.mark.parametrize(("n", "bins"), [(100, 7), (23, 15), (15, 15), (4, 15), (1, 3)])
def test_mass_bins_are_nearly_equal(n, bins):
    r = reliability(*random_classifier(n), bins=bins, scheme="mass")
    assert r.count.sum() == n
    assert r.count.max() - r.count.min() <= 1


def test_bins_hold_their_upper_edge_and_the_first_its_lower():
    """With 4 bins the edges 1/4, 1/2, 3/4 are exact in binary, so points may be put on them."""
    p = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])
    probs, y = torch.stack([1 - p, p], 1), torch.tensor([0, 0, 1, 1, 1])
    assert reliability(probs, y, bins=4).count.tolist() == [0, 1, 2, 2]  # top label: 1, .75, .5, .75, 1
    # Class 1 in bins {0, .25} {.5} {.75} {1}, outcomes 0 0 1 1 1: 2/5 * .125 + (.5 + .25 + 0)/5 = .2.
    # Class 0 in bins {0, .25} {.5} {.75} {1}, outcomes 0 0 0 1 1: the same gaps.
    assert classwise_ece(probs, y, bins=4) == pytest.approx(0.2, abs=1e-15)


def test_full_confidence_is_counted():
    """torchmetrics drops confidence 1.0 from its bins; here one sure mistake in two sure answers costs one half."""
    probs, y = torch.eye(2), torch.tensor([0, 0])
    assert reliability(probs, y).count[-1] == 2
    assert ece(probs, y) == 0.5
    assert mce(probs, y, scheme="mass") == 0.5
    assert ece(probs, torch.tensor([1, 0])) == 1


def test_confidence_a_rounding_error_above_one_is_in_the_last_bin():
    probs = torch.tensor([[1.0 + 1e-6, 0.0], [0.5, 0.5]], dtype=torch.float64)
    assert reliability(probs, torch.tensor([0, 0]), bins=10).count.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("bins", [1, 7, 10, 15])
@pytest.mark.parametrize("seed", [0, 1])
def test_width_agrees_with_torchmetrics(bins, seed):
    probs, y = random_classifier(3000, seed=seed)
    assert float(probs.max()) < 1
    theirs = {norm: multiclass_calibration_error(probs, y, 5, n_bins=bins, norm=norm) for norm in ("l1", "max")}
    assert ece(probs, y, bins) == pytest.approx(float(theirs["l1"]), abs=1e-6)
    assert mce(probs, y, bins) == pytest.approx(float(theirs["max"]), abs=1e-6)
    assert ece(probs, y, bins) > 0.1


def naive_ece(confidence, came_true, bins, scheme):
    """The definition in plain Python; the confidences are distinct and off the edges."""
    pairs = sorted(zip(confidence.tolist(), came_true.tolist(), strict=True))
    n, groups = len(pairs), {}
    for i, (c, t) in enumerate(pairs):
        groups.setdefault(math.ceil(c * bins) if scheme == "width" else i * bins // n, []).append((c, t))
    return sum(abs(sum(t - c for c, t in group)) for group in groups.values()) / n


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_ece_and_classwise_agree_with_the_definition_written_out(scheme):
    probs, y = random_classifier(210, classes=3)
    top = naive_ece(probs.max(1).values, probs.argmax(1) == y, 10, scheme)
    assert ece(probs, y, 10, scheme) == pytest.approx(top, abs=1e-12)
    each = [naive_ece(probs[:, k], y == k, 10, scheme) for k in range(3)]
    assert classwise_ece(probs, y, 10, scheme) == pytest.approx(statistics.mean(each), abs=1e-12)


def test_classwise_by_hand():
    probs, y = torch.tensor([[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]]), torch.tensor([0, 1])
    # One bin. Class 0: |1/2 - 3/4|, class 1: |1/2 - 1/8|, class 2: |0 - 1/8|.
    assert classwise_ece(probs, y, bins=1) == pytest.approx((0.25 + 0.375 + 0.125) / 3, abs=1e-15)
    assert ece(probs, y, bins=1) == 0.25


def test_one_bin_is_the_gap_between_mean_confidence_and_accuracy():
    probs, y = random_classifier(400)
    gap = abs(float(probs.max(1).values.mean()) - float((probs.argmax(1) == y).double().mean()))
    for scheme in ("width", "mass"):
        assert ece(probs, y, 1, scheme) == pytest.approx(gap, abs=1e-12)
        assert mce(probs, y, 1, scheme) == pytest.approx(gap, abs=1e-12)


def drawn(n, seed, gap=0.0):
    """Binary top-label confidences uniform in [.5 + gap, 1], true with probability confidence - gap."""
    g = torch.Generator().manual_seed(seed)
    p = 0.5 + gap + (0.5 - gap) * torch.rand(n, generator=g, dtype=torch.float64)
    wrong = (torch.rand(n, generator=g, dtype=torch.float64) >= p - gap).long()
    return torch.stack([p, 1 - p], 1), wrong


@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("n", [200, 20_000])
def test_ece_by_chance_is_that_of_labels_that_follow_the_confidences(n, scheme):
    """Mean and standard deviation over many drawn sets of labels; the normal law of a bin's gap is good to 2 %."""
    repeats = 1000 if n == 200 else 300
    probs, _ = drawn(n, 0)
    labels = torch.Generator().manual_seed(1)
    scores = [
        ece(probs, (torch.rand(n, generator=labels, dtype=torch.float64) >= probs[:, 0]).long(), 10, scheme)
        for _ in range(repeats)
    ]
    mean, spread = ece_by_chance(probs, 10, scheme)
    found = statistics.stdev(scores)
    assert abs(statistics.mean(scores) - mean) < 4 * found / math.sqrt(repeats) + 0.02 * mean
    assert abs(found - spread) < 4 * found / math.sqrt(2 * repeats) + 0.02 * spread


def test_ece_by_chance_of_certainty_is_nothing():
    assert ece_by_chance(torch.eye(3, dtype=torch.float64) * (1 + 1e-12)) == (0.0, 0.0)


def test_ece_by_chance_takes_probabilities_alone():
    with pytest.raises(InputError, match="softmax"):
        ece_by_chance(torch.tensor([[2.0, -1.0]]))


def test_a_true_gap_is_found():
    probs, y = drawn(20_000, seed=0, gap=0.1)
    standard_error = 0.5 / math.sqrt(20_000)  # at most, since all bins have gaps of one sign
    for bins in (10, 15):
        assert abs(ece(probs, y, bins) - 0.1) < 4 * standard_error
        assert abs(ece(probs, y, bins, "mass") - 0.1) < 4 * standard_error


# A coarse grid of probabilities: ties, full and zero confidence all occur.
coarse = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=30)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    data=coarse,
    bins=st.integers(1, 20),
    scheme=st.sampled_from(["width", "mass"]),
    order=st.randoms(use_true_random=False),
)
def test_bounds_and_permutation_invariance(data, bins, scheme, order):
    def tensors(rows):
        p = torch.tensor([numerator / 4 for numerator, _ in rows])
        return torch.stack([1 - p, p], 1), torch.tensor([label for _, label in rows])

    shuffled = list(data)
    order.shuffle(shuffled)
    for metric in (ece, mce, classwise_ece):
        value = metric(*tensors(data), bins, scheme)
        assert 0 <= value <= 1 + 1e-12
        assert metric(*tensors(shuffled), bins, scheme) == pytest.approx(value, abs=1e-12)
    assert ece(*tensors(data), bins, scheme) <= mce(*tensors(data), bins, scheme) + 1e-12

    r = reliability(*tensors(data), bins, scheme)
    assert r.count.sum() == len(data)
    assert (np.isnan(r.confidence) == (r.count == 0)).all()
    held = r.count > 0
    assert (r.lower[held] <= r.confidence[held]).all()
    assert (r.confidence[held] <= r.upper[held]).all()


def test_equal_confidences_share_a_bin():
    probs, y = torch.full((6, 2), 0.5), torch.tensor([0, 1, 0, 1, 0, 1])
    assert ece(probs, y, bins=3, scheme="mass") == 0
    assert sorted(reliability(probs, y, bins=3, scheme="mass").count.tolist()) == [0, 0, 6]


@pytest.mark.parametrize("bins", [0, -1, 1.5])
@pytest.mark.parametrize("metric", [reliability, ece, mce, classwise_ece])
def test_bins_must_be_a_positive_whole_number(metric, bins):
    with pytest.raises(InputError, match="write `bins=15`"):
        metric(torch.eye(2), torch.tensor([0, 1]), bins=bins)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(InputError, match=r"scheme='adaptive'.*mass"):
        ece(torch.eye(2), torch.tensor([0, 1]), scheme="adaptive")
