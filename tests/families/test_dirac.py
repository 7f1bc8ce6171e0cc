"""The point mass: its penalty in one pass against the prior's log-density by plain autograd, to second derivatives."""

import pytest
import torch
from torch import nn

import credent as cr


@pytest.mark.parametrize("scale", ["fan_in", 0.3])
def test_the_penalty_is_minus_the_log_density_with_its_derivatives(scale):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)).double()
    layout = cr.layout.Layout(net)
    prior, q = cr.priors.Gaussian(scale).bind(layout), cr.families.Dirac().bind(layout)
    means = list(layout.params().values())
    ours, plain = q.kl(prior), -prior.log_prob(layout.params())
    assert ours.item() == pytest.approx(plain.item(), rel=1e-12)
    first = [torch.autograd.grad(3 * value, means, create_graph=True) for value in (ours, plain)]
    for a, b in zip(*first, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    second = [torch.autograd.grad(sum(g.pow(3).sum() for g in grads), means) for grads in first]
    for a, b in zip(*second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_gains_rest_at_one():
    layout = cr.layout.Layout(nn.BatchNorm1d(2))
    prior, q = cr.priors.Gaussian().bind(layout), cr.families.Dirac().bind(layout)
    (gradient,) = torch.autograd.grad(q.kl(prior), [layout.params()["weight"]])
    assert torch.equal(gradient, torch.zeros(2))  # they begin at their rest
