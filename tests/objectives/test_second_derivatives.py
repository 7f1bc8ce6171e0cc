"""BatchNorm and softplus with hand-written second derivatives, against finite differences and torch's own."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

import credent as cr
from credent import VL, likelihoods
from credent.objectives.second_derivatives import fast_second_derivatives

SHAPES = [(5, 3), (3, 2, 4), (4, 3, 2, 2), (2, 2, 2, 1, 3)]


def normal(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def names(y):
    return type(y.grad_fn).__name__


@pytest.mark.parametrize("affine", [0, 1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norms_derivatives_are_those_of_finite_differences(shape, affine):
    """With a large eps, so that z has not unit variance; without parameters, with a weight, with both."""
    inputs = [normal(*shape), *(normal(shape[1], seed=s + 1) for s in range(affine))]

    def f(x, *parameters):
        with fast_second_derivatives():
            y = functional.batch_norm(x, None, None, *parameters, training=True, eps=0.3)
        assert names(y) == "_BatchNormBackward"
        return y

    assert gradcheck(f, inputs)
    assert gradgradcheck(f, inputs)


@pytest.mark.parametrize(("beta", "threshold"), [(1, 20), (2.5, 20), (3.0, 0.5)])
def test_softplus_derivatives_are_torchs_beyond_the_threshold_too(beta, threshold):
    x, g, u = normal(40), normal(40, seed=1), normal(40, seed=2).detach()
    found = []
    for mode in (fast_second_derivatives(), nullcontext()):
        with mode:
            y = functional.softplus(x, beta, threshold)
        (by_x,) = torch.autograd.grad(y, x, g, create_graph=True)
        found.append((y, by_x, *torch.autograd.grad(by_x, [g, x], u)))
    assert names(found[0][0]) == "_SoftplusBackward"
    for mine, torchs in zip(*found, strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-13, atol=1e-15)
    assert found[0][3].abs().max() > 0.01


def test_softplus_of_any_point_agrees_with_finite_differences():
    x = normal(6)

    def f(x):
        with fast_second_derivatives():
            return functional.softplus(x, 1.7)

    assert gradcheck(f, [x])
    assert gradgradcheck(f, [x])


def twice(net, x, mode):
    """Outputs, and the gradient by the parameters of a sum of squared gradients."""
    with mode:
        y = net(x)
    parameters = list(net.parameters())
    first = torch.autograd.grad(y.square().sum(), parameters, create_graph=True)
    return [y, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), parameters)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_network_of_modules_is_the_same_and_so_are_its_statistics(training, momentum, channels_last):
    """Convolution, BatchNorm and softplus, one BatchNorm that keeps no statistics, a ReLU that `smooth` replaces."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=momentum), nn.Softplus()),
        *(nn.Conv2d(3, 2, 2), nn.BatchNorm2d(2, track_running_stats=False, affine=False), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(8, 3), nn.BatchNorm1d(3, momentum=momentum), nn.Softplus(beta=2)),
    )
    net = cr.smooth(net).double().train(training)
    x = normal(6, 2, 5, 5).detach()
    if channels_last:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    other = copy.deepcopy(net)
    for mine, torchs in zip(twice(net, x, fast_second_derivatives()), twice(other, x, nullcontext()), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-9, atol=1e-9)  # a bias before BatchNorm: zero
    for (k, mine), torchs in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(mine, torchs), k
    assert net[1].num_batches_tracked == (1 if training else 0)


def test_what_torch_refuses_is_refused():
    with fast_second_derivatives(), pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.BatchNorm1d(3)(torch.zeros(1, 3))


def test_outside_nothing_is_replaced():
    x = normal(4, 3)
    with fast_second_derivatives():
        pass
    assert names(nn.BatchNorm1d(3).double()(x)) == "NativeBatchNormBackward0"


@pytest.mark.parametrize("shared", [True, False])
def test_the_exact_way_takes_them(shared, monkeypatch):
    """Behind BatchNorm and softplus, on the whole batch and on a part: value and gradients are torch's own."""
    found = []
    for mode in (fast_second_derivatives, nullcontext):
        monkeypatch.setattr("credent.objectives.vl.fast_second_derivatives", mode)
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Softplus(), nn.Linear(6, 3)).double()
        seen = []
        net[1].register_forward_hook(lambda _, i, o, seen=seen: seen.append(names(o)))
        vl = VL(net, likelihoods.Categorical(), num_data=32, curvature="exact", fraction=1.0 if shared else 0.5)
        vl.noise.seed(0)
        loss = vl(normal(32, 3).detach(), torch.arange(32) % 3)
        loss.backward()
        assert set(seen) == {"_BatchNormBackward" if mode is fast_second_derivatives else "NativeBatchNormBackward0"}
        found.append([loss, *(p.grad for p in vl.parameters())])
    for mine, torchs in zip(*found, strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-10, atol=1e-13)
