"""On badly scaled inputs BNP is far ahead of SGLD: the Griewank function on the paper's ranges, 2.5 wide and 17.5."""

import math

import torch
from torch import nn

import credent as cr

ROWS, BATCH = 1000, 100


def griewank():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, 2, generator=generator) * torch.tensor([2.5, 17.5]) + torch.tensor([-7.5, -2.5])
    f = 1 + x.square().sum(1) / 4000 - torch.cos(x[:, 0]) * torch.cos(x[:, 1] / math.sqrt(2))
    return x, (f + 0.1 * torch.randn(ROWS, generator=generator))[:, None]


def errors(build, epochs):
    """Mean squared error of each epoch, from the same start and on the same batches."""
    torch.manual_seed(1)
    x, y = griewank()
    net = nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
    loss = cr.MAP(net, cr.likelihoods.Gaussian(scale=0.1), num_data=ROWS)
    sampler = build(net)
    found = []
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(ROWS).split(BATCH):
            sampler.zero_grad()
            loss(x[chosen], y[chosen]).backward()
            sampler.step()
            total += (loss.last.outputs - y[chosen]).square().mean().item() * BATCH / ROWS
        found.append(total)
    return found


def test_bnp_needs_less_than_half_the_steps():
    """At the largest of 1e-7, 1e-6, 1e-5 at which SGLD does not diverge; it does at 1e-5."""
    common = {"lr": 1e-6, "num_data": ROWS, "seed": 0}
    sgld = errors(lambda net: cr.samplers.SGLD(net.parameters(), **common), 30)
    bnp = errors(lambda net: cr.samplers.BNPSGLD(net, decay=0.985, floor=(1e-3, 1e-3), **common), 15)
    assert min(bnp) < min(sgld)
