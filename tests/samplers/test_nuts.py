"""Predictions as long exact runs make them: a tanh network of 49 weights, and logistic regression on real data.

reference/nuts.json has moments of f by pyro's NUTS; reference/make_nuts.py, which made it, has the data. hmc.json has
them by many chains of Hamiltonian Monte Carlo (make_hmc.py), to within a hundredth; the two must agree. Many chains of
a sampler run as one network: its units belong to chains in turn, and the last layer is a grouped convolution in which
no chain sees another.
"""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import credent as cr

HERE = Path(__file__).parent / "reference"
NUTS, KNOWN = (json.loads((HERE / name).read_text()) for name in ("nuts.json", "hmc.json"))
CHAINS, HIDDEN = 32, 16
LIKELIHOOD = {"tanh": cr.likelihoods.Gaussian(scale=0.3), "logistic": cr.likelihoods.Bernoulli()}


class Tanh(nn.Module):
    """One hidden layer, CHAINS times; the data stand where a convolution has positions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1, CHAINS * HIDDEN)
        self.last = nn.Conv1d(CHAINS * HIDDEN, CHAINS, 1, groups=CHAINS)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)).T[None])[0].T


def moments(problem, build, steps, every=25):
    """Mean and standard deviation of f at the grid, over chains and the later two thirds of their steps."""
    torch.manual_seed(0)
    data = runpy.run_path(str(HERE / "make_nuts.py"))["PROBLEMS"][problem][0]
    x, y, grid = (torch.tensor(a, dtype=torch.float32) for a in data())
    net = Tanh() if problem == "tanh" else nn.Linear(30, CHAINS)
    loss = cr.MAP(net, LIKELIHOOD[problem], cr.priors.Gaussian(scale=1.0), num_data=len(x))
    sampler = build(net, num_data=len(x), momentum=0.9, seed=1)
    targets = y[:, None].expand(-1, CHAINS)
    found = []
    for step in range(steps):
        sampler.zero_grad()
        loss(x, targets).backward()
        sampler.step()
        if step >= steps // 3 and step % every == 0:
            with torch.no_grad():
                found.append(net(grid))
    draws = torch.cat(found, 1).double()
    return draws.mean(1).numpy(), draws.std(1).numpy()


@pytest.mark.parametrize("problem", ["tanh", "logistic"])
def test_nuts_and_many_chains_agree(problem):
    """Within three errors of NUTS's mean at each input, and the reference is exact to a hundredth."""
    nuts, known = NUTS[problem], KNOWN[problem]
    assert max(known["error"].values()) < 0.01
    assert np.abs((np.array(nuts["mean"]) - known["mean"]) / known["sd"]).max() < 3 * nuts["error"]
    assert np.abs(np.array(nuts["sd"]) / known["sd"] - 1).max() < 3 * nuts["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "build", "steps"),
    [
        ("logistic", lambda net, **given: cr.samplers.SGLD(net.parameters(), lr=2e-3, **given), 6_000),
        ("logistic", lambda net, **given: cr.samplers.PSGLD(net.parameters(), lr=1e-4, damping=0.01, **given), 6_000),
        ("logistic", lambda net, **given: cr.samplers.BNPSGLD(net, lr=2e-3, **given), 6_000),
        ("tanh", lambda net, **given: cr.samplers.SGLD(net.parameters(), lr=4e-5, **given), 20_000),
        ("tanh", lambda net, **given: cr.samplers.PSGLD(net.parameters(), lr=8e-6, damping=0.1, **given), 20_000),
        ("tanh", lambda net, **given: cr.samplers.BNPSGLD(net, lr=1e-5, **given), 30_000),
    ],
    ids=["logistic-SGLD", "logistic-PSGLD", "logistic-BNPSGLD", "tanh-SGLD", "tanh-PSGLD", "tanh-BNPSGLD"],
)
def test_predictions_agree_with_exact_runs(problem, build, steps):
    """f's standard deviation within a tenth of itself at every input, its mean within a tenth of that."""
    known = KNOWN[problem]
    mean, sd = moments(problem, build, steps)
    assert np.abs((mean - known["mean"]) / known["sd"]).max() < 0.1
    assert np.abs(sd / known["sd"] - 1).max() < 0.1
