"""The factor at which a penalty stands for a layer's initialisation, against draws from its density."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from credent import penalties
from credent.errors import InputError
from credent.layout import Layout

ROWS, COLUMNS = penalties.GroupLasso(over="rows"), penalties.GroupLasso(over="columns")


def l2_draws(rng, rate, count):
    return rng.standard_normal(count) / math.sqrt(2 * rate)


def l1_draws(rng, rate, count):
    return rng.exponential(size=count) * rng.choice([-1, 1], size=count) / rate


def group_draws(size):
    """From exp(-rate |w|) in `size` dimensions: a radius of density r^(size - 1) exp(-rate r), any direction."""

    def draws(rng, rate, count):
        groups = -(-count // size)
        radius = rng.gamma(size, size=(groups, 1)) / rate
        direction = rng.standard_normal((groups, size))
        return radius * direction / np.linalg.norm(direction, axis=1, keepdims=True)

    return draws


LAYERS = {
    "linear": (nn.Linear(50, 128), 50, 128),
    "small": (nn.Linear(3, 2), 3, 2),
    "conv": (nn.Conv2d(4, 6, 3), 36, 54),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), 18, 27),
    "transposed": (nn.ConvTranspose1d(6, 4, 3, groups=2), 9, 6),
}


@pytest.mark.parametrize(("layer", "fan_in", "fan_out"), LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("penalty", ["l2", "l1", "rows", "columns"])
def test_draws_from_the_penalty_have_the_variance(penalty, layer, fan_in, fan_out):
    described, draws = {
        "l2": (penalties.L2, l2_draws),
        "l1": (penalties.L1, l1_draws),
        "rows": (ROWS, group_draws(fan_in)),
        "columns": (COLUMNS, group_draws(fan_out)),
    }[penalty]
    drawn = draws(np.random.default_rng(0), penalties.factor(described, layer), 10**6)
    assert np.mean(drawn**2) * fan_in == pytest.approx(1, rel=0.005)


@pytest.mark.parametrize(
    ("penalty", "at_50"),
    [
        (penalties.L2, 25.0),
        (penalties.L1, 10.0),
        (penalties.GroupLasso, math.sqrt(50 * 51)),
        (ROWS, 50.497524691810387),
        (COLUMNS, 80.311892021045066),
    ],
)
def test_the_table(penalty, at_50):
    """P / 2, sqrt(2 P), sqrt((n + 1) P) with P = 50, and the reversed one with 128 outputs."""
    assert penalties.factor(penalty, nn.Linear(50, 128)) == pytest.approx(at_50, rel=1e-12)
    assert penalties.factor(penalty, nn.Linear(50, 128), "fan_in") == pytest.approx(at_50, rel=1e-12)


def test_glorot_is_the_table_where_the_fans_are_equal():
    layer = nn.Linear(50, 50)
    expected = [(penalties.L2, 25.0), (penalties.L1, 10.0), (ROWS, math.sqrt(2550)), (COLUMNS, math.sqrt(2550))]
    for penalty, by_hand in expected:
        assert penalties.factor(penalty, layer, "glorot") == pytest.approx(by_hand, rel=1e-12)
    assert penalties.factor(penalties.L2, nn.Linear(50, 128), "glorot") == pytest.approx((50 + 128) / 4, rel=1e-12)


@pytest.mark.parametrize(
    ("variance", "activation", "value"),
    [
        (0.3, torch.relu, 0.3),
        (1, torch.relu, 1.0),
        (np.float32(0.5), torch.relu, 0.5),
        ("kaiming", torch.relu, 2 / 8),
        ("edge_of_chaos", torch.relu, 2 / 8),
        ("edge_of_chaos", nn.ReLU(inplace=True), 2 / 8),
        ("edge_of_chaos", torch.tanh, 1 / 8),
    ],
)
def test_variances(variance, activation, value):
    layer = nn.Linear(8, 3)
    by_hand = {penalties.L2: 1 / (2 * value), penalties.L1: math.sqrt(2 / value), ROWS: 3 / math.sqrt(value)}
    for penalty, expected in by_hand.items():
        assert penalties.factor(penalty, layer, variance, activation=activation) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rule", ["fan_in", "kaiming", "glorot"])
@pytest.mark.parametrize("describe", [penalties.L2, penalties.L1, penalties.GroupLasso])
def test_a_rule_in_a_penalty_is_the_factor_of_each_layer(describe, rule):
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 5))
    bound = describe(rule).bind(Layout(net))
    expected = {f"{i}.weight": penalties.factor(describe, net[i], rule) for i in (0, 3)}
    assert bound.factor == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("variance", [0, -1.0, math.nan, math.inf, None])
def test_a_variance_is_a_positive_number(variance):
    with pytest.raises(InputError, match="positive number"):
        penalties.factor(penalties.L2, nn.Linear(2, 2), variance)


def test_bad_input_teaches():
    with pytest.raises(InputError, match="'fan_in', 'kaiming', 'glorot', 'edge_of_chaos' or a number"):
        penalties.factor(penalties.L2, nn.Linear(2, 2), "xavier")
    for penalty in (nn.L1Loss, "l1", lambda mu, sigma: mu**2):
        with pytest.raises(InputError, match=r"write L2, L1, GroupLasso\(over='rows'\)"):
            penalties.factor(penalty, nn.Linear(2, 2))
    for layer in (nn.Sequential(nn.Linear(2, 2)), nn.LayerNorm(4), nn.LSTM(2, 3)):
        with pytest.raises(InputError, match=r"one linear or convolutional layer.*L1\(factor='fan_in'\)"):
            penalties.factor(penalties.L2, layer)
    with pytest.raises(InputError, match=r"such as net\[0\]"):
        penalties.factor(penalties.L2, torch.zeros(2, 2))
