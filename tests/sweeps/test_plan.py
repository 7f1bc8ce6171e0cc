import math
from random import Random

import numpy as np
import pytest
from scipy import stats

from credent.errors import InputError
from credent.sweeps import Choice, Jitter, LogUniform, Uniform
from credent.sweeps.fields import typed
from credent.sweeps.plan import check_seeds, seeded, settings


def draws(how, n=4000):
    random = Random(0)
    return np.array([how.draw(random) for _ in range(n)])


def test_draws_follow_their_laws():
    assert stats.kstest(draws(Uniform(-1.0, 3.0)), stats.uniform(-1, 4).cdf).pvalue > 0.01
    assert stats.kstest(draws(LogUniform(1e-4, 1e-1)), stats.loguniform(1e-4, 1e-1).cdf).pvalue > 0.01
    counts = np.unique(draws(Choice([1, 2, 5])), return_counts=True)
    assert counts[0].tolist() == [1, 2, 5]
    assert stats.chisquare(counts[1]).pvalue > 0.01


@pytest.mark.parametrize("base", [1e-3, 4.0])
def test_jitter_is_a_normal_of_half_the_value_cut_at_zero(base):
    random = Random(1)
    found = np.array([Jitter([base]).around(base, random) for _ in range(4000)])
    law = stats.truncnorm(-2.0, np.inf, loc=base, scale=base / 2)  # scale, not variance
    assert stats.kstest(found, law.cdf).pvalue > 0.01
    assert found.min() > 0


def test_whole_jitter_is_never_zero():
    random = Random(2)
    found = [Jitter([1]).around(1, random, whole=True) for _ in range(300)]
    assert {type(value) for value in found} == {int}
    assert min(found) == 1


def test_a_grid_is_every_combination():
    found = list(settings({"a": [1, 2], "b": ["x", "y", "z"]}))
    assert len(found) == 6
    assert {(each["a"], each["b"]) for each in found} == {(a, b) for a in (1, 2) for b in "xyz"}


def test_an_extended_sweep_makes_the_same_runs():
    vary = {"m": ["map"], "lr": LogUniform(1e-4, 1.0), "beta": Jitter([0.1, 1.0])}
    few = list(settings(vary, runs=3))
    assert len(few) == 6
    assert all(each in list(settings(vary, runs=7)) for each in few)
    assert all(each in list(settings(vary | {"m": ["map", "vi"]}, runs=3)) for each in few)
    assert all(each in list(settings(vary | {"beta": Jitter([0.1, 0.5, 1.0])}, runs=3)) for each in few)
    one_more = [{k: v for k, v in each.items() if k != "c"} for each in settings(vary | {"c": Choice([1])}, runs=3)]
    assert one_more == few
    assert not any(each in few for each in settings(vary, runs=3, draw_seed=1))


def test_listed_values_meet_the_same_draws_and_nothing_else_repeats():
    vary = {"m": ["map", "vi"], "lr": LogUniform(1e-4, 1.0), "s": LogUniform(1e-4, 1.0), "beta": Jitter([0.1, 1.0])}
    found = list(settings(vary, runs=5))
    by = {m: [(each["lr"], each["beta"]) for each in found if each["m"] == m] for m in ("map", "vi")}
    assert by["map"] == by["vi"]
    assert len({each["lr"] for each in found} | {each["s"] for each in found}) == 20  # 2 bases, 5 draws, 2 fields
    assert len({each["beta"] / base for each in found for base in (0.1, 1.0)}) == 20


def test_seeds_count_from_the_first():
    found = list(seeded(iter([{"a": 1}, {"a": 2}]), 5, 2))
    assert found == [{"a": 1, "seed": 5}, {"a": 1, "seed": 6}, {"a": 2, "seed": 5}, {"a": 2, "seed": 6}]
    assert list(seeded(iter([{"a": 1}]), 5, None)) == [{"a": 1}]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: list(settings({})), "nothing is varied"),
        (lambda: list(settings({"lr": []})), "list of values"),
        (lambda: list(settings({"lr": 0.1})), "goes into `fixed`"),
        (lambda: list(settings({"lr": "0.1"})), "list of values"),
        (lambda: list(settings({"lr": Uniform(0, 1)})), "runs=20"),
        (lambda: list(settings({"lr": Jitter([1.0])})), "runs=20"),
        (lambda: list(settings({"lr": [1.0]}, runs=3)), "seeds=3"),
        (lambda: list(settings({"lr": Uniform(0, 1)}, runs=0)), "at least one draw"),
        (lambda: check_seeds(0, {}), "at least once"),
        (lambda: check_seeds(2, {"seed": [1]}), "keep one"),
        (lambda: Uniform(1, 1), "the lower first"),
        (lambda: Uniform(0, math.inf), "finite"),
        (lambda: LogUniform(0, 1), "Uniform may begin at 0"),
        (lambda: Choice([]), "to choose from"),
        (lambda: Choice("abc"), "to choose from"),
        (lambda: Jitter([0.1, 0.0]), "positive number"),
        (lambda: Jitter([]), "positive number"),
        (lambda: typed("lrr", 1), "Did you mean 'lr'"),
        (lambda: typed("lr", "fast"), "lr is a number"),
        (lambda: typed("epochs", 1.5), "whole number"),
        (lambda: typed("epochs", True), "no numbers"),
    ],
)
def test_what_cannot_be_is_explained(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_values_take_the_type_of_their_field():
    assert typed("prior_scale", 0.25) == "0.25"
    assert typed("prior_scale", "fan_in") == "fan_in"
    assert typed("batch_size", "64") == 64
    assert isinstance(typed("lr", 1), float)
    assert typed("lr", None) is None
