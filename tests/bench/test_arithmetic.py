"""The arithmetic of the races, against numbers worked out otherwise."""

import statistics

import numpy as np
import pytest
from bench.arithmetic import SLACK, exponent, grows_faster, interval, paired, summary, worse
from scipy import stats


def test_ratios_are_paired_by_round():
    times = {"plain": [1.0, 2.0, 4.0], "ours": [1.5, 2.0, 8.0]}
    assert paired(times, "plain")["ours"] == [1.5, 1.0, 2.0]  # not the ratio of medians, which is 1
    assert paired(times, "ours")["ours"] == [1.0, 1.0, 1.0]


def test_summary_takes_the_tenth_and_the_ninetieth_percent():
    found = summary([[float(i) for i in range(1, 5)], [float(i) for i in range(5, 12)]])
    assert (found["median"], found["low"], found["high"], found["rounds"]) == (6.0, 2.0, 10.0, 11)
    assert found["heats"] == [2.5, 8.0]


def test_the_interval_is_the_bootstraps():
    values = np.random.default_rng(3).gamma(4.0, 0.3, 401)
    oracle = stats.bootstrap((values,), np.median, method="percentile", n_resamples=20_000, batch=2000, random_state=1)
    low, high = interval([list(values)])
    width = oracle.confidence_interval.high - oracle.confidence_interval.low
    assert low == pytest.approx(oracle.confidence_interval.low, abs=0.04 * width)
    assert high == pytest.approx(oracle.confidence_interval.high, abs=0.04 * width)
    assert interval([list(values)]) == (low, high)  # the same rounds, the same words


def test_the_interval_holds_the_median_as_often_as_it_says():
    rng = np.random.default_rng(0)
    runs = 300
    inside = sum(low <= 1.0 <= high for low, high in (interval([np.exp(rng.normal(0, 0.2, 25))]) for _ in range(runs)))
    assert 0.90 < inside / runs <= 1.0  # 0.95 +- 4 standard errors of 0.0126; ties make the bootstrap a little wide


def test_the_interval_knows_that_rounds_of_a_heat_move_together():
    """Heats differ by 3 %, rounds of one by 1 %: the interval is as wide as six heats leave it, not as 240 rounds."""
    rng = np.random.default_rng(0)
    runs, inside, narrow = 100, 0, 0
    for _ in range(runs):
        heats = [np.exp(rng.normal(rng.normal(0, 0.03), 0.01, 40)) for _ in range(6)]
        low, high = interval(heats)
        inside += low <= 1.0 <= high
        low, high = interval([np.concatenate(heats)])
        narrow += low <= 1.0 <= high
    assert inside / runs > 0.8  # of six heats the bootstrap says a little less than 95 %
    assert narrow / runs < 0.5


def test_exponent_and_error_are_those_of_a_regression():
    sizes = [100, 200, 400, 800, 1600]
    times = [2.0, 4.3, 7.9, 16.5, 31.0]
    oracle = stats.linregress(np.log(sizes), np.log(times))
    assert exponent(sizes, times) == pytest.approx((oracle.slope, oracle.stderr), rel=1e-9)
    assert exponent([1, 10], [1, 1000]) == (pytest.approx(3.0), float("inf"))


@pytest.mark.parametrize(("difference", "error", "faster"), [(0.3, 0.1, True), (0.3, 0.2, False), (0.01, 0.0, False)])
def test_growth_is_faster_beyond_its_error(difference, error, faster):
    assert grows_faster(difference, error) is faster
    assert not grows_faster(-difference, error)


def test_worse_is_beyond_both_intervals_and_the_slack():
    recorded = {"interval": [1.40, 1.50]}
    edge = (1 + SLACK) * 1.50
    assert worse({"interval": [edge + 1e-9, 2.0]}, recorded)
    assert not worse({"interval": [edge - 1e-9, 2.0]}, recorded)
    assert not worse({"interval": [1.0, 1.1]}, recorded)  # faster
    noise = 0
    for seed in range(40):  # two runs of the same thing: medians of 15 rounds, each with 10 % of noise
        rng = np.random.default_rng(seed)
        one, two = ({"interval": interval([list(1.5 * np.exp(rng.normal(0, 0.1, 15)))])} for _ in range(2))
        noise += worse(one, two)
    assert noise == 0
    slower = {"interval": interval([list(1.5 * 1.3 * np.exp(np.random.default_rng(9).normal(0, 0.05, 15)))])}
    assert worse(slower, {"interval": [1.45, 1.55]})
    assert statistics.median(slower["interval"]) > 1.8
