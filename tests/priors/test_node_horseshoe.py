"""The horseshoe over neurons: its KL against Monte Carlo over weights and factors, its draws, and what it shrinks."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

from credent import MAP, VI, VL, families, likelihoods, priors
from credent.errors import InputError
from credent.layout import Layout
from credent.priors.node_horseshoe import factor_kl


def network():
    return nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(6, 4), nn.Linear(4, 2)).double()


LAYERS = [("0", 3), ("3", 4)]  # with factors for neurons; "4" is the last


def set_factors(prior, seed):
    """Factors of all sizes, so that a mix-up of neurons or layers shows."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        prior.location.copy_(torch.randn(prior.location.shape, generator=g, dtype=torch.float64))
        prior.log_spread.copy_(torch.randn(prior.location.shape, generator=g, dtype=torch.float64) * 0.3 - 1)


def test_the_kl_of_a_factor_at_a_known_point():
    found = factor_kl(torch.tensor(-0.7), torch.tensor(math.log(0.4)), torch.tensor(0.0))
    assert float(found) == pytest.approx(1.4494262, abs=2e-6)


@pytest.mark.parametrize(("m", "v", "b"), [(-0.7, 0.4, 1.0), (1.0, 0.8, 0.3), (-3.0, 0.2, 2.0)])
def test_the_kl_of_a_factor_by_sampling(m, v, b):
    """t and a, both drawn from q, and both densities by scipy."""
    rng, n = np.random.default_rng(0), 400_000
    t = np.exp(m + v * rng.standard_normal(n))
    rate = math.exp(-m + v**2 / 2) + 1 / b**2
    a = stats.invgamma(1, scale=rate).rvs(n, random_state=rng)
    log_q = stats.norm.logpdf(np.log(t), m, v) - np.log(t) + stats.invgamma.logpdf(a, 1, scale=rate)
    log_p = stats.invgamma.logpdf(t, 0.5, scale=1 / a) + stats.invgamma.logpdf(a, 0.5, scale=1 / b**2)
    each = log_q - log_p
    error = each.std() / math.sqrt(n)
    found = factor_kl(*(torch.tensor(value, dtype=torch.float64) for value in (m, math.log(v), math.log(b))))
    assert abs(float(found) - each.mean()) < 3 * error
    assert error < 0.005


@pytest.mark.parametrize(("m", "v", "b"), [(0.0, 1.5, 1.0), (1.0, 1.0, 0.5)])
def test_the_kl_of_a_factor_bounds_that_to_the_half_cauchy(m, v, b):
    """By quadrature, and above it by what the best q(a) loses: log E(1/t + 1/b^2) - E log(1/t + 1/b^2)."""

    def over_q(f):
        return integrate.quad(lambda u: stats.norm.pdf(u, m, v) * f(u), m - 10 * v, m + 10 * v, epsabs=1e-11)[0]

    def log_ratio(u):  # u = log t = 2 log c
        log_p = stats.halfcauchy.logpdf(math.exp(u / 2), scale=b) + u / 2 - math.log(2)
        return stats.norm.logpdf(u, m, v) - log_p

    lost = math.log(math.exp(-m + v**2 / 2) + b**-2) - over_q(lambda u: math.log(math.exp(-u) + b**-2))
    found = float(factor_kl(*(torch.tensor(x, dtype=torch.float64) for x in (m, math.log(v), math.log(b)))))
    assert found == pytest.approx(over_q(log_ratio) + lost, abs=1e-8)
    assert lost > 0


def log_joint(w, t):
    """log p(w | factors) for n draws, written out; t has the neurons' factors, then the layers', squared, (n, 10)."""
    start, total = 0, 0.0
    for i, (name, units) in enumerate([*LAYERS, ("4", 2)]):
        for k in range(units):
            variance = t[:, 7 + i] * (t[:, start + k] if name != "4" else 1.0)
            reads = np.concatenate([w[f"{name}.weight"][:, k].reshape(len(t), -1), w[f"{name}.bias"][:, k, None]], 1)
            total += stats.norm.logpdf(reads, 0, np.sqrt(variance)[:, None]).sum(1)
        start += units if name != "4" else 0
    return total + stats.norm.logpdf(w["1.weight"], 1, 1).sum(1) + stats.norm.logpdf(w["1.bias"], 0, 1).sum(1)


@pytest.mark.parametrize("family", [families.Gaussian(0.4), families.Radial(0.4)], ids=["gaussian", "radial"])
def test_the_whole_kl_by_sampling(family):
    """log q - log p at draws of the weights and of the factors; the factors' own KL is held to scipy above."""
    torch.manual_seed(0)
    net = network()
    layout = Layout(net)
    q, prior, n = family.bind(layout), priors.NodeHorseshoe(0.7, 0.5).bind(layout), 8000
    set_factors(prior, seed=1)
    closed = q.kl(prior)
    assert closed is not None
    assert prior(q).item() == closed.item()
    rng = np.random.default_rng(2)
    m, v = prior.location.detach().numpy(), prior.log_spread.detach().exp().numpy()
    assert len(m) == 3 + 4 + 3
    own = factor_kl(prior.location, prior.log_spread, torch.tensor([0.5] * 7 + [0.7] * 3, dtype=torch.float64).log())
    drawn = {k: w.numpy() for k, w in q.sample(n, seed=3).items()}
    each = -log_joint(drawn, np.exp(m + v * rng.standard_normal((n, len(m)))))
    error = np.std(each) / math.sqrt(n)
    expected = np.mean(each) - q.entropy().item() + own.sum().item()
    assert abs(closed.item() - expected) < 3 * error
    assert error < 0.01 * abs(closed.item())


def test_log_prob_is_a_bound_that_its_own_parameters_tighten():
    """For one weight under its layer's factor, p(w) is the horseshoe's, and the bound comes near it."""
    net = nn.Linear(1, 1, bias=False).double()
    layout = Layout(net)
    prior, exact = priors.NodeHorseshoe(0.5).bind(layout), priors.Horseshoe(0.5).bind(layout)
    w = {"weight": torch.tensor([[0.7]], dtype=torch.float64)}
    optimizer = torch.optim.LBFGS(prior.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = -prior.log_prob(w)
        value.backward()
        return value

    before = prior.log_prob(w).item()
    optimizer.step(loss)
    after, true = prior.log_prob(w).item(), exact.log_prob(w).item()
    assert before < after < true
    assert true - after < 0.5


def test_log_prob_is_minus_the_cross_entropy_of_a_point():
    net = network()
    prior = priors.NodeHorseshoe().bind(Layout(net))
    set_factors(prior, seed=4)
    w = prior.sample(1, seed=5)
    w = {k: v[0] for k, v in w.items()}
    none = {k: torch.zeros_like(v) for k, v in w.items()}
    assert prior.log_prob(w).item() == pytest.approx(-prior.cross_entropy(w, none).item(), rel=1e-12)


# -- draws ------------------------------------------------------------------------------------------------------------


def test_draws_have_half_cauchy_factors_and_normal_weights():
    """E log|w| = log b_node + log b_layer + E log|z|; a neuron's weights share a factor, layers and neurons do not."""
    net = network()
    prior, n = priors.NodeHorseshoe({"0.*": 0.3, "*": 2.0}, node_scale=0.5).bind(Layout(net)), 40_000
    drawn = {k: v.numpy() for k, v in prior.sample(n, seed=6).items()}
    assert drawn["0.weight"].shape == (n, 3, 2, 2)
    normal = -(np.euler_gamma + math.log(2)) / 2
    for name, b in (("0", 0.3 * 0.5), ("3", 2.0 * 0.5), ("4", 2.0)):
        for logs in (
            np.log(np.abs(drawn[f"{name}.weight"][:, 1, 0].reshape(n, -1)[:, 0])),
            np.log(np.abs(drawn[f"{name}.bias"][:, 1])),
        ):
            error = logs.std() / math.sqrt(n)
            assert abs(logs.mean() - math.log(b) - normal) < 4 * error
            # Var log|z| = pi^2/8, Var log half-Cauchy = pi^2/4
            variance = math.pi**2 * (1 / 8 + (1 / 4 if name == "4" else 1 / 2))
            assert logs.var() == pytest.approx(variance, rel=0.05)
    size = {k: np.log(np.abs(v.reshape(n, v.shape[1], -1))) for k, v in drawn.items()}

    def correlation(a, b):
        return np.corrcoef(a, b)[0, 1]

    assert correlation(size["0.weight"][:, 1, 0], size["0.weight"][:, 1, 3]) == pytest.approx(0.8, abs=0.02)
    assert correlation(size["0.weight"][:, 1, 0], size["0.bias"][:, 1, 0]) == pytest.approx(0.8, abs=0.02)
    assert correlation(size["0.weight"][:, 1, 0], size["0.weight"][:, 2, 0]) == pytest.approx(0.4, abs=0.02)
    assert correlation(size["4.weight"][:, 0, 0], size["4.weight"][:, 1, 0]) == pytest.approx(2 / 3, abs=0.02)
    assert abs(correlation(size["0.weight"][:, 1, 0], size["3.weight"][:, 1, 0])) < 0.02
    assert drawn["1.weight"].mean() == pytest.approx(1, abs=0.02)
    assert drawn["1.weight"].std() == pytest.approx(1, abs=0.02)


def test_the_last_layers_weights_are_horseshoes_by_layer():
    net = nn.Linear(1, 1, bias=False).double()
    prior = priors.NodeHorseshoe(0.5).bind(Layout(net))
    one = prior.sample(40_000, seed=7)["weight"].flatten().numpy()
    other = priors.Horseshoe(0.5).bind(Layout(net)).sample(40_000, seed=8)["weight"].flatten().numpy()
    assert stats.ks_2samp(one, other).pvalue > 1e-3
    assert stats.ks_2samp(one, other * 1.1).pvalue < 1e-3


# -- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_neurons_without_use_shrink():
    """Of 12 neurons the data need one: most factors end far below the largest, which no weight alone would show."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1))
    x = torch.randn(200, 2)
    y = torch.tanh(2 * x[:, :1]) + 0.1 * torch.randn(200, 1)
    bnn = VI(net, likelihoods.Gaussian(0.1), priors.NodeHorseshoe(), num_data=200)
    optimizer = torch.optim.Adam(bnn.param_groups(lr=1e-2, scale_lr=3e-2))
    for _ in range(2400):
        optimizer.zero_grad()
        bnn(x, y).backward()
        optimizer.step()
    factors = bnn.penalty.shrinkage()["0.weight"]
    assert factors.shape == (12,)
    assert (factors < 0.2 * factors.max()).sum() >= 6
    assert bnn.last.nll < 0


def test_its_parameters_are_in_the_scales_group_and_in_the_state():
    bnn = VI(network(), likelihoods.Gaussian(1.0), priors.NodeHorseshoe(), num_data=5)
    groups = {g["name"]: g["params"] for g in bnn.param_groups(lr=0.1)}
    assert sum(any(p is mine for mine in bnn.penalty.parameters()) for p in groups["scales"]) == 2
    assert {"penalty.location", "penalty.log_spread", "penalty.log_b"} <= set(bnn.state_dict())


def test_where_it_cannot_be_used_it_says_so():
    with pytest.raises(InputError, match=r"no most probable weights.*Train with VI"):
        MAP(network(), likelihoods.Gaussian(1.0), priors.NodeHorseshoe(), num_data=5)
    with pytest.raises(InputError, match="this prior has no variance"):
        VL(network(), likelihoods.Gaussian(1.0), priors.NodeHorseshoe(), num_data=5)
    with pytest.raises(InputError, match=r"have no weights: priors.Horseshoe\(\)"):
        VI(network(), likelihoods.Gaussian(1.0), priors.NodeHorseshoe(), num_data=5, random="1.*")
    with pytest.raises(InputError, match="scale of a half-Cauchy is positive"):
        priors.NodeHorseshoe(node_scale=0.0)


def test_the_last_layer_is_the_network_s_and_not_the_last_random_one():
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    body = priors.NodeHorseshoe().bind(Layout(net, "0.*"))
    assert len(body.location) == 8 + 1  # a factor for every hidden neuron
    assert len(priors.NodeHorseshoe().bind(Layout(net, "2.*")).location) == 1
    net[2].requires_grad_(False)
    assert len(priors.NodeHorseshoe().bind(Layout(net)).location) == 8 + 1
