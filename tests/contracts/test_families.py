"""What every variational family must satisfy. A new family is one line in MEMBERS."""

import copy
import functools
import itertools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import nn
from torch.nn import functional

from credent import families, priors
from credent.errors import InputError
from credent.families.diagonal_gaussian import DiagonalGaussian
from credent.families.gaussian import _KL, _SampleAndKL
from credent.layout import Layout
from credent.likelihoods import Gaussian as GaussianLikelihood
from credent.network import Network
from credent.noise import Noise
from credent.objectives import VI


def radial_log_density(e):
    """Of noise (n, D): the norm is half-normal, the direction uniform on a sphere, 2 pi^(D/2) / Gamma(D/2) wide."""
    dim, norm = e.shape[1], np.linalg.norm(e, axis=1)
    surface = math.log(2) + dim / 2 * math.log(math.pi) - special.gammaln(dim / 2)
    return stats.halfnorm.logpdf(norm) - surface - (dim - 1) * np.log(norm)


@dataclass(frozen=True)
class Member:
    """A family as a function of its first scale, and by other means the law of one tensor's noise e (n, D)."""

    describe: Callable
    log_density: Callable | None = None
    norm: Callable | None = None
    """The law of ||e|| for D weights."""
    spread: Callable | None = None
    """The standard deviation of each of D numbers of e."""


MEMBERS = {
    "dirac": Member(lambda scale: families.Dirac()),
    "gaussian": Member(families.Gaussian, lambda e: stats.norm.logpdf(e).sum(1), stats.chi, lambda dim: 1.0),
    "radial": Member(families.Radial, radial_log_density, lambda dim: stats.halfnorm, lambda dim: 1 / math.sqrt(dim)),
}
NOISY = {k: m for k, m in MEMBERS.items() if m.log_density is not None}
each_member = pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
each_noisy = pytest.mark.parametrize("member", NOISY.values(), ids=NOISY)

PRIORS = [
    priors.Gaussian(),
    priors.Gaussian(scale=0.3),
    priors.Gaussian(scale={"0.*": 2.0, "*": "glorot"}),
    priors.Laplace(scale=0.5),
    priors.ScaleMixture(),
]


def small():
    torch.manual_seed(0)
    return nn.Linear(3, 2).double()


def layered():
    """Several layers and a norm layer, whose gains rest at one."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()
    nn.init.normal_(net[1].weight, 1.0, 0.5)
    return net


def convolutional():
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(3, 4, (2, 3)), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)).double()


def bound(member, net, scale=0.5, seed=3):
    """q with a scale of its own for every weight."""
    q = member.describe(scale).bind(Layout(net))
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in q.parameters():
            p += 0.5 * torch.randn(p.shape, generator=g, dtype=p.dtype)
    return q


def sigmas(q):
    """sigma by name, read from the saved state by other means."""
    state = q.state_dict()
    return {k: np.exp(state[f"scales.rho.{k}"].numpy()) for k in q.mean()}


def residuals(q, params):
    """e = (w - mu) / sigma by name for stacked params, each (n, D)."""
    sigma, mean = sigmas(q), q.mean()
    return {k: ((w - mean[k]).numpy() / sigma[k]).reshape(len(w), -1) for k, w in params.items()}


def log_density(member, q, params):
    """log q of stacked params, (n,)."""
    each = [member.log_density(e) for e in residuals(q, params).values()]
    return sum(each) - sum(np.log(s).sum() for s in sigmas(q).values())


@functools.cache
def many(name):
    q = bound(MEMBERS[name], small())
    return q, q.sample(20_000, seed=4)


def assert_equal_params(a, b):
    assert list(a) == list(b)
    for k in a:
        assert torch.equal(a[k], b[k])


# -- the law ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOISY)
def test_draws_have_the_moments_of_q(name):
    q, drawn = many(name)
    mean, stddev = q.mean(), q.stddev()
    for k, w in drawn.items():
        assert w.shape == (20_000, *mean[k].shape)
        expected = sigmas(q)[k] * MEMBERS[name].spread(mean[k].numel())
        assert stddev[k].numpy() == pytest.approx(expected, rel=1e-12)
        assert ((w.mean(0) - mean[k]).abs() < 4 * stddev[k] / math.sqrt(len(w))).all()
        second = ((w - mean[k]) / stddev[k]).square()
        assert ((second.mean(0) - 1).abs() < 4 * second.std(0) / math.sqrt(len(w))).all()
        assert (second.std(0) / math.sqrt(len(w)) < 0.03).all()


@pytest.mark.parametrize("name", NOISY)
def test_the_noise_has_its_law(name):
    q, drawn = many(name)
    for e in residuals(q, drawn).values():
        dim, norm = e.shape[1], np.linalg.norm(e, axis=1)
        assert stats.kstest(norm, MEMBERS[name].norm(dim).cdf).pvalue > 1e-3
        direction = e / norm[:, None]
        assert np.abs(direction.mean(0)).max() < 4 / math.sqrt(dim * len(e))
        second = direction.T @ direction / len(e)  # uniform on the sphere: 1/D on the diagonal, 0 elsewhere
        assert np.abs(second - np.eye(dim) / dim).max() < 4 * math.sqrt(2) / dim / math.sqrt(len(e))
    weight, bias = (np.linalg.norm(e, axis=1) for e in residuals(q, drawn).values())
    assert abs(np.corrcoef(weight, bias)[0, 1]) < 4 / math.sqrt(20_000)  # tensors are independent


@pytest.mark.parametrize("name", NOISY)
def test_draws_come_in_mirrored_pairs_that_are_independent(name):
    """The second of a pair is the first one's mirror image; its law is the same, since that is symmetric."""
    q = bound(MEMBERS[name], nn.Linear(60, 60))
    for first, mirrored, other, _ in residuals(q, q.sample(4, seed=5)).values():
        np.testing.assert_allclose(mirrored, -first, rtol=0, atol=1e-5)
        assert abs(np.corrcoef(first, other)[0, 1]) < 4.5 / math.sqrt(first.size)


@pytest.mark.parametrize("name", NOISY)
def test_entropy_is_minus_the_mean_of_log_prob(name):
    q, drawn = many(name)
    each = -log_density(MEMBERS[name], q, drawn)
    error = each.std() / math.sqrt(len(each))
    assert abs(q.entropy().item() - each.mean()) < 4 * error
    assert error < 0.1


@each_noisy
@pytest.mark.parametrize("network", [small, layered, convolutional])
def test_log_prob_sums_over_tensors(member, network):
    q = bound(member, network())
    drawn = q.sample(5, seed=5)
    expected = log_density(member, q, drawn)
    for i in range(5):
        params = {k: w[i] for k, w in drawn.items()}
        assert q.log_prob(params).item() == pytest.approx(expected[i], rel=1e-12)
        assert q.log_prob(params, detached=True).item() == pytest.approx(expected[i], rel=1e-12)


@each_member
def test_rsample_draws_what_draws_does(member):
    net = layered()
    q = bound(member, net)
    if list(q.parameters()):
        q.noise.seed(6)
    assert_equal_params({k: w.detach() for k, w in q.rsample().items()}, next(q.draws(1, seed=6)))


@each_member
def test_the_mean_is_the_network(member):
    net = layered()
    q = bound(member, net)
    assert_equal_params(q.mean(), dict(net.named_parameters()))
    with torch.no_grad():
        net[0].bias.fill_(7.0)
    assert (q.mean()["0.bias"] == 7.0).all()
    assert not any(p is w for p in net.parameters() for w in q.parameters())


def test_the_point_mass():
    net = layered()
    q = families.Dirac().bind(Layout(net))
    assert all((s == 0).all() for s in q.stddev().values())
    assert q.entropy().item() == 0
    assert q.log_prob(q.mean()).item() == 0
    assert q.log_prob({k: w + 1e-9 for k, w in q.mean().items()}).item() == -math.inf
    assert len(list(q.draws(5))) == 1
    assert q.rsample()["0.weight"] is net[0].weight


# -- the radial family's reference values -----------------------------------------------------------------------------


def radial(dim, sigma=1.0):
    net = nn.Linear(dim, 1, bias=False).double()
    q = families.Radial(initial_scale=1.0).bind(Layout(net))
    with torch.no_grad():
        net.weight.zero_()
        q.scales.rho.copy_(torch.as_tensor(np.log(sigma) * np.ones(dim)))
    return q


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        ([0.3, -0.4], -1.4955212),
        ([0.6, 0.0, 0.8], -3.2568156),
        ([0.1] * 10, 6.8470988),
        ([0.7], -1.1639385),
    ],
)
def test_radial_log_prob_at_known_points(e, expected):
    w = {"weight": torch.tensor([e], dtype=torch.float64)}
    assert radial(len(e)).log_prob(w).item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("dim", "expected"),
    [(1, 1.418939), (2, 1.928487), (3, 1.986453), (10, -1.752099), (100, -148.793272), (1000, -2665.87821)],
)
def test_radial_entropy_at_known_dimensions(dim, expected):
    assert radial(dim).entropy().item() == pytest.approx(expected, abs=1e-5)
    assert radial(dim, sigma=2.0).entropy().item() == pytest.approx(expected + dim * math.log(2), abs=1e-5)


@pytest.mark.parametrize("sigma", [[0.7], [0.8, 1.3], [0.8, 1.0, 1.3]])
def test_radial_density_integrates_to_one(sigma):
    """In polar coordinates about the mean, where the density's pole is cancelled by the volume element."""
    dim = len(sigma)
    q = radial(dim, np.array(sigma))
    x, weight = np.polynomial.legendre.leggauss(40)
    radii, radial_weight = 5 * (x + 1), 5 * weight
    angles = 2 * np.pi * np.arange(16) / 16
    if dim == 1:
        directions = [((1.0,), 1.0), ((-1.0,), 1.0)]
    elif dim == 2:
        directions = [((np.cos(a), np.sin(a)), 2 * np.pi / 16) for a in angles]
    else:
        z, z_weight = np.polynomial.legendre.leggauss(8)
        directions = [
            ((np.sqrt(1 - h * h) * np.cos(a), np.sqrt(1 - h * h) * np.sin(a), h), v * 2 * np.pi / 16)
            for h, v in zip(z, z_weight, strict=True)
            for a in angles
        ]
    total = 0.0
    with torch.no_grad():
        for direction, share in directions:
            for r, v in zip(radii, radial_weight, strict=True):
                w = {"weight": torch.tensor([direction], dtype=torch.float64) * r}
                total += share * v * r ** (dim - 1) * math.exp(q.log_prob(w).item())
    assert total == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("dim", [2, 10, 100])
def test_radial_noise_has_unit_mean_square_per_tensor(dim):
    drawn = radial(dim).sample(5000, seed=7)["weight"].reshape(5000, dim)
    each = drawn.square().sum(1)  # D * second moment = E r^2 = 1, Var(r^2) = 2
    assert abs(each.mean() - 1) < 4 * math.sqrt(2 / 5000)


def test_radial_initial_scale_is_a_weights_standard_deviation():
    stddev = families.Radial(initial_scale=0.3).bind(Layout(nn.Linear(4, 5).double())).stddev()
    assert stddev["weight"].numpy() == pytest.approx(0.3 / 2)  # in units of 1 / sqrt(fan_in)
    assert stddev["bias"].numpy() == pytest.approx(0.3)


# -- KL ---------------------------------------------------------------------------------------------------------------


def log_prior(description, net, drawn):
    """log p of stacked params by scipy, (n,)."""
    bound_prior = description.bind(Layout(net))  # its scales are the subject of tests/priors/test_scales.py
    shape = stats.laplace if isinstance(description, priors.Laplace) else stats.norm
    return sum(
        shape.logpdf(w.numpy(), 1.0 if k == "1.weight" else 0.0, bound_prior.scale[k]).reshape(len(w), -1).sum(1)
        for k, w in drawn.items()
    )


@each_noisy
@pytest.mark.parametrize("description", PRIORS, ids=str)
def test_kl_is_the_expectation_it_claims(member, description):
    net = layered()
    q, prior = bound(member, net, scale=1.0), description.bind(Layout(net))
    value = q.kl(prior)
    if value is None:
        closed = isinstance(description, priors.Gaussian)
        assert not closed  # a Gaussian prior has a closed form with every family
        return
    drawn = q.sample(4000, seed=8)
    log_q, log_p = log_density(member, q, drawn), log_prior(description, net, drawn)
    # log q has a known mean: estimating the cross-entropy alone leaves the radial family's heavy log-norms out
    error = log_p.std() / math.sqrt(4000)
    assert abs(value.item() + q.entropy().item() + log_p.mean()) < 4 * error
    assert error < 0.02 * abs(log_p.mean())
    each = log_q - log_p
    assert abs(value.item() - each.mean()) < 4 * each.std() / math.sqrt(4000)


@pytest.mark.parametrize("description", PRIORS[:4], ids=str)
def test_gaussian_kl_by_quadrature(description):
    net = layered()
    q, prior = bound(MEMBERS["gaussian"], net), description.bind(Layout(net))
    shape = stats.laplace if isinstance(description, priors.Laplace) else stats.norm
    total = 0.0
    for k, mean in q.mean().items():
        rest, scale = 1.0 if k == "1.weight" else 0.0, prior.scale[k]
        for mu, sigma in zip(mean.numpy().ravel(), sigmas(q)[k].ravel(), strict=True):

            def integrand(w, mu=mu, sigma=sigma, rest=rest, scale=scale):
                log_q = stats.norm.logpdf(w, mu, sigma)
                return np.exp(log_q) * (log_q - shape.logpdf(w, rest, scale))

            x, weight = np.polynomial.legendre.leggauss(80)
            ends = sorted({mu - 10 * sigma, mu + 10 * sigma, float(np.clip(rest, mu - 10 * sigma, mu + 10 * sigma))})
            for a, b in itertools.pairwise(ends):
                total += (b - a) / 2 * (weight @ integrand((a + b) / 2 + (b - a) / 2 * x))
    assert q.kl(prior).item() == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("description", PRIORS, ids=str)
def test_dirac_kl_is_minus_the_log_prior(description):
    net = layered()
    q, prior = families.Dirac().bind(Layout(net)), description.bind(Layout(net))
    value = q.kl(prior)
    value.backward()
    leaves = {k: p.detach().clone().requires_grad_() for k, p in net.named_parameters()}
    prior.log_prob(leaves).backward()
    assert value.item() == pytest.approx(-prior.log_prob(q.mean()).item(), rel=1e-14)
    for k, p in net.named_parameters():
        torch.testing.assert_close(p.grad, -leaves[k].grad, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dim", [1, 7])
def test_kl_is_zero_exactly_at_the_prior(dim):
    net = nn.Linear(dim, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    layout = Layout(net)
    q, prior = families.Gaussian(initial_scale=1.0).bind(layout), priors.Gaussian("fan_in").bind(layout)
    value = q.kl(prior)
    value.backward()
    assert abs(value.item()) < 1e-12
    assert net.weight.grad.abs().max() < 1e-12
    assert q.scales.rho.grad.abs().max() < 1e-12


def test_the_kl_of_many_weights_in_single_precision():
    """Its terms nearly cancel, so each must be summed with care."""
    net = nn.Linear(2000, 2000, bias=False)
    nn.init.normal_(net.weight, std=0.01 / math.sqrt(2000))
    layout = Layout(net)
    q, prior = families.Gaussian(initial_scale=1.0).bind(layout), priors.Gaussian("fan_in").bind(layout)
    mu = net.weight.detach().double()
    exact = float(mu.square().sum()) * 2000 / 2  # about 200 of 4,000,000
    places = 3.4e7 * torch.finfo(torch.float32).eps  # the sum of sigma^2 / s^2 - 2 log sigma
    assert q.kl(prior).item() == pytest.approx(exact, abs=3 * places)


# -- gradients --------------------------------------------------------------------------------------------------------


def naive(net, q):
    """Means and sigma as leaves of plain autograd: one rho, sliced in the order of the parameters."""
    rho = q.scales.rho.detach().clone().requires_grad_()
    means = {k: p.detach().clone().requires_grad_() for k, p in net.named_parameters()}
    sigma, offset = {}, 0
    for k, p in means.items():
        sigma[k] = rho[offset : offset + p.numel()].exp().reshape(p.shape)
        offset += p.numel()
    return rho, means, sigma


def assert_same_gradients(net, q, rho, means):
    assert (q.scales.rho.grad - rho.grad).abs().max() < 1e-12 * rho.grad.abs().max()
    for k, p in net.named_parameters():
        assert (p.grad - means[k].grad).abs().max() <= 1e-12 * means[k].grad.abs().max()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("loc", [0.0, 0.7])
@pytest.mark.parametrize("network", [small, layered, convolutional])
def test_fused_draw_and_kl_equal_autograd(network, loc, sign):
    net = network()
    q = bound(MEMBERS["gaussian"], net)
    locs = {k: loc * (i - 1) for i, k in enumerate(q.layout.names)}  # negative, zero and positive
    scale = {k: 0.3 + 0.2 * i for i, k in enumerate(q.layout.names)}
    e = torch.randn(q.layout.num_params, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    prior = DiagonalGaussian(locs, scale).on(q.layout)
    kl, *views = _SampleAndKL.apply(prior, q.scales.rho, e, sign, *q.layout.params().values())
    fused = 2.5 * kl + sum((w.sin() * (1 + i)).sum() for i, w in enumerate(views))
    fused.backward()
    rho, means, sigma = naive(net, q)
    noise = q.layout.unflatten(e)
    normal, at = torch.distributions.Normal, functools.partial(torch.tensor, dtype=torch.float64)
    plain = 2.5 * sum(
        torch.distributions.kl_divergence(normal(means[k], sigma[k]), normal(at(locs[k]), at(scale[k]))).sum()
        for k in means
    )
    drawn = {k: means[k] + sign * sigma[k] * noise[k] for k in means}
    plain = plain + sum((w.sin() * (1 + i)).sum() for i, w in enumerate(drawn.values()))
    plain.backward()
    assert fused.item() == pytest.approx(plain.item(), rel=1e-12)
    assert_same_gradients(net, q, rho, means)


@pytest.mark.parametrize("loc", [0.0, 0.7])
@pytest.mark.parametrize("network", [small, layered, convolutional])
def test_the_kl_in_one_pass_equals_autograd(network, loc):
    net = network()
    q = bound(MEMBERS["gaussian"], net)
    locs = {k: loc * (i - 1) for i, k in enumerate(q.layout.names)}
    scale = {k: 0.3 + 0.2 * i for i, k in enumerate(q.layout.names)}
    prior = priors.Gaussian().bind(q.layout)
    prior.gaussian = DiagonalGaussian(locs, scale)
    kl = q.kl(prior)
    (2.5 * kl).backward()
    rho, means, _ = naive(net, q)
    stddev = torch.cat([torch.full_like(p, scale[k]).flatten() for k, p in means.items()])
    rest = torch.cat([torch.full_like(p, locs[k]).flatten() for k, p in means.items()])
    mu = torch.cat([p.flatten() for p in means.values()])
    normal = torch.distributions.Normal
    plain = torch.distributions.kl_divergence(normal(mu, rho.exp()), normal(rest, stddev)).sum()
    assert kl.item() == pytest.approx(plain.item(), rel=1e-12)
    (2.5 * plain).backward()
    assert_same_gradients(net, q, rho, means)


def test_the_kl_is_differentiable_twice():
    q = bound(MEMBERS["gaussian"], layered())
    prior = priors.Gaussian().bind(q.layout).gaussian
    leaves = [p.detach().clone().requires_grad_() for p in q.layout.params().values()]
    rho = q.scales.rho.detach().clone().requires_grad_()
    torch.autograd.gradgradcheck(lambda rho, *means: _KL.apply(prior.on(q.layout), rho, *means), (rho, *leaves))


@each_noisy
@pytest.mark.parametrize("network", [small, layered, convolutional])
def test_fused_sample_equals_autograd(member, network):
    net = network()
    q = bound(member, net)
    coefficients = {k: torch.linspace(-1, 2, p.numel(), dtype=p.dtype).view_as(p) for k, p in net.named_parameters()}

    def loss(params):
        return sum((coefficients[k] * w**3 + w.sin()).sum() for k, w in params.items())

    q.noise.seed(9)
    fused = loss(q.rsample())
    fused.backward()
    rho, means, sigma = naive(net, q)
    e, offset, params = q.standard(Noise(9), rho.detach()), 0, {}
    for k, mu in means.items():
        params[k] = mu + sigma[k] * e[offset : offset + mu.numel()].reshape(mu.shape)
        offset += mu.numel()
    plain = loss(params)
    plain.backward()
    assert fused.item() == pytest.approx(plain.item(), rel=1e-12)
    assert_same_gradients(net, q, rho, means)


@each_noisy
def test_a_loss_may_leave_parameters_out(member):
    net = layered()
    q = bound(member, net)
    q.rsample()["0.bias"].sum().backward()
    assert (net[0].bias.grad == 1).all()
    assert net[2].weight.grad is None or (net[2].weight.grad == 0).all()
    by_name = q.layout.unflatten(q.scales.rho.grad)
    assert (by_name["2.weight"] == 0).all()
    assert (by_name["0.bias"] != 0).all()


@each_noisy
@pytest.mark.parametrize("what", ["rsample", "log_prob", "entropy", "kl"])
def test_gradients_are_finite_differences(member, what):
    net = layered()
    q = bound(member, net)
    prior = priors.Gaussian().bind(Layout(net))
    fixed = {k: w[0] for k, w in q.sample(1, seed=10).items()}

    def value():
        if what == "rsample":
            q.noise.seed(11)
            return sum((w.sin() * (1 + i)).sum() for i, w in enumerate(q.rsample().values()))
        if what == "log_prob":
            return q.log_prob(fixed)
        return q.entropy() if what == "entropy" else q.kl(prior)

    value().backward()
    step = 1e-6
    for parameter in (net[0].weight, net[1].weight, q.scales.rho):
        if parameter.grad is None:
            assert what == "entropy"  # which does not depend on the means
            continue
        flat = parameter.data.view(-1)
        for i in range(0, flat.numel(), 5):
            here = flat[i].item()
            values = []
            for sign in (1, -1):
                flat[i] = here + sign * step
                values.append(value().item())
            flat[i] = here
            slope = (values[0] - values[1]) / (2 * step)
            assert parameter.grad.view(-1)[i].item() == pytest.approx(slope, rel=1e-5, abs=1e-6)


@each_noisy
def test_detached_log_prob_holds_q_and_follows_w(member):
    net = layered()
    q = bound(member, net)
    leaves = {k: w[0].requires_grad_() for k, w in q.sample(1, seed=12).items()}
    q.log_prob(leaves, detached=True).backward()
    assert q.scales.rho.grad is None
    assert all(p.grad is None for p in net.parameters())
    path = {k: w.grad.clone() for k, w in leaves.items()}
    for w in leaves.values():
        w.grad = None
    q.log_prob(leaves).backward()
    for k, w in leaves.items():
        assert torch.equal(w.grad, path[k])
        assert (w.grad != 0).all()
    assert (q.scales.rho.grad != 0).all()
    assert all((p.grad != 0).all() for p in net.parameters())


# -- reproducibility and state ----------------------------------------------------------------------------------------


@each_noisy
def test_samples_follow_the_seed(member):
    q = bound(member, layered())
    five = q.sample(5, seed=13)
    assert_equal_params(five, q.sample(5, seed=13))
    assert_equal_params({k: w[:3] for k, w in five.items()}, q.sample(3, seed=13))
    assert_equal_params(five, {k: torch.stack([w[k] for w in q.draws(5, seed=13)]) for k in five})
    other = q.sample(5, seed=14)
    for k, w in five.items():
        assert not torch.equal(w, other[k])
        assert len({tuple(each.flatten().tolist()) for each in w}) == 5


@each_noisy
def test_a_seeded_sample_leaves_the_own_stream_alone(member):
    q = bound(member, layered())
    q.noise.seed(15)
    first, second = q.sample(1), q.sample(1)
    assert not torch.equal(first["0.bias"], second["0.bias"])
    q.noise.seed(15)
    q.sample(3, seed=0)
    assert_equal_params(first, q.sample(1))
    assert_equal_params(second, q.sample(1))


@each_member
def test_draws_are_tensors_of_their_own(member):
    net = layered()
    q = bound(member, net)
    before = {k: p.detach().clone() for k, p in net.named_parameters()}
    first, *_ = [{k: w.clone() for k, w in params.items()} for params in q.draws(3, seed=16)]
    kept = next(iter(q.draws(3, seed=16)))
    assert_equal_params(first, kept)
    assert not any(w.requires_grad for w in kept.values())
    assert_equal_params(before, {k: p.detach() for k, p in net.named_parameters()})


@each_member
def test_state_comes_back_with_the_stream(member):
    net = layered()
    q = bound(member, net)
    q.sample(3)
    state = {k: copy.deepcopy(v) for k, v in q.state_dict().items()}
    expected_stddev, expected = q.stddev(), q.sample(2)
    fresh = member.describe(0.1).bind(Layout(net))
    assert not fresh.load_state_dict(state).missing_keys
    assert_equal_params(fresh.stddev(), expected_stddev)
    assert_equal_params(fresh.sample(2), expected)


@each_noisy
def test_the_state_of_another_network_is_refused(member):
    state = bound(member, nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(4), nn.Linear(4, 2)).double()).state_dict()
    q = bound(member, layered())
    before = q.stddev()
    with pytest.raises(RuntimeError, match=r"scales\.rho\.0\.weight has shape \(5, 3\), another network's"):
        q.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"(?s)Missing key.*scales\.rho\.2\.weight.*Unexpected key.*rho\.weight"):
        q.load_state_dict(bound(member, small()).state_dict())
    assert_equal_params(q.stddev(), before)


@each_member
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q))], ids=["deepcopy", "pickle"])
def test_a_copy_goes_on_by_itself(member, copied):
    net = layered()
    q = bound(member, net)
    q.sample(1)
    other = copied(q)
    assert_equal_params(other.stddev(), q.stddev())
    assert_equal_params(other.sample(2), q.sample(2))
    with torch.no_grad():
        for p in other.layout.params().values():
            p.fill_(9.0)
        for p in other.parameters():
            p.fill_(-3.0)
    assert not any((p == 9).all() for p in net.parameters())
    assert all((w == 9).all() for w in other.mean().values())
    if list(q.parameters()):
        assert not torch.equal(other.stddev()["0.bias"], q.stddev()["0.bias"])


@each_noisy
def test_a_copied_objective_shares_nothing(member):
    net = layered()
    bnn = VI(net, GaussianLikelihood(), num_data=10, family=member.describe(0.1))
    other = copy.deepcopy(bnn)
    x, y = torch.ones(4, 3, dtype=torch.float64), torch.ones(4, 2, dtype=torch.float64)
    loss = other(x, y)
    loss.backward()
    assert loss.item() == bnn(x, y).item()
    assert all(p.grad is None for p in bnn.parameters())
    assert all(p.grad is not None for p in other.parameters())
    assert other.q.layout.params()["0.weight"] is other.net[0].weight


# -- types, memory and shapes -----------------------------------------------------------------------------------------


@each_member
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_have_the_type_of_the_network(member, dtype):
    net = layered().to(dtype)
    q, prior = member.describe(0.5).bind(Layout(net)), priors.Gaussian().bind(Layout(net))
    values = [*q.sample(1).values(), *q.rsample().values(), *q.mean().values(), *q.stddev().values(), q.kl(prior)]
    assert {v.dtype for v in values} == {dtype}


@each_member
def test_double_on_the_objective_converts_both(member):
    net = layered().float()
    bnn = VI(net, GaussianLikelihood(), num_data=10, family=member.describe(0.1))
    before = bnn.posterior.stddev()
    bnn.double()
    x, y = torch.ones(4, 3, dtype=torch.float64), torch.ones(4, 2, dtype=torch.float64)
    loss = bnn(x, y)
    loss.backward()
    assert loss.dtype == torch.float64
    assert all(p.dtype == torch.float64 and p.grad is not None for p in bnn.parameters())
    for k, s in bnn.posterior.stddev().items():
        assert s.numpy() == pytest.approx(before[k].numpy(), rel=1e-5)


@each_noisy
def test_moving_only_the_network_is_an_error_that_teaches(member):
    net = layered().float()
    q = member.describe(0.1).bind(Layout(net))
    net.double()
    for use in (q.rsample, q.stddev, q.entropy, lambda: q.sample(1)):
        with pytest.raises(InputError, match=r"(?s)torch\.float64.*torch\.float32.*bnn\.to\(device\)"):
            use()
    q.double()
    assert q.rsample()["0.weight"].dtype == torch.float64


@each_noisy
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rho", [-50.0, -20.0, 0.0, 19.9, 20.1, 50.0])
def test_scales_are_positive(member, rho, dtype):
    q = member.describe(0.1).bind(Layout(layered().to(dtype)))
    with torch.no_grad():
        q.scales.rho.fill_(rho)
    sigma = q.scales.sigma()
    assert (sigma > 0).all()
    assert sigma.detach().numpy() == pytest.approx(float(np.exp(rho)), rel=1e-5)
    q.entropy().backward()
    assert torch.isfinite(q.entropy())
    assert (q.scales.rho.grad > 0).all()


@each_noisy
@pytest.mark.parametrize("first", [1e-9, 0.05, 1.0, 60.0])
def test_the_first_scale_is_the_one_asked_for(member, first):
    stddev = member.describe(first).bind(Layout(nn.Linear(4, 3).double())).stddev()
    assert stddev["weight"].numpy() == pytest.approx(first / 2, rel=1e-9)
    assert stddev["bias"].numpy() == pytest.approx(first, rel=1e-9)


@each_noisy
@pytest.mark.parametrize("first", [0.0, -1.0, math.nan])
def test_no_spread_at_all_is_the_point_mass(member, first):
    with pytest.raises(InputError, match=r"families\.Dirac\(\)"):
        member.describe(first)


@each_noisy
def test_channels_last_keeps_its_strides_and_its_numbers(member):
    plain, last = convolutional(), convolutional().to(memory_format=torch.channels_last)
    assert last[0].weight.stride() != plain[0].weight.stride()
    p, q = bound(member, plain), member.describe(0.1).bind(Layout(last))
    q.load_state_dict(p.state_dict())  # saved by name, so the order in memory does not matter
    assert_equal_params({k: s.contiguous() for k, s in q.stddev().items()}, p.stddev())
    drawn, rdrawn = next(q.draws(1, seed=17)), q.rsample()
    for k, parameter in last.named_parameters():
        assert drawn[k].stride() == rdrawn[k].stride() == q.stddev()[k].stride() == parameter.stride()
    fixed = {k: w.contiguous() for k, w in drawn.items()}
    assert q.log_prob(drawn).item() == pytest.approx(p.log_prob(fixed).item(), rel=1e-12)
    prior = priors.Gaussian()
    assert q.kl(prior.bind(q.layout)).item() == pytest.approx(p.kl(prior.bind(p.layout)).item(), rel=1e-12)
    # gradients land on the weights they belong to
    c = torch.arange(72, dtype=torch.float64).reshape(4, 3, 2, 3) + 1
    (c * rdrawn["0.weight"]).sum().backward()
    assert torch.equal(last[0].weight.grad, c)
    rho = p.state_dict()["scales.rho.0.weight"]
    e = (rdrawn["0.weight"] - last[0].weight).detach() / rho.exp()
    by_hand = c * e * rho.exp()
    assert q.layout.unflatten(q.scales.rho.grad)["0.weight"].numpy() == pytest.approx(by_hand.numpy(), rel=1e-9)
    x = torch.ones(1, 3, 4, 4, dtype=torch.float64)
    inner = functional.conv2d(x, fixed["0.weight"], fixed["0.bias"])
    assert Network(last[0])({"weight": drawn["0.weight"], "bias": drawn["0.bias"]}, x).allclose(inner, atol=1e-12)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


@each_member
def test_tied_weights_are_drawn_once(member):
    net = Tied().double()
    q = bound(member, net)
    drawn = next(q.draws(1, seed=18))
    assert list(drawn) == ["first.weight"]
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(19))
    w = drawn["first.weight"]
    assert torch.allclose(Network(net)(drawn, x), x @ w.T @ w.T, rtol=1e-12)
    assert net.second.weight is net.first.weight
    assert sum(p.numel() for p in q.parameters()) in (0, 9)


@each_member
def test_only_the_random_parameters_are_drawn(member):
    net = layered()
    q = member.describe(0.1).bind(Layout(net, random=["2.*", "1.weight"]))
    assert list(q.sample(1)) == list(q.mean()) == list(q.stddev()) == ["1.weight", "2.weight", "2.bias"]


@each_noisy
def test_scales_are_computed_once_within_a_loss(member):
    q = bound(member, layered())
    assert q.scales.values() is not q.scales.values()
    with q.cached():
        inside = q.scales.values()
        assert q.scales.values() is inside
    with torch.no_grad():
        q.scales.rho += 1
    assert torch.allclose(q.scales.values(), math.e * inside)
    with pytest.raises(ZeroDivisionError), q.cached():
        raise ZeroDivisionError
    assert q.scales.values() is not q.scales.values()


def test_a_point_mass_gives_as_many_draws_as_asked():
    q = families.Dirac().bind(Layout(nn.Linear(2, 1)))
    drawn = q.sample(5)
    assert drawn["weight"].shape == (5, 1, 2)
    assert torch.equal(drawn["weight"][4], q.mean()["weight"])


def test_no_draws_is_an_error():
    with pytest.raises(InputError, match="at least one"):
        families.Gaussian().bind(Layout(nn.Linear(2, 1))).sample(0)


def test_q_and_prior_may_be_bound_to_layouts_of_their_own():
    """Which weights are random and how they lie in memory is q's business; the prior is known by names."""
    net = convolutional()
    whole = priors.Gaussian(scale=0.7).bind(Layout(net))
    net = net.to(memory_format=torch.channels_last)
    later = Layout(net)
    assert later.strides != whole.layout.strides  # or nothing is tested
    for layout in (later, Layout(net, random="0.*")):
        q = families.Gaussian(initial_scale=0.2).bind(layout)
        means, scales = q.mean(), q.stddev()
        expected = sum(
            torch.distributions.kl_divergence(
                torch.distributions.Normal(means[k], scales[k]), torch.distributions.Normal(whole.loc[k], 0.7)
            ).sum()
            for k in means
        )
        q.noise.seed(5)
        drawn, kl = q.rsample_and_kl(whole)
        q.noise.seed(5)
        again = q.rsample()
        assert kl.item() == pytest.approx(float(expected), rel=1e-7)
        assert all(torch.equal(drawn[k], again[k]) for k in means)
        minus_log_p = -sum(
            torch.distributions.Normal(whole.loc[k], 0.7).log_prob(mean).sum() for k, mean in means.items()
        )
        assert families.Dirac().bind(layout).kl(whole).item() == pytest.approx(float(minus_log_p), rel=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_kl_is_not_rounded_under_autocast(dtype):
    net = nn.Linear(300, 300)
    nn.init.constant_(net.weight, 3.0)
    q, point, prior = (each.bind(Layout(net)) for each in (families.Gaussian(), families.Dirac(), priors.Gaussian()))
    ways = (lambda: q.rsample_and_kl(prior)[1], lambda: q.kl(prior), lambda: point.kl(prior))
    expected = [way().item() for way in ways]
    with torch.autocast("cpu", dtype=dtype):
        assert [way().item() for way in ways] == pytest.approx(expected, rel=1e-6)


def test_the_kl_of_long_vectors_keeps_its_digits():
    net = nn.Linear(3_000_000, 1, bias=False)
    nn.init.constant_(net.weight, 0.0123)
    q, prior = (each.bind(Layout(net)) for each in (families.Gaussian(), priors.Gaussian(scale=0.01)))
    normal = torch.distributions.Normal
    p, at = normal(0.0, 0.01), normal(net.weight.double(), q.stddev()["weight"].double())
    expected = torch.distributions.kl_divergence(at, p).sum().item()
    assert [q.rsample_and_kl(prior)[1].item(), q.kl(prior).item()] == pytest.approx([expected] * 2, rel=3e-5)
    point = families.Dirac().bind(Layout(net))
    assert point.kl(prior).item() == pytest.approx(-p.log_prob(net.weight.double()).sum().item(), rel=3e-5)


def test_training_goes_on_after_a_prediction_in_inference_mode():
    bnn = VI(nn.Linear(3, 2), GaussianLikelihood(scale=1.0), num_data=10)
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    for _ in range(2):
        with torch.inference_mode():
            bnn(x, y)
            bnn.predict(x, samples=2)
        bnn(x, y).backward()


def test_copies_and_files_have_no_kept_memory():
    layout = Layout(nn.Linear(400, 400))
    layout.vector(torch.zeros(1))
    assert len(pickle.dumps(layout)) < 2 * 4 * layout.num_params  # the weights once
    assert copy.deepcopy(layout)._vectors == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scales_are_the_exponentials_of_their_logarithms(dtype):
    """Over all that float32 holds, beside numpy's in float64: the quick way through powers of two loses few digits."""
    q = families.Gaussian().bind(Layout(nn.Linear(1000, 1, bias=False).to(dtype)))
    with torch.no_grad():
        q.scales.rho.copy_(torch.linspace(-30, 5, 1000, dtype=dtype))
    expected = np.exp(q.scales.rho.detach().double().numpy())
    rtol = 3e-6 if dtype == torch.float32 else 1e-14
    np.testing.assert_allclose(q.scales.values().double().numpy(), expected, rtol=rtol)
