"""A prior from a table: density, tails, draws, moments and expectations against scipy, and use in VI."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from credent import MAP, VI, families, likelihoods, penalties, priors
from credent.errors import InputError
from credent.layout import Layout
from credent.penalty import Penalty

LAWS = {"gaussian": stats.norm(0, 0.7), "logistic": stats.logistic(1.0, 0.5), "student": stats.t(5)}
each_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def table(law, n=601):
    x = law.median() + law.std() * np.sinh(np.linspace(-8, 8, n)) / 40
    return priors.Tabulated(x, law.logpdf(x) + 3.0)


@each_law
def test_density_and_score_follow_the_law_within_and_beyond_the_table(law):
    p = table(law)
    w = torch.linspace(-60, 60, 4001, dtype=torch.float64, requires_grad=True)
    log = p.log_density(w)
    log.sum().backward()
    exact = law.logpdf(w.detach().numpy())
    assert log.detach().numpy() == pytest.approx(exact, rel=1e-3, abs=1e-6)
    close = torch.abs(w.detach()) < 5
    step = 1e-5
    slope = (law.logpdf(w.detach().numpy() + step) - law.logpdf(w.detach().numpy() - step)) / (2 * step)
    assert w.grad[close].numpy() == pytest.approx(slope[close.numpy()], abs=2e-5)
    assert p.density(w.detach().numpy()) == pytest.approx(np.exp(log.detach().numpy()))
    assert p.log_density(np.array([[0.1], [0.2]])).shape == (2, 1)


@each_law
def test_moments(law):
    p = table(law)
    assert p.mean == pytest.approx(law.mean(), abs=1e-8)
    assert p.variance == pytest.approx(law.var(), rel=1e-5)
    assert p.standard_deviation == pytest.approx(law.std(), rel=1e-5)


def test_heavy_tails_have_fewer_moments():
    x = np.sinh(np.linspace(-25, 25, 2001))
    two, one = (priors.Tabulated(x, stats.t(df).logpdf(x)) for df in (1.5, 0.8))
    assert two.mean == pytest.approx(0, abs=1e-6)
    assert two.variance == math.inf
    assert math.isnan(one.mean)


@each_law
def test_draws_follow_the_law(law):
    generator = torch.Generator().manual_seed(0)
    drawn = table(law).draw(torch.empty(40_000, 2), generator)
    assert drawn.dtype == torch.float32
    assert drawn.shape == (40_000, 2)
    assert stats.kstest(drawn.flatten().numpy(), law.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 4 / math.sqrt(40_000)


def exact_cross_entropy(log_prob, mean, stddev):
    w = np.linspace(mean - 14 * stddev, mean + 14 * stddev, 200_001)
    return -np.sum(stats.norm.pdf(w, mean, stddev) * log_prob(w)) * (w[1] - w[0])


@pytest.mark.parametrize(("mean", "stddev"), [(0.3, 0.05), (-1.0, 0.4), (2.0, 1.0), (0.1, 30.0)])
@pytest.mark.parametrize(
    "log_prob",
    [stats.norm(0.2, 0.7).logpdf, lambda w: -0.3 * w**4 + w**3 / 5 + w, lambda w: -0.01 * w**6 + w**2],
    ids=["gaussian", "quartic", "sextic"],
)
def test_cross_entropy_of_polynomials_is_closed_however_wide_q_is(log_prob, mean, stddev):
    x = np.linspace(-6, 6, 301)
    p = priors.Tabulated(x, log_prob(x) + 3.0)
    mu, sigma = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (mean, stddev))
    found = p.cross_entropy(mu, sigma)
    slope = torch.autograd.grad(found, mu)[0].item()
    constant = p.log_density(x[150:151])[0] - log_prob(x[150])
    h = 1e-4 * stddev
    around = [exact_cross_entropy(log_prob, m, stddev) for m in (mean, mean - h, mean + h)]
    assert found.item() + constant == pytest.approx(around[0], rel=1e-7, abs=1e-7)
    assert slope == pytest.approx((around[2] - around[1]) / (2 * h), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("law", [stats.logistic(1.0, 0.5), stats.t(5), stats.logistic(scale=0.05)])
def test_other_tables_have_no_closed_form(law):
    assert table(law).cross_entropy(torch.zeros(1), torch.ones(1)) is None


def test_few_points_are_no_proof_of_a_polynomial():
    x = np.linspace(-3, 3, 8)  # even, so that four coefficients pass through all of them
    p = priors.Tabulated(x, stats.logistic.logpdf(x))
    assert p.cross_entropy(torch.zeros(1), torch.ones(1)) is None


@pytest.mark.parametrize("scale", [0.05, 1.0])
def test_vi_has_the_right_gradient_where_q_is_wider_than_the_prior(scale):
    """d/dmu of KL(N(mu, 1) || logistic), the mean over many weights, each with a draw of its own."""
    law, n = stats.logistic(scale=scale), 40_000
    layout = Layout(nn.Linear(n, 1, bias=False).double())
    layout.params()["weight"].data.fill_(0.1)
    q = families.Gaussian(math.sqrt(n)).bind(layout)  # sigma = 1
    torch.manual_seed(0)
    table(law).bind(layout)(q).backward()
    each = layout.params()["weight"].grad
    w = np.linspace(-9, 9, 200_001)
    exact = np.sum(stats.norm.pdf(w, 0.1) * np.tanh(w / (2 * scale)) / scale) * (w[1] - w[0])
    assert each.mean().item() == pytest.approx(exact, abs=4 * each.std().item() / math.sqrt(n))


def test_a_kink_is_kept_sharp_and_has_no_closed_form():
    x = np.linspace(-30, 30, 301)
    p = priors.Tabulated(x, -np.abs(x), kinks=(0.0,))
    w = np.linspace(-3, 3, 1001)
    assert p.density(w) == pytest.approx(stats.laplace.pdf(w), abs=1e-12)
    assert p.cross_entropy(torch.zeros(1), torch.ones(1)) is None


def test_the_scale_is_absolute_unless_a_rule_is_given():
    layout = Layout(nn.Linear(4, 1, bias=False).double())
    x = np.linspace(-8, 8, 161)
    w = {"weight": torch.tensor([[0.1, -0.3, 0.8, 2.0]], dtype=torch.float64)}
    for scale, sd in ((1.0, 0.7), (2.0, 1.4), ("fan_in", 0.5)):
        prior = priors.Tabulated(x, stats.norm(0, 0.7).logpdf(x), scale=scale).bind(layout)
        expected = stats.norm(0, sd).logpdf(w["weight"].numpy()).sum()
        assert float(prior.log_prob(w)) == pytest.approx(expected, abs=1e-7)
        assert float(prior.sample(20_000, seed=0)["weight"].std()) == pytest.approx(sd, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_weights_give_numbers(dtype):
    w = torch.tensor([0.0, 1e-30, -1e-8, 1e6, -1e15], dtype=dtype, requires_grad=True)
    value = table(stats.norm()).log_density(w)
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(w.grad).all()
    assert (w.grad[3:] * w[3:] < 0).all()


def test_repr_is_short_and_tells_tables_apart():
    first, again, other = table(LAWS["gaussian"]), table(LAWS["gaussian"]), table(stats.norm(0, 0.7 + 1e-9))
    assert repr(first) == repr(again) != repr(other)
    assert len(repr(first)) < 150


@pytest.mark.parametrize(
    ("points", "values", "message"),
    [
        (np.arange(5.0), np.arange(5.0), "at least 8"),
        (np.arange(9.0), np.arange(8.0), "of one length"),
        (np.arange(9.0)[::-1], -np.arange(9.0), "must increase"),
        (np.arange(9.0), np.full(9, -np.inf), "leave out what is -inf"),
        (np.arange(-9.0, 10), np.zeros(19), "too slowly"),
        (np.arange(-9.0, 10), np.arange(19.0), "too slowly"),
    ],
)
def test_bad_tables_are_refused(points, values, message):
    with pytest.raises(InputError, match=message):
        priors.Tabulated(points, values)


@pytest.mark.parametrize("scale", ["fan_in", {"0.*": 1.0, "*": "kaiming"}])
def test_a_rule_needs_a_variance(scale):
    x = np.sinh(np.linspace(-25, 25, 2001))
    with pytest.raises(InputError, match=r"no variance.*scale=1\.0"):
        priors.Tabulated(x, stats.cauchy.logpdf(x), scale=scale)


# -- the same steps as its penalty ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Direct:
    """A penalty r(mu, sigma), written in torch, summed over the weights."""

    r: object

    def bind(self, layout):
        return DirectPenalty(self.r)


class DirectPenalty(Penalty):
    def __init__(self, r):
        super().__init__()
        self.r = r

    def forward(self, q):
        sigma = q.layout.views(q.scales.sigma())
        return sum(self.r(mu, sigma[k]).sum() for k, mu in q.layout.params().items())


def gaussian(mu, sigma):
    return (mu**2 + sigma**2) / (2 * 0.3**2) - sigma.log()


def quartic(mu, sigma):
    return 0.3 * (mu**4 + 6 * sigma**2 * mu**2 + 3 * sigma**4) - sigma.log()


@pytest.mark.parametrize("r", [gaussian, quartic])
def test_vi_with_a_penalty_and_with_its_prior_takes_the_same_steps(r):
    prior = penalties.prior_of(lambda mu, sigma: r(torch.from_numpy(mu), torch.from_numpy(sigma)).numpy(), stats.norm)
    x = torch.linspace(-2, 2, 40, dtype=torch.float64)[:, None]
    y = torch.sin(2 * x)
    paths = []
    for description in (Direct(r), prior):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1)).double()
        bnn = VI(net, likelihoods.Gaussian(scale=0.3), description, num_data=40, family=families.Gaussian(0.5))
        optimizer = torch.optim.SGD(bnn.param_groups(lr=0.05), lr=0.05)
        for _ in range(30):
            optimizer.zero_grad()
            bnn(x, y).backward()
            optimizer.step()
        paths.append(torch.cat([p.detach().flatten() for p in bnn.parameters()]))
    assert torch.max(torch.abs(paths[0] - paths[1])) < 1e-5
    assert torch.max(torch.abs(paths[0])) > 0.1


def test_it_serves_map():
    x = np.linspace(-8, 8, 161)
    net = nn.Linear(1, 1, bias=False).double()
    net.weight.data.fill_(2.0)
    losses = [
        MAP(net, likelihoods.Gaussian(scale=1.0), prior, num_data=4)(
            torch.ones(1, 1).double(), torch.ones(1, 1).double()
        )
        for prior in (priors.Tabulated(x, -(x**2) / 2), priors.Gaussian(scale=1.0))
    ]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-7)
