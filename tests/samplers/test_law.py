"""Every sampler has the stationary law that its equations have at a finite step, on a posterior that is known exactly.

A linear layer with K units, each shown the same targets, is K independent chains over one Gaussian posterior with
precision A. With gradients of all data and G fixed the update is linear, so that the chain's covariance S solves

    S = M S M' + Q,        M = [m I, -(eps/2) G A; m I, I - (eps/2) G A],        Q = eps (1 - m) T [G G; G G]

for (v, theta). G is made again here, in numpy. Steps are large on purpose: S is a tenth or more above T / A.
"""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import nn

import credent as cr

CHAINS, ROWS, WIDTH, NOISE, PRIOR = 3000, 40, 6, 0.7, 2.0
KINDS = ["sgld", "psgld", "dense", "conv", "no bias"]


def features(kind):
    """Inputs (n, 6): badly scaled and off centre for BNP, as a kernel of three sees two channels for "conv"."""
    chance = np.random.default_rng(1)
    x = chance.standard_normal((ROWS, WIDTH))
    if kind in ("sgld", "psgld"):
        return x * np.array([1, 1, 1, 1, 2, 0.7])
    if kind == "no bias":
        return x * np.array([1, 6, 2, 3, 1, 2])
    if kind == "dense":
        return x * np.array([1, 6, 2, 3, 1, 2]) + np.array([0, 20, 1, -5, 0, 2])
    return x * np.repeat([0.5, 5], 3) + np.repeat([3, -10], 3)


class Setting:
    """A posterior over one unit's theta = [b; w], and G; from the formulas, without the library."""

    def __init__(self, kind, batch_size):
        self.x = features(kind)
        self.design = self.x if kind == "no bias" else np.column_stack([np.ones(ROWS), self.x])
        self.y = np.random.default_rng(2).standard_normal(ROWS) + self.x[:, 0]
        size = self.design.shape[1]
        self.precision = self.design.T @ self.design / NOISE**2 + np.eye(size) / PRIOR**2
        gradient = self.design.T @ self.y / NOISE**2
        self.mean = np.linalg.solve(self.precision, gradient)
        self.q = max(WIDTH / batch_size, 1) ** 0.5
        if kind == "sgld":
            self.g = np.eye(size)
        elif kind == "psgld":
            self.g = np.diag(1 / (0.05 + np.abs(gradient / ROWS)))  # at theta = 0, in nats per datum
        else:
            channels = self.x.reshape(ROWS, 2, 3).transpose(0, 2, 1).reshape(-1, 2) if kind == "conv" else self.x
            mean, variance = channels.mean(0), channels.var(0)
            variance = variance + 1e-2 * variance.max() + 1e-4
            if kind == "conv":
                mean, variance = np.repeat(mean, 3), np.repeat(variance, 3)
            p = np.diag(variance**-0.5)
            if kind != "no bias":
                p = np.block([[np.ones((1, 1)), -mean[None] @ p], [np.zeros((WIDTH, 1)), p]])
            self.g = p @ p.T / self.q**2
        self.eps = 1.2 / np.linalg.eigvals(self.g @ self.precision).real.max()

    def law(self, temperature, momentum):
        """Covariance of theta, and the steps after which the start is forgotten to 1e-3."""
        size, drift = len(self.g), self.eps / 2 * self.g @ self.precision
        one = np.eye(size)
        m = np.block([[momentum * one, -drift], [momentum * one, one - drift]])
        noise = self.eps * (1 - momentum) * temperature * np.kron(np.ones((2, 2)), self.g)
        steps = math.log(1e-3) / math.log(np.abs(np.linalg.eigvals(m)).max())
        return solve_discrete_lyapunov(m, noise)[size:, size:], math.ceil(steps)


def layer(kind):
    if kind == "conv":
        return nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Conv1d(2, CHAINS, 3), nn.Flatten()).double()
    return nn.Sequential(nn.Linear(WIDTH, CHAINS, bias=kind != "no bias")).double()


def build(kind, net, setting, batch_size, **options):
    common = {"lr": setting.eps, "num_data": ROWS, "seed": 3, **options}
    if kind == "sgld":
        return cr.samplers.SGLD(net.parameters(), **common)
    if kind == "psgld":
        return cr.samplers.PSGLD(net.parameters(), damping=0.05, burn_in=1, **common)
    return cr.samplers.BNPSGLD(net, decay=0.0, burn_in=1, batch_size=batch_size, **common)


def ratios(kind, batch_size, temperature=1.0, momentum=0.0, dtype=torch.float64, **options):
    """Variance of the chains over that of the law, along the law's axes; one number has error sqrt(2 / CHAINS)."""
    setting = Setting(kind, batch_size)
    covariance, steps = setting.law(temperature, momentum)
    assert steps < 400
    net = layer(kind).to(dtype)
    for p in net.parameters():
        nn.init.zeros_(p)
    loss = cr.MAP(net, cr.likelihoods.Gaussian(scale=NOISE), cr.priors.Gaussian(scale=PRIOR), num_data=ROWS)
    sampler = build(kind, net, setting, batch_size, temperature=temperature, momentum=momentum, **options)
    x, y = torch.tensor(setting.x).to(dtype), torch.tensor(setting.y).to(dtype)[:, None].expand(-1, CHAINS)
    for _ in range(steps + 1):
        sampler.zero_grad()
        loss(x, y).backward()
        sampler.step()
    parts = (p.detach().double().reshape(CHAINS, -1).numpy() for p in net.parameters())
    *bias, weight = sorted(parts, key=lambda p: p.shape[1])
    variances, axes = np.linalg.eigh(covariance)
    along = (np.column_stack([*bias, weight]) - setting.mean) @ axes  # the mean is the posterior's own, at any step
    return (along**2).mean(0) / variances


def agrees(found):
    error = math.sqrt(2 / CHAINS)
    return abs(found.mean() - 1) < 3 * error / math.sqrt(len(found)) and np.abs(found - 1).max() < 4 * error


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize(
    ("kind", "batch_size"),
    [("sgld", 40), ("psgld", 40), ("dense", 40), ("dense", 2), ("conv", 40), ("conv", 2), ("no bias", 2)],
)
def test_the_chain_has_the_law_of_its_equations(kind, batch_size, temperature, momentum):
    found = ratios(kind, batch_size, temperature, momentum)
    assert agrees(found), found


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("kind", ["sgld", "psgld", "dense"])
def test_so_has_the_chain_of_float32_whose_noise_compiled_loops_draw(kind, momentum):
    found = ratios(kind, 40, momentum=momentum, dtype=torch.float32)
    assert agrees(found), found


@pytest.mark.parametrize(("batch_size", "right"), [(2, False), (40, True)])
def test_the_printed_noise_is_too_hot_by_q(batch_size, right):
    """Only where the layer is wider than the minibatch: there its covariance is q times what it should be."""
    found = ratios("dense", batch_size, noise="printed")
    assert agrees(found) == right
    assert agrees(found / max(WIDTH / batch_size, 1) ** 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_law_is_not_that_of_small_steps(kind):
    """So the tests above see the step size too."""
    setting = Setting(kind, 40)
    hotter = np.linalg.eigvals(setting.law(1.0, 0.0)[0] @ setting.precision).real
    assert hotter.max() > 1.3
    assert np.linalg.eigvals(setting.law(1.0, 0.9)[0] @ setting.precision).real.max() < 1.2  # momentum has less bias


def test_preconditioning_is_worth_it():
    """Condition numbers of the posterior's precision, before and after."""
    setting = Setting("dense", 40)
    assert np.linalg.cond(setting.precision) > 1e3
    eigenvalues = np.linalg.eigvals(setting.g @ setting.precision).real
    assert eigenvalues.max() / eigenvalues.min() < 20
