"""The Gaussian family as people use it, own noise and all, against the exact posterior of linear regression."""

import pytest
import torch
from torch import nn

import credent as cr

NOISE, PRIOR, STEPS = 0.5, 1.0, 3000


@pytest.mark.slow
@pytest.mark.parametrize("dims", [3, 8, 20])
def test_means_and_scales_reach_the_mean_field_optimum(dims):
    """Means within 1 % of the mean's norm, scales (averaged in log over the tail) within 2 % of 1/sqrt(precision)."""
    g = torch.Generator().manual_seed(dims)
    mix = torch.eye(dims, dtype=torch.float64) + 0.15 * torch.randn(dims, dims, generator=g, dtype=torch.float64)
    x = torch.randn(100, dims, generator=g, dtype=torch.float64) @ mix  # correlated inputs
    w = torch.randn(dims, 1, generator=g, dtype=torch.float64)
    y = x @ w + NOISE * torch.randn(100, 1, generator=g, dtype=torch.float64)
    precision = x.T @ x / NOISE**2 + torch.eye(dims, dtype=torch.float64) / PRIOR**2
    exact = torch.linalg.solve(precision, x.T @ y / NOISE**2).flatten()

    torch.manual_seed(0)
    net = nn.Linear(dims, 1, bias=False).double()
    likelihood, prior = cr.likelihoods.Gaussian(scale=NOISE), cr.priors.Gaussian(scale=PRIOR)
    bnn = cr.VI(net, likelihood, prior, num_data=100, samples=32)
    optimizer = torch.optim.Adam(bnn.param_groups(lr=0.05, scale_lr=0.05))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    tail = []
    for step in range(STEPS):
        bnn(x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if step > STEPS // 2:
            tail.append(bnn.posterior.stddev()["weight"].flatten().log())
    assert (net.weight.detach().flatten() - exact).norm() < 0.01 * exact.norm()
    scales = torch.stack(tail).mean(0).exp()
    assert (scales * precision.diag().sqrt() - 1).abs().max() < 0.02
