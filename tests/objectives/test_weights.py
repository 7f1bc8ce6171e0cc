import pytest
from hypothesis import given
from hypothesis import strategies as st

from credent.errors import InputError
from credent.objectives import Annealed, PerBatch


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


@pytest.mark.parametrize(("batches", "ratio"), [(0, 0.5), (3, 0.0), (3, -1.0), (3, float("nan"))])
def test_geometric_refuses_what_is_no_ratio(batches, ratio):
    with pytest.raises(InputError, match="needs batches >= 1 and ratio > 0"):
        PerBatch.geometric(batches, ratio)
