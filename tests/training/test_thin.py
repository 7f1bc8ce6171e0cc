import pytest
from hypothesis import given
from hypothesis import strategies as st

from credent.errors import BudgetError, InputError
from credent.training.thin import Thin

SHARES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9])


@given(SHARES, st.integers(1, 20), st.integers(1, 200))
def test_what_is_counted_is_what_is_kept(after, every, total):
    """By the definition: beyond the share, each multiple of `every` steps later."""
    thin = Thin(after, every)
    kept = [t for t in range(1, total + 1) if thin.keeps(t, total)]
    first = next(t for t in range(total + 1) if t >= after * total)
    assert kept == list(range(first + every, total + 1, every))
    assert thin.count(total) == len(kept)
    assert all(t > after * total for t in kept)


def test_a_whole_run_and_its_second_half():
    assert [t for t in range(1, 9) if Thin(after=0, every=1).keeps(t, 8)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [t for t in range(1, 9) if Thin(after=0.5, every=1).keeps(t, 8)] == [5, 6, 7, 8]
    assert Thin().count(100_000) == 500


@given(st.integers(1, 30), st.integers(2, 500), st.integers(1, 1000), st.integers(1, 20_000))
def test_the_advice_of_the_budget_is_good(every, total, size, budget):
    thin = Thin(0.5, every, max_bytes=budget)
    try:
        thin.check(total, size)
    except BudgetError as error:
        assert thin.count(total) * size > budget
        advised = int(str(error).split("Thin(every=")[1].split(")")[0])
        assert Thin(0.5, advised).count(total) * size <= budget
    except InputError:
        assert thin.count(total) == 0
    else:
        assert 0 < thin.count(total) * size <= budget


@pytest.mark.parametrize("wrong", [{"after": 1.0}, {"after": -0.1}, {"every": 0}, {"after": float("nan")}])
def test_plans_that_are_none(wrong):
    with pytest.raises(InputError, match=r"share in \[0, 1\) and every >= 1"):
        Thin(**wrong)


def test_a_run_too_short_says_how_to_thin():
    with pytest.raises(InputError, match="keeps no draw of a run of 100 steps: run longer, or write every=5"):
        Thin(after=0.5, every=100).check(100, 4)
    Thin(after=0.5, every=5).check(100, 4)
