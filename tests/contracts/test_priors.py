"""What every prior must satisfy. A new prior is one line in MEMBERS."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import nn

from credent import families, priors
from credent.errors import InputError
from credent.layout import Layout

NARROW = math.exp(-6)


def mixture(z, share=0.5, wide=1.0, narrow=NARROW):
    with np.errstate(divide="ignore"):
        parts = np.log([share, 1 - share])
    return np.logaddexp(parts[0] + stats.norm.logpdf(z, scale=wide), parts[1] + stats.norm.logpdf(z, scale=narrow))


def horseshoe(z):
    """By the scale mixture itself: the integral over lambda, exp(x) E_1(x), is Tricomi's U(1, 1, x)."""
    return np.log(special.hyperu(1, 1, np.square(z) / 2)) - 0.5 * math.log(2 * math.pi**3)


@dataclass(frozen=True)
class Member:
    """A prior as a function of its scale, its density at scale one by other means, and what is known of it."""

    describe: Callable
    log_density: Callable
    standard_deviation: float
    closed: bool
    width: float | None = None  # the standard deviation that a rule sets, at scale one, where there is none

    def variance(self, scale):
        return (self.standard_deviation * scale) ** 2

    @property
    def ruled(self):
        """What a rule sets, at scale one."""
        return self.standard_deviation if self.width is None else self.width

    def spread(self, w):
        """An estimate of what a rule sets: the standard deviation, or the horseshoe's by E log|w|."""
        if self.width is None:
            return w.std()
        return math.exp(np.log(np.abs(w)).mean() + (np.euler_gamma + math.log(2)) / 2)


MEMBERS = {
    "gaussian": Member(priors.Gaussian, stats.norm.logpdf, 1.0, closed=True),
    "laplace": Member(priors.Laplace, stats.laplace.logpdf, math.sqrt(2), closed=True),
    "mixture": Member(
        lambda scale: priors.ScaleMixture(scale=scale), mixture, math.sqrt(0.5 + 0.5 * NARROW**2), closed=False
    ),
    "broad-mixture": Member(
        lambda scale: priors.ScaleMixture(weight=0.25, wide=2.0, narrow=0.5, scale=scale),
        lambda z: mixture(z, 0.25, 2.0, 0.5),
        math.sqrt(0.25 * 4 + 0.75 * 0.25),
        closed=False,
    ),
    "horseshoe": Member(priors.Horseshoe, horseshoe, math.inf, closed=False, width=1.0),
    "learnt-horseshoe": Member(
        lambda scale: priors.Horseshoe(scale, learnt=True), horseshoe, math.inf, closed=False, width=1.0
    ),
}
SCALES = [0.05, 1.0, 3.0]
each_member = pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
each_scale = pytest.mark.parametrize("scale", SCALES)


def network():
    """Two layers and a norm layer, with fans that differ."""
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()


def one_weight(describe, scale):
    return describe(scale).bind(Layout(nn.Linear(1, 1, bias=False).double()))


def points(scale):
    """Positive weights, dense at zero and reaching far: the integrand p(e^t) e^t is smooth, whatever the prior."""
    t = np.linspace(math.log(scale) - 30, math.log(scale) + 32, 12_401)
    return np.exp(t), t[1] - t[0]


def density(prior, w):
    each = torch.func.vmap(lambda value: prior.log_prob({"weight": value}))(torch.from_numpy(w).reshape(-1, 1, 1))
    return each.exp().detach().numpy()


def random_params(net, seed, spread=1.0):
    g = torch.Generator().manual_seed(seed)
    return {k: spread * torch.randn(p.shape, generator=g, dtype=p.dtype) for k, p in net.named_parameters()}


# -- the density ------------------------------------------------------------------------------------------------------


@each_member
@each_scale
def test_the_density_integrates_to_one_and_has_its_variance(member, scale):
    prior = one_weight(member.describe, scale)
    w, dt = points(scale)
    below, above = density(prior, -w), density(prior, w)
    assert np.sum((below + above) * w) * dt == pytest.approx(1, abs=1e-9)
    if math.isfinite(member.standard_deviation):
        assert np.sum((below + above) * w**3) * dt == pytest.approx(member.variance(scale), rel=1e-9)


@each_member
@each_scale
def test_log_prob_sums_over_tensors_and_layers(member, scale):
    net = network()
    params = random_params(net, seed=1)
    rest = {k: 1.0 if k == "1.weight" else 0.0 for k in params}  # gains of a norm layer rest at one
    by_hand = sum(
        np.sum(member.log_density((w.numpy() - rest[k]) / scale)) - w.numel() * math.log(scale)
        for k, w in params.items()
    )
    assert member.describe(scale).bind(Layout(net)).log_prob(params).item() == pytest.approx(by_hand, rel=1e-12)


@each_member
@pytest.mark.parametrize("scale", [0.05, 1.0, 3.0, "fan_in"])
def test_the_score_is_the_slope_of_log_prob(member, scale):
    net = network()
    prior = member.describe(scale).bind(Layout(net))
    params = random_params(net, seed=2)
    leaves = {k: w.clone().requires_grad_() for k, w in params.items()}
    prior.log_prob(leaves).backward()
    step = 1e-6
    for k, w in params.items():
        for i in range(w.numel()):
            values = []
            for sign in (1, -1):
                moved = w.clone()
                moved.view(-1)[i] += sign * step
                values.append(prior.log_prob({**params, k: moved}).item())
            slope = (values[0] - values[1]) / (2 * step)
            assert float(leaves[k].grad.view(-1)[i]) == pytest.approx(slope, rel=1e-6, abs=1e-6)


@each_member
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_weights_give_numbers(member, dtype):
    prior = member.describe(1.0).bind(Layout(nn.Linear(6, 1, bias=False).to(dtype)))
    w = torch.tensor([[0.0, -0.0, 1e-30, -1e-8, 1e6, -1e15]], dtype=dtype, requires_grad=True)
    value = prior.log_prob({"weight": w})
    value.backward()
    assert value.dtype == dtype
    assert torch.isfinite(value)
    assert torch.isfinite(w.grad).all()
    assert (w.grad[0, 4:] * w[0, 4:] < 0).all()  # far weights are pulled back


def test_scale_mixture_at_known_points():
    prior = one_weight(lambda scale: priors.ScaleMixture(0.5, 1.0, math.exp(-6), scale), 1.0)
    w = np.array([0.0, 0.001, 0.01, 0.1, 1.0])
    expected = [4.3903900, 4.3092222, -1.5006596, -1.6170857, -2.1120857]
    assert np.log(density(prior, w)) == pytest.approx(expected, abs=1e-7)


def test_scale_mixture_needs_two_components():
    for weight in (0.0, 1.0, -0.1):
        with pytest.raises(InputError, match=r"Gaussian\(\)"):
            priors.ScaleMixture(weight=weight)
    for wide, narrow in ((1.0, 1.0), (0.1, 1.0), (1.0, 0.0)):
        with pytest.raises(InputError, match="wide > narrow > 0"):
            priors.ScaleMixture(wide=wide, narrow=narrow)


# -- draws ------------------------------------------------------------------------------------------------------------


@each_member
@each_scale
def test_samples_follow_the_density(member, scale):
    prior, n = one_weight(member.describe, scale), 40_000
    drawn = prior.sample(n, seed=3)["weight"]
    assert drawn.shape == (n, 1, 1)
    drawn = drawn.flatten().numpy()
    w, _ = points(scale)
    right = 0.5 + integrate.cumulative_trapezoid(density(prior, w) * w, dx=np.log(w[1] / w[0]), initial=0)
    left = 0.5 - integrate.cumulative_trapezoid(density(prior, -w) * w, dx=np.log(w[1] / w[0]), initial=0)
    values, cdf = np.concatenate([-w[::-1], w]), np.concatenate([left[::-1], right])
    assert stats.kstest(drawn, lambda v: np.interp(v, values, cdf)).pvalue > 1e-3
    if member.width is not None:
        return
    second, variance = drawn**2, member.variance(scale)
    error = second.std() / math.sqrt(n)
    assert abs(second.mean() - variance) < 4 * error
    assert error < 0.03 * variance


@each_member
def test_sample_is_reproducible_and_its_tensors_differ(member):
    prior = member.describe(1.0).bind(Layout(nn.Linear(1, 500).double()))
    first, again, other = prior.sample(2, seed=0), prior.sample(2, seed=0), prior.sample(2, seed=1)
    assert first["bias"].shape == (2, 500)
    for k in first:
        assert torch.equal(first[k], again[k])
        assert not torch.equal(first[k], other[k])
        assert not torch.equal(first[k][0], first[k][1])
    together = np.corrcoef(first["weight"].flatten().numpy(), first["bias"].flatten().numpy())[0, 1]
    assert abs(together) < 4 / math.sqrt(1000)


@each_member
@pytest.mark.parametrize(
    ("rule", "variance"),
    [("fan_in", [1 / 8, 1 / 25]), ("kaiming", [2 / 8, 2 / 25]), ("glorot", [2 / (8 + 10), 2 / (25 + 50)])],
)
def test_rules_set_the_variance_of_weights(member, rule, variance):
    """For every density, whatever its own scale parameter means; biases and norm layers have standard deviation one."""
    net = nn.Sequential(nn.Linear(8, 10), nn.LayerNorm(10), nn.Conv1d(5, 10, 5)).double()
    prior, n = member.describe(rule).bind(Layout(net)), 2000
    expected = {"0.weight": variance[0], "0.bias": 1, "1.weight": 1, "1.bias": 1, "2.weight": variance[1], "2.bias": 1}
    drawn = prior.sample(n, seed=4)
    assert set(drawn) == set(expected)
    for k, w in drawn.items():
        rest = 1.0 if k == "1.weight" else 0.0
        values = w.flatten().numpy()
        if member.width is not None:
            assert member.spread(values - rest) == pytest.approx(math.sqrt(expected[k]), rel=0.05)
            continue
        assert abs(values.mean() - rest) < 4 * values.std() / math.sqrt(values.size)
        second = (values - rest) ** 2
        error = second.std() / math.sqrt(values.size)
        assert abs(second.mean() - expected[k]) < 4 * error
        assert error < 0.04 * expected[k]


# -- expectations -----------------------------------------------------------------------------------------------------


def minus_expected_log(member, scale, rest, mean, stddev):
    """-E log p for w ~ N(mean, stddev^2) by quadrature, split where the density has a kink."""

    def integrand(w):
        return -stats.norm.pdf(w, mean, stddev) * (member.log_density((w - rest) / scale) - math.log(scale))

    ends = sorted({mean - 12 * stddev, mean + 12 * stddev, *([rest] if abs(rest - mean) < 12 * stddev else [])})
    return sum(integrate.quad(integrand, a, b, epsabs=1e-12, limit=200)[0] for a, b in itertools.pairwise(ends))


@each_member
@each_scale
def test_cross_entropy_by_quadrature(member, scale):
    net = nn.Sequential(nn.Linear(3, 1), nn.LayerNorm(2)).double()
    prior = member.describe(scale).bind(Layout(net))
    mean = {k: w * scale for k, w in random_params(net, seed=5).items()}
    stddev = {k: w.abs() * scale + 0.1 * scale for k, w in random_params(net, seed=6).items()}
    value = prior.cross_entropy(mean, stddev)
    if not member.closed:
        assert value is None
        return
    by_hand = sum(
        minus_expected_log(member, scale, 1.0 if k == "1.weight" else 0.0, float(m), float(s))
        for k in mean
        for m, s in zip(mean[k].flatten(), stddev[k].flatten(), strict=True)
    )
    assert float(value) == pytest.approx(by_hand, abs=1e-8)


@each_member
def test_cross_entropy_by_sampling(member):
    net, n = network(), 100_000
    prior = member.describe("fan_in").bind(Layout(net))
    mean, g = random_params(net, seed=7, spread=0.5), torch.Generator().manual_seed(8)
    stddev = {k: w.abs() + 0.1 for k, w in random_params(net, seed=9, spread=0.3).items()}
    value = prior.cross_entropy(mean, stddev)
    if value is None:
        assert not member.closed
        return
    drawn = {k: mean[k] + stddev[k] * torch.randn(n, *mean[k].shape, generator=g, dtype=torch.float64) for k in mean}
    each = -torch.func.vmap(prior.log_prob)(drawn)
    error = each.std() / math.sqrt(n)
    assert abs(value - each.mean()) < 4 * error
    assert 4 * error < 0.5 * math.log(2)  # a log 2 lost for a single weight would show


@each_member
def test_a_penalty_without_closed_form_is_estimated_from_one_draw(member):
    """Calling a prior is KL(q || p): here its mean over many draws, and the sign of its pull on the means."""
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(net.weight, 0.7)
    layout = Layout(net)
    q, prior = families.Gaussian(initial_scale=0.4).bind(layout), member.describe(1.0).bind(layout)
    q.noise.seed(0)
    values, slopes = [], []
    for _ in range(400):
        net.weight.grad = None
        value = prior(q)
        value.backward()
        values.append(value.item())
        slopes.append(float(net.weight.grad))

    def kl(mu):
        return minus_expected_log(member, 1.0, 0.0, mu, 0.4) - stats.norm(scale=0.4).entropy()

    slope = (kl(0.7 + 1e-4) - kl(0.7 - 1e-4)) / 2e-4
    for found, exact in ((values, kl(0.7)), (slopes, slope)):
        error = np.std(found) / math.sqrt(len(found))
        assert abs(np.mean(found) - exact) < 4 * error + 1e-6
    assert (np.std(values) < 1e-12) == member.closed


@each_member
def test_patterns_set_layers_apart(member):
    net = network()
    prior = member.describe({"0.*": 0.05, "*.bias": 2.0, "*": "fan_in"}).bind(Layout(net))
    own = member.ruled
    wanted = {"0.weight": 0.05 * own, "0.bias": 0.05 * own, "1.weight": 1.0, "1.bias": 2.0 * own}
    wanted |= {"2.weight": 0.5, "2.bias": 2.0 * own}
    drawn, params = prior.sample(20_000, seed=10), random_params(net, seed=11)
    rest = {k: 1.0 if k == "1.weight" else 0.0 for k in params}
    by_hand = 0.0
    for k, w in params.items():
        assert member.spread(drawn[k].numpy() - rest[k]) == pytest.approx(wanted[k], rel=0.03)
        scale = wanted[k] / own
        by_hand += np.sum(member.log_density((w.numpy() - rest[k]) / scale)) - w.numel() * math.log(scale)
    assert prior.log_prob(params).item() == pytest.approx(by_hand, rel=1e-12)


@each_member
def test_only_the_random_parameters_have_a_prior(member):
    net = network()
    prior = member.describe(1.0).bind(Layout(net, random="2.*"))
    w = {k: v for k, v in random_params(net, seed=12).items() if k.startswith("2.")}
    assert set(prior.sample(1, seed=0)) == {"2.weight", "2.bias"}
    by_hand = sum(np.sum(member.log_density(v.numpy())) for v in w.values())
    assert prior.log_prob(w).item() == pytest.approx(by_hand, rel=1e-12)


@each_member
@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_is_a_positive_number(member, scale):
    with pytest.raises(InputError, match="positive number; no prior at all is beta=0"):
        member.describe(scale).bind(Layout(network()))


def test_streams_of_neighbouring_seeds_share_nothing():
    net = nn.Sequential(nn.Linear(1, 3, bias=False), nn.Linear(3, 1, bias=False))
    prior = priors.Gaussian(scale=1.0).bind(Layout(net))
    first, second = prior.sample(1, seed=0), prior.sample(1, seed=1)
    drawn = torch.cat([w.flatten() for params in (first, second) for w in params.values()])
    assert len(set(drawn.tolist())) == len(drawn)
