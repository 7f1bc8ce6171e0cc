import math

import pytest
from torch import nn

from credent.errors import InputError
from credent.layout import Layout
from credent.priors.scales import scales


def network():
    return nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.Linear(8, 2), nn.Embedding(5, 7))


@pytest.mark.parametrize(
    ("rule", "conv", "linear", "embedding"),
    # grouped convolution: an output sums 2 channels of 3 x 3, an input feeds 3 outputs at 3 x 3 places
    [
        ("fan_in", 1 / 18, 1 / 8, 1.0),
        ("kaiming", 2 / 18, 2 / 8, 2.0),
        ("glorot", 2 / (18 + 27), 2 / (8 + 2), 2 / (1 + 7)),
    ],
)
def test_rules_by_hand(rule, conv, linear, embedding):
    found = scales(Layout(network()), rule, standard_deviation=1.0)
    weights = {"0.weight": conv, "2.weight": linear, "3.weight": embedding}
    for name, variance in weights.items():
        assert found.pop(name) == pytest.approx(math.sqrt(variance))
    assert found == {"0.bias": 1.0, "1.weight": 1.0, "1.bias": 1.0, "2.bias": 1.0}


def test_transposed_convolution_swaps_the_fans():
    layout = Layout(nn.ConvTranspose1d(6, 4, 3, groups=2, bias=False))
    assert scales(layout, "fan_in", 1.0)["weight"] == pytest.approx(1 / math.sqrt(3 * 3))
    assert scales(layout, "glorot", 1.0)["weight"] == pytest.approx(math.sqrt(2 / (3 * 3 + 2 * 3)))


def test_a_rule_speaks_of_the_standard_deviation_and_a_number_of_the_scale():
    layout = Layout(nn.Linear(4, 1))
    assert scales(layout, "fan_in", standard_deviation=2.0) == {"weight": 0.25, "bias": 0.5}
    assert scales(layout, 0.3, standard_deviation=2.0) == {"weight": 0.3, "bias": 0.3}


def test_the_first_pattern_that_matches_counts():
    layout = Layout(nn.Sequential(nn.Linear(4, 3), nn.Linear(9, 1)))
    found = scales(layout, {"1.*": "fan_in", "*.bias": 0.5, "*": 0.1}, 1.0)
    assert found == {"0.weight": 0.1, "0.bias": 0.5, "1.weight": pytest.approx(1 / 3), "1.bias": 1.0}


def test_a_pattern_that_matches_nothing_is_a_typing_error():
    with pytest.raises(InputError, match=r"'head\.\*'.*weight, bias"):
        scales(Layout(nn.Linear(2, 1)), {"head.*": 0.1, "*": 1.0}, 1.0)


def test_every_parameter_needs_a_scale():
    with pytest.raises(InputError, match=r"'bias': add a last one, as in '\*': 'fan_in'"):
        scales(Layout(nn.Linear(2, 1)), {"weight": 0.1}, 1.0)


def test_an_unknown_rule_lists_the_known_ones():
    with pytest.raises(InputError, match="'fan_in', 'kaiming' or 'glorot'"):
        scales(Layout(nn.Linear(2, 1)), "xavier", 1.0)


@pytest.mark.parametrize("scale", [0, -0.5, math.inf, math.nan])
def test_a_scale_is_positive_and_finite(scale):
    with pytest.raises(InputError, match="positive number"):
        scales(Layout(nn.Linear(2, 1)), {"weight": 1.0, "*": scale}, 1.0)
