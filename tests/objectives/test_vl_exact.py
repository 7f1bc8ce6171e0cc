"""Variational Laplace where the optimum is known: linear regression, and the bound of logistic regression.

    y = X w + NOISE e,   w ~ N(0, PRIOR^2 I),      P = X'X / (beta NOISE^2) + I / PRIOR^2

With a KL of weight beta the likelihood counts 1/beta times. Minus the Hessian is the Fisher information here, so VL's
optimum is the best mean-field Gaussian: the mean P^-1 X'y / (beta NOISE^2), and 1 / sqrt(P_ii) for the scale of i.

A quadratic in the labels' noise needs only its second moments: the n points sqrt(n) e_i have those of a standard
normal, and a likelihood that draws them in turn makes the expectation exact and the optimum sharp.
"""

import itertools
import math

import pytest
import torch
from scipy import stats
from torch import nn

from credent import VL, likelihoods, priors

NOISE, PRIOR, N, DIM = 0.6, 1.3, 30, 4
WAYS = pytest.mark.parametrize("way", ["exact", "finite_difference"])


class Moments(likelihoods.Gaussian):
    """Gaussian noise e that runs through the n points with the second moments of a standard normal."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.points = itertools.cycle(math.sqrt(N) * torch.eye(N, dtype=torch.float64))

    def draw(self, outputs, generator=None):
        mean, scale = self.split(outputs)
        return mean + scale * next(self.points)[:, None]


def regression(seed=0):
    g = torch.Generator().manual_seed(seed)
    mixing = torch.eye(DIM, dtype=torch.float64) + 0.3 * torch.randn(DIM, DIM, dtype=torch.float64, generator=g)
    x = torch.randn(N, DIM, dtype=torch.float64, generator=g) @ mixing
    w = PRIOR * torch.randn(DIM, 1, dtype=torch.float64, generator=g)
    return x, x @ w + NOISE * torch.randn(N, 1, dtype=torch.float64, generator=g)


def optimum(x, y, beta, noise=NOISE):
    """Mean and scales."""
    precision = x.T @ x / noise**2 / beta + torch.eye(DIM, dtype=torch.float64) / PRIOR**2
    return torch.linalg.solve(precision, x.T @ y / noise**2 / beta).flatten(), precision.diag().rsqrt()


def objective(likelihood, way, **options):
    torch.manual_seed(0)
    net = nn.Linear(DIM, 1, bias=False).double()
    options = {"fraction": 1.0, "num_data": N, **options}
    return VL(net, likelihood.double(), priors.Gaussian(scale=PRIOR), curvature=way, **options)


def minimise(vl, x, y, draws=N):
    """By torch's LBFGS, on the mean over one cycle of the labels' noise."""
    optimiser = torch.optim.LBFGS(
        vl.parameters(), max_iter=200, history_size=20, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        total = 0.0
        for _ in range(draws):
            loss = vl(x, y) / draws
            loss.backward()
            total += loss.item()
        return total

    optimiser.step(closure)


def found(vl):
    return vl.net.weight.detach().flatten(), vl.posterior.stddev()["weight"].flatten()


def assert_close(found, expected, of_mean, of_scale):
    (mu, sigma), (mean, scale) = found, expected
    assert torch.linalg.vector_norm(mu - mean) < of_mean * torch.linalg.vector_norm(mean)
    assert (sigma / scale - 1).abs().max() < of_scale


@WAYS
@pytest.mark.parametrize("beta", [0.1, 1.0, 3.0])
def test_the_optimum_is_the_best_mean_field_posterior(way, beta):
    x, y = regression()
    vl = objective(Moments(NOISE), way, beta=beta)
    minimise(vl, x, y)
    assert_close(found(vl), optimum(x, y, beta), of_mean=1e-4, of_scale=1e-4)


@WAYS
def test_with_the_noise_learnt(way):
    """noise^2 = mean of (residual^2 + x Sigma x'), and the posterior is the one for that noise."""
    x, y = regression()
    vl = objective(Moments("learnt", initial=0.3), way)
    minimise(vl, x, y)
    (mu, sigma), noise = found(vl), vl.likelihood.log_scale.detach().exp().item()
    residual = (y - x @ mu[:, None]).square().mean()
    spread = (x.square() @ sigma[:, None].square()).mean()
    assert spread > 0.05 * residual  # a gradient that leaves it out would show
    assert noise**2 == pytest.approx((residual + spread).item(), rel=1e-3)
    assert_close((mu, sigma), optimum(x, y, 1.0, noise), of_mean=1e-3, of_scale=1e-3)


def train(vl, x, y, steps, lr=0.05, watch=found):
    """Adam with a rate that falls to nothing; what is watched, averaged (scales in log) over the last half."""
    optimiser = torch.optim.Adam(vl.param_groups(lr=lr))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: 1 - i / steps)
    kept = []
    for step in range(steps):
        optimiser.zero_grad()
        vl(x, y).backward()
        optimiser.step()
        schedule.step()
        if step >= steps // 2:
            mu, sigma = watch(vl)
            kept.append((mu.clone(), sigma.log()))
    means, logs = zip(*kept, strict=True)
    return torch.stack(means).mean(0), torch.stack(logs).mean(0).exp()


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("beta", [0.1, 1.0, 3.0])
def test_drawn_labels_find_the_same_optimum(way, beta):
    """As people use it. Scales take the square of one draw a step: 6,000 steps leave about 1 % of a scale."""
    x, y = regression()
    vl = objective(likelihoods.Gaussian(NOISE), way, beta=beta)
    assert_close(train(vl, x, y, 6000), optimum(x, y, beta), of_mean=0.01, of_scale=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [1 / 8, 1 / 4])
def test_so_does_a_part_of_the_batch(fraction):
    x, y = regression()
    vl = objective(likelihoods.Gaussian(NOISE), "finite_difference", fraction=fraction)
    assert_close(train(vl, x, y, 8000), optimum(x, y, 1.0), of_mean=0.01, of_scale=0.04)


@pytest.mark.slow
@WAYS
def test_drawn_labels_find_the_noise(way):
    x, y = regression()
    vl = objective(likelihoods.Gaussian("learnt", initial=0.3), way)

    def noise(vl):
        return found(vl)[0], torch.cat([found(vl)[1], vl.likelihood.log_scale.detach().exp()])

    mu, rest = train(vl, x, y, 6000, watch=noise)
    sigma, noise = rest[:-1], rest[-1].item()
    expected = (y - x @ mu[:, None]).square().mean() + (x.square() @ sigma[:, None].square()).mean()
    assert noise**2 == pytest.approx(expected.item(), rel=0.03)
    assert_close((mu, sigma), optimum(x, y, 1.0, noise), of_mean=0.01, of_scale=0.03)


def test_the_loss_is_minus_the_bound_per_datum():
    """At any mean and scale, averaged over the labels' noise, in closed form."""
    x, y = regression()
    vl = objective(Moments(NOISE), "exact")
    with torch.no_grad():
        vl.q.scales.rho.copy_(torch.linspace(-2, 0, DIM, dtype=torch.float64))
        loss = sum(vl(x, y) for _ in range(N)).item() / N
    mu, sigma = found(vl)
    squares = (y.flatten() - x @ mu).square().sum() + (x.square().sum(0) * sigma**2).sum()
    fit = squares / (2 * NOISE**2) + N * math.log(NOISE * math.sqrt(2 * math.pi))
    kl = (math.log(PRIOR) - sigma.log() + (mu**2 + sigma**2) / (2 * PRIOR**2) - 0.5).sum()
    assert loss * N == pytest.approx((fit + kl).item(), rel=1e-12)


# -- logistic regression ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["exact", pytest.param("finite_difference", marks=pytest.mark.slow)])
def test_the_bound_of_logistic_regression(way):
    """VL's bound, averaged over drawn labels, is within 2 % of the bound from 1,000 draws of the weights."""
    n, dim = 500, 8
    g = torch.Generator().manual_seed(3)
    x = torch.randn(n, dim, dtype=torch.float64, generator=g)
    x = (x - x.mean(0)) / x.std(0)
    y = torch.bernoulli((x @ torch.randn(dim, 1, dtype=torch.float64, generator=g)).sigmoid(), generator=g)
    torch.manual_seed(0)
    net = nn.Linear(dim, 1).double()
    vl = VL(net, likelihoods.Bernoulli(), priors.Gaussian(scale=1.0), num_data=n, curvature=way, fraction=1.0)
    train(vl, x, y, 1500, watch=lambda vl: (vl.net.weight.detach(), vl.posterior.stddev()["weight"]))
    with torch.no_grad():
        losses = torch.stack([vl(x, y) for _ in range(200)])
    bound = -n * losses.mean().item()
    # the KL by scipy's densities, the likelihood by weights drawn here
    mean, scale = (torch.cat([v["weight"].flatten(), v["bias"]]) for v in (vl.posterior.mean(), vl.posterior.stddev()))
    w = mean + scale * torch.randn(1000, dim + 1, dtype=torch.float64, generator=g)
    logits = w[:, :-1] @ x.T + w[:, -1:]
    fit = (y.T * logits - logits.exp().log1p()).sum(1)
    kl = stats.norm(mean, scale).logpdf(w).sum(1) - stats.norm(0, 1).logpdf(w).sum(1)
    sampled = (fit.numpy() - kl).mean()
    assert bound == pytest.approx(sampled, rel=0.02)
    exact_scale = (1 + (x.square() * (net(x).sigmoid() * (-net(x)).sigmoid()).detach()).sum(0)).rsqrt()
    assert (scale[:-1] / exact_scale - 1).abs().max() < 0.1  # what 1,500 steps of one draw leave
