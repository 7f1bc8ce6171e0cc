import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from credent.errors import InputError
from credent.objectives import Annealed, Cyclical, PerBatch


def test_annealed_rises_linearly_and_stays():
    beta = Annealed(batches=4, end=0.5)
    assert [beta(i) for i in range(7)] == [0.0, 0.125, 0.25, 0.375, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    "arguments", [{"batches": 0}, {"batches": 3, "end": -1.0}, {"batches": 3, "end": float("nan")}]
)
def test_annealed_refuses_what_is_no_schedule(arguments):
    with pytest.raises(InputError, match="needs batches >= 1 and end >= 0"):
        Annealed(**arguments)


def test_geometric_weights_of_five_batches():
    """2^(M-i) / (2^M - 1) for M = 5."""
    assert PerBatch.geometric(5, ratio=0.5).weights == pytest.approx([16 / 31, 8 / 31, 4 / 31, 2 / 31, 1 / 31])
    assert PerBatch.geometric(3, ratio=2.0).weights == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert PerBatch.geometric(4, ratio=1.0).weights == pytest.approx([0.25] * 4)


def test_many_batches_neither_overflow_nor_vanish():
    assert PerBatch.geometric(5000, ratio=0.5)(0) == pytest.approx(2500)
    assert PerBatch.geometric(5000, ratio=2.0)(4999) == pytest.approx(2500)


def test_cyclical_rises_stays_and_starts_over():
    beta = Cyclical(batches=8, share=0.5, end=0.4)
    cycle = [0.0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4]
    assert [beta(i) for i in range(24)] == pytest.approx(3 * cycle)
    saw = Cyclical(batches=4, share=1.0)
    assert [saw(i) for i in range(6)] == [0.0, 0.25, 0.5, 0.75, 0.0, 0.25]


@given(st.integers(1, 200), st.integers(1, 200), st.floats(0.0, 3.0))
def test_a_cycle_pays_less_by_what_it_says(rising, rest, end):
    batches = rising + rest
    beta = Cyclical(batches, share=rising / batches, end=end)
    assert sum(beta(i) for i in range(batches)) == pytest.approx(end * (batches - (rising + 1) / 2), abs=1e-9)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batches": 0},
        {"batches": 3, "share": 0.0},
        {"batches": 3, "share": 1.1},
        {"batches": 3, "share": float("nan")},
        {"batches": 3, "end": -1.0},
    ],
)
def test_cyclical_refuses_what_is_no_cycle(arguments):
    with pytest.raises(InputError, match=r"a share in \(0, 1\]"):
        Cyclical(**arguments)


@given(st.integers(1, 5000), st.floats(-3.0, 3.0))
@example(5000, -3.0)
@example(5000, 3.0)
@example(5000, 0.0)
def test_geometric_weights_sum_to_one_for_any_ratio(batches, exponent):
    weights = PerBatch.geometric(batches, 10**exponent).weights
    assert len(weights) == batches
    assert math.fsum(weights) == pytest.approx(1, abs=1e-12)
    heaviest = 0 if exponent < 0 else batches - 1
    assert weights[heaviest] == max(weights)


def test_a_constant_weight_is_the_geometric_one_of_ratio_one():
    """beta = 1 for M batches is pi_i = 1 / M, which sum to one."""
    for batches in (1, 7, 500, 5000):
        beta = PerBatch.geometric(batches, ratio=1.0)
        assert [beta(i) for i in range(batches)] == pytest.approx([1.0] * batches, rel=1e-12)


@given(
    st.integers(2, 2000), st.sampled_from([Annealed(300), Annealed(3, end=0.2), Cyclical(50), Cyclical(7, 0.3, 2.0)])
)
def test_a_shaped_epochs_weights_sum_to_one_and_keep_the_shape(batches, schedule):
    beta = PerBatch.shaped(batches, schedule)
    assert math.fsum(beta.weights) == pytest.approx(1, abs=1e-12)
    total = sum(schedule(i) for i in range(batches))
    for i in {0, 1, batches // 2, batches - 1}:
        assert beta(i) == beta(batches + i) == pytest.approx(batches * schedule(i) / total, rel=1e-12)


def test_a_shape_without_weight_is_refused():
    with pytest.raises(InputError, match="one is positive"):
        PerBatch.shaped(1, Annealed(10))  # 0
    with pytest.raises(InputError, match="not negative"):
        PerBatch.shaped(3, lambda i: i - 1)


@given(st.integers(1, 300), st.floats(0.05, 20.0), st.integers(0, 10))
def test_an_epochs_weights_average_one(batches, ratio, epoch):
    """beta_i = M pi_i, so that beta / N over B = N / M data counts the KL once per epoch, whichever epoch."""
    beta = PerBatch.geometric(batches, ratio)
    values = [beta(epoch * batches + i) for i in range(batches)]
    assert sum(values) / batches == pytest.approx(1)
    assert min(values) >= 0
    if batches > 1 and values[1] > 1e-200 and values[0] > 1e-200:
        assert values[1] / values[0] == pytest.approx(ratio)


def test_own_weights_start_over_with_every_epoch():
    beta = PerBatch((0.5, 0.3, 0.2))
    assert [beta(i) for i in range(5)] == pytest.approx([1.5, 0.9, 0.6, 1.5, 0.9])


@pytest.mark.parametrize("weights", [(), (0.5, 0.6), (1.5, -0.5), (float("nan"), 1.0)])
def test_weights_that_are_no_shares_are_refused(weights):
    with pytest.raises(InputError, match="not negative and sum to 1"):
        PerBatch(weights)


@pytest.mark.parametrize(("batches", "ratio"), [(0, 0.5), (3, 0.0), (3, -1.0), (3, float("nan")), (3, math.inf)])
def test_geometric_refuses_what_is_no_ratio(batches, ratio):
    with pytest.raises(InputError, match="needs batches >= 1 and ratio > 0"):
        PerBatch.geometric(batches, ratio)
