"""The edge of chaos against closed forms, quadrature by another library, and a network that is wide and deep."""

import math

import pytest
import torch
from scipy import integrate, optimize, stats
from torch import nn
from torch.nn import functional as F

from credent.errors import InputError
from credent.penalties.mean_field import critical_variance, moments


@pytest.mark.parametrize("q", [1e-6, 0.1, 1.0, 30.0])
def test_moments_of_erf_in_closed_form(q):
    square = 2 / math.pi * math.asin(2 * q / (1 + 2 * q))
    slope = 4 / math.pi / math.sqrt(1 + 4 * q)
    assert moments(torch.erf, q) == pytest.approx((square, slope), rel=1e-10)


@pytest.mark.parametrize(
    ("activation", "by_hand"),
    [
        (F.elu, lambda x: x if x > 0 else math.expm1(x)),
        (F.gelu, lambda x: x * stats.norm.cdf(x)),
        (torch.sigmoid, lambda x: 1 / (1 + math.exp(-x))),
    ],
)
def test_moments_by_quadrature(activation, by_hand):
    halves = [
        integrate.quad(lambda z: by_hand(1.3 * z) ** 2 * math.exp(-z * z / 2) / math.sqrt(2 * math.pi), *ends)[0]
        for ends in ((-10, 0), (0, 10))
    ]
    assert moments(activation, 1.69)[0] == pytest.approx(sum(halves), rel=1e-7)


def test_known_edges_without_biases():
    known = [
        (torch.relu, 2.0),
        (nn.ReLU(inplace=True), 2.0),
        (nn.LeakyReLU(0.1), 2 / 1.01),
        (torch.tanh, 1.0),
        (torch.erf, math.pi / 4),
        (nn.Identity(), 1.0),
        (F.elu, 1.0),
    ]
    for activation, variance in known:
        assert critical_variance(activation) == pytest.approx(variance, rel=1e-8)


@pytest.mark.parametrize("bias_variance", [1e-4, 0.05, 1.0])
def test_the_edge_of_erf_solves_its_closed_form(bias_variance):
    def excess(q):
        square = 2 / math.pi * math.asin(2 * q / (1 + 2 * q))
        return square * math.pi / 4 * math.sqrt(1 + 4 * q) + bias_variance - q

    q = optimize.brentq(excess, 1e-9, 100, xtol=1e-14)
    found = critical_variance(torch.erf, bias_variance)
    assert found == pytest.approx(math.pi / 4 * math.sqrt(1 + 4 * q), rel=1e-8)


def test_the_published_edge_of_tanh():
    assert critical_variance(torch.tanh, bias_variance=0.05) == pytest.approx(1.76, abs=0.005)


def test_on_the_edge_a_wide_deep_network_keeps_small_differences():
    """Two inputs, close to each other: below the edge they meet, above it they part."""
    width, depth, bias_variance = 800, 24, 0.05
    critical = critical_variance(torch.tanh, bias_variance)
    grown = {}
    for share in (0.7, 1.0, 1.5):
        g = torch.Generator().manual_seed(0)
        x = torch.randn(1, width, generator=g, dtype=torch.float64).repeat(2, 1)
        x[1] += 1e-6 * torch.randn(width, generator=g, dtype=torch.float64)
        distances = []
        for _ in range(depth):
            w = torch.randn(width, width, generator=g, dtype=torch.float64) * math.sqrt(share * critical / width)
            b = torch.randn(width, generator=g, dtype=torch.float64) * math.sqrt(bias_variance)
            x = torch.tanh(x) @ w.T + b
            distances.append(float((x[0] - x[1]).square().mean()))
        grown[share] = (distances[-1] / distances[8]) ** (1 / (depth - 9))  # per layer, once the variance has settled
    assert grown[1.0] == pytest.approx(1, abs=0.05)
    assert grown[0.7] < 0.9 < 1.1 < grown[1.5]


@pytest.mark.parametrize(
    ("activation", "bias_variance"), [(torch.relu, 0.1), (F.gelu, 0.0), (F.silu, 0.05), (F.softplus, 0.0)]
)
def test_where_the_variance_never_settles_there_is_no_edge(activation, bias_variance):
    with pytest.raises(InputError, match=r"no edge of chaos.*variance='kaiming'"):
        critical_variance(activation, bias_variance)


def test_bad_input_teaches():
    for bias_variance in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="number >= 0"):
            critical_variance(torch.tanh, bias_variance)
    for activation in (nn.ReLU, lambda x: x.sum(), nn.GLU(0), lambda x: x.detach()):
        with pytest.raises(InputError, match=r"torch\.tanh, or a module such as nn\.ELU\(\)"):
            critical_variance(activation)


def test_an_activation_that_is_flat_at_zero_has_no_edge():
    with pytest.raises(InputError, match="no edge of chaos"):
        critical_variance(F.softshrink)
