"""Linear regression with Gaussian noise and a Gaussian prior, where posterior and evidence are known.

    y = X w + NOISE e,   w ~ N(0, PRIOR^2 I)
    w | y ~ N(m, P^-1),  P = X'X / NOISE^2 + I / PRIOR^2,  P m = X'y / NOISE^2

The best mean-field Gaussian has the posterior's mean and, for weight i, the scale 1 / sqrt(P_ii).

The loss is quadratic in the weights, so its expectation needs only two moments of the noise: the 2P points
+-sqrt(P) e_i have those of a standard normal, and draws from them make the loss exact and its optimum sharp.
"""

import itertools
import math

import pytest
import torch
from scipy import stats
from torch import nn

from credent import MAP, VI, families, likelihoods, priors
from credent.families.gaussian import GaussianPosterior

NOISE, PRIOR = 0.6, 1.3


class Problem:
    """Data, and everything that is known about them in closed form."""

    def __init__(self, dim, num_data, orthogonal=False, seed=0):
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(num_data, dim, dtype=torch.float64, generator=g)
        if orthogonal:
            x = torch.linalg.qr(x).Q * torch.linspace(2, 6, dim, dtype=torch.float64)
        else:
            mixing = torch.randn(dim, dim, dtype=torch.float64, generator=g) / dim**0.5
            x = x @ (torch.eye(dim, dtype=torch.float64) + 0.7 * mixing)
        w = PRIOR * torch.randn(dim, 1, dtype=torch.float64, generator=g)
        self.x, self.dim, self.num_data = x, dim, num_data
        self.y = x @ w + NOISE * torch.randn(num_data, 1, dtype=torch.float64, generator=g)

    def posterior(self, beta=1.0):
        """Mean and precision under a KL of weight beta: the likelihood counts 1/beta times."""
        data = self.x.T @ self.x / NOISE**2 / beta
        precision = data + torch.eye(self.dim, dtype=torch.float64) / PRIOR**2
        mean = torch.linalg.solve(precision, self.x.T @ self.y / NOISE**2 / beta)
        return mean.flatten(), precision

    def log_evidence(self):
        """log N(y; 0, NOISE^2 I + PRIOR^2 XX')."""
        covariance = NOISE**2 * torch.eye(self.num_data, dtype=torch.float64) + PRIOR**2 * self.x @ self.x.T
        return stats.multivariate_normal(cov=covariance.numpy()).logpdf(self.y.flatten().numpy())

    def elbo(self, mu, sigma):
        """E_q log p(y | w) - KL(q || p) for a mean-field q, in nats for all data."""
        squares = (self.y.flatten() - self.x @ mu).square().sum() + (self.x.square().sum(0) * sigma**2).sum()
        fit = -squares / (2 * NOISE**2) - self.num_data * math.log(NOISE * math.sqrt(2 * math.pi))
        kl = (math.log(PRIOR) - sigma.log() + (mu**2 + sigma**2) / (2 * PRIOR**2) - 0.5).sum()
        return (fit - kl).item()


class Halves(nn.Module):
    """The same regression with its features split over two layers whose outputs are added."""

    def __init__(self, dim):
        super().__init__()
        self.left, self.right = nn.Linear(dim // 2, 1, bias=False), nn.Linear(dim - dim // 2, 1, bias=False)

    def forward(self, x):
        return self.left(x[:, : self.left.in_features]) + self.right(x[:, self.left.in_features :])


class Moments:
    """A Gaussian family whose noise runs through the 2P points with the moments of a standard normal."""

    def __init__(self, initial_scale):
        self.initial_scale = initial_scale

    def bind(self, layout):
        return MomentsPosterior(layout, dict.fromkeys(layout.names, self.initial_scale))


class MomentsPosterior(GaussianPosterior):
    def __init__(self, layout, initial):
        super().__init__(layout, initial)
        axes = math.sqrt(layout.num_params) * torch.eye(layout.num_params, dtype=torch.float64)
        self.points = itertools.cycle(torch.cat([axes, -axes]))

    def standard(self, noise, like):
        return next(self.points)


def vi(problem, net=None, family=None, num_data=None, **options):
    """VI with exact expectations, unless a family is given."""
    torch.manual_seed(0)
    net = (nn.Linear(problem.dim, 1, bias=False) if net is None else net).double()
    if family is None:
        family, options = Moments(0.2), {"samples": 2 * problem.dim, **options}
    noise, prior = likelihoods.Gaussian(NOISE), priors.Gaussian(scale=PRIOR)
    return VI(net, noise, prior, num_data=num_data or problem.num_data, family=family, **options)


def moments(bnn):
    mean, stddev = bnn.posterior.mean(), bnn.posterior.stddev()
    return tuple(torch.cat([v[k].flatten() for k in v]) for v in (mean, stddev))


def minimise(objective, problem, batch_size=None):
    """By torch's LBFGS on the losses of all batches: exact expectations have an exact optimum."""
    size = batch_size or problem.num_data
    optimiser = torch.optim.LBFGS(
        objective.parameters(),
        max_iter=400,
        history_size=40,
        tolerance_grad=1e-6,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        total = 0.0
        for x, y in zip(problem.x.split(size), problem.y.split(size), strict=True):
            loss = objective(x, y) * len(y) / problem.num_data
            loss.backward()
            total += loss.item()
        return total

    optimiser.step(closure)
    return objective


def train(bnn, problem, batch_size=None, steps=1200, lr=0.05):
    """Adam with a rate that falls to nothing; mean and scale (in log) averaged over the last half."""
    n, size = problem.num_data, batch_size or problem.num_data
    optimiser = torch.optim.Adam(bnn.param_groups(lr=lr))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: 1 - i / steps)
    g, order, means, logs = torch.Generator().manual_seed(1), torch.empty(0), [], []
    for step in range(steps):
        if len(order) < size:
            order = torch.randperm(n, generator=g)
        batch, order = order[:size], order[size:]
        bnn(problem.x[batch], problem.y[batch]).backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        if step >= steps // 2:
            mu, sigma = moments(bnn)
            means.append(mu.clone())
            logs.append(sigma.log())
    return torch.stack(means).mean(0), torch.stack(logs).mean(0).exp()


def assert_is_the_optimum(found, exact, of_mean=1e-4, of_scale=1e-4):
    (mu, sigma), (mean, precision) = found, exact
    assert torch.linalg.vector_norm(mu - mean) < of_mean * torch.linalg.vector_norm(mean)
    assert (sigma * precision.diag().sqrt() - 1).abs().max() < of_scale


@pytest.mark.parametrize(("dim", "num_data"), [(3, 20), (8, 40), (20, 80)])
def test_vi_finds_the_best_mean_field_posterior_and_bounds_the_evidence(dim, num_data):
    problem = Problem(dim, num_data)
    mean, precision = problem.posterior()
    bnn = minimise(vi(problem), problem)
    assert_is_the_optimum(moments(bnn), (mean, precision))
    bound = -num_data * bnn(problem.x, problem.y).item()
    assert bound == pytest.approx(problem.elbo(mean, precision.diag().rsqrt()), abs=1e-6)
    # what is missing is the correlation that a mean-field q cannot have
    gap = 0.5 * (precision.diag().log().sum() - torch.linalg.slogdet(precision).logabsdet).item()
    assert gap > 0.1
    assert problem.log_evidence() - bound == pytest.approx(gap, abs=1e-6)


@pytest.mark.parametrize("dim", [3, 8, 20])
def test_where_the_posterior_factorises_the_bound_is_the_evidence(dim):
    problem = Problem(dim, 30, orthogonal=True)
    bnn = minimise(vi(problem), problem)
    assert_is_the_optimum(moments(bnn), problem.posterior())
    assert -30 * bnn(problem.x, problem.y).item() == pytest.approx(problem.log_evidence(), abs=1e-6)


def test_draws_find_the_same_optimum():
    """The Gaussian family's own noise, within its error: 600 steps of 4 mirrored pairs leave 2 % of a scale."""
    problem = Problem(3, 20)
    bnn = vi(problem, family=families.Gaussian(initial_scale=0.3), samples=8)
    found = train(bnn, problem, steps=1200)
    assert_is_the_optimum(found, problem.posterior(), of_mean=0.01, of_scale=0.04)
    assert problem.elbo(*found) > problem.elbo(problem.posterior()[0], problem.posterior()[1].diag().rsqrt()) - 0.01


def test_the_loss_is_minus_the_bound_per_datum():
    """N times the loss, averaged over draws, is the closed-form bound of the same q."""
    problem, n = Problem(8, 40), 1000
    bnn = vi(problem, family=families.Gaussian(initial_scale=0.5))
    with torch.no_grad():
        losses = torch.stack([bnn(problem.x, problem.y) for _ in range(2 * n)]) * problem.num_data
    losses = losses.view(n, 2).mean(1)  # draws come in mirrored pairs, and pairs are independent
    error = losses.std().item() / math.sqrt(n)
    assert abs(-losses.mean().item() - problem.elbo(*moments(bnn))) < 4 * error


def test_the_predictive_is_the_exact_one():
    problem, n = Problem(4, 20, orthogonal=True), 4000
    bnn = vi(problem, family=families.Gaussian())
    mean, precision = problem.posterior()
    with torch.no_grad():
        bnn.net.weight.copy_(mean)
        bnn.q.scales.rho.copy_(precision.diag().rsqrt().log())
    x = torch.randn(6, 4, dtype=torch.float64)
    prediction = bnn.predict(x, samples=n)
    variance = (x @ torch.linalg.inv(precision) * x).sum(1, keepdim=True)
    assert ((prediction.mean - x @ mean[:, None]).abs() < 4 * (variance / n).sqrt()).all()
    assert ((prediction.epistemic / variance.sqrt() - 1).abs() < 4 / math.sqrt(2 * n)).all()
    torch.testing.assert_close(prediction.aleatoric, torch.full((6, 1), NOISE, dtype=torch.float64))


# -- what the optimum does not depend on ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 10])
def test_the_batch_size_does_not_move_the_optimum(batch_size):
    problem = Problem(3, 20)
    bnn = minimise(vi(problem), problem, batch_size)
    assert_is_the_optimum(moments(bnn), problem.posterior())


def test_stochastic_steps_on_single_data_end_there_too():
    problem = Problem(3, 20)
    found = train(vi(problem), problem, batch_size=1, steps=1200, lr=0.06)
    assert_is_the_optimum(found, problem.posterior(), of_mean=0.01, of_scale=0.02)


@pytest.mark.parametrize("batch_size", [1, 4, 10, 20])
def test_the_losses_of_an_epoch_average_to_the_loss_of_all_data(batch_size):
    """With the same noise, value and gradients: each batch pays its share of the KL."""
    problem = Problem(5, 20)
    whole, parts = (vi(problem, family=families.Gaussian(0.5)) for _ in range(2))
    loss = whole(problem.x, problem.y)
    loss.backward()
    state, total = parts.q.noise.get_extra_state(), 0.0
    for i in range(0, 20, batch_size):
        parts.q.noise.set_extra_state(state)
        part = parts(problem.x[i : i + batch_size], problem.y[i : i + batch_size]) * batch_size / 20
        part.backward()
        total += part.item()
    assert total == pytest.approx(loss.item(), rel=1e-12)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12)


def test_splitting_a_layer_changes_nothing():
    problem = Problem(5, 20)
    whole, split = vi(problem), vi(problem, Halves(5))
    with torch.no_grad():
        split.net.left.weight.copy_(whole.net.weight[:, :2])
        split.net.right.weight.copy_(whole.net.weight[:, 2:])
    torch.testing.assert_close(whole(problem.x, problem.y), split(problem.x, problem.y), rtol=1e-12, atol=0)
    for bnn in (whole, split):
        assert_is_the_optimum(moments(minimise(bnn, problem)), problem.posterior())


# -- beta and num_data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.1, 3.0])
def test_beta_tempers_the_likelihood(beta):
    problem = Problem(4, 20)
    mean, precision = problem.posterior(beta)
    assert (precision.diag() / problem.posterior()[1].diag()).log().abs().min() > 0.5  # far from beta = 1
    bnn = minimise(vi(problem, beta=beta), problem)
    assert_is_the_optimum(moments(bnn), (mean, precision))


def test_num_data_counts_the_data():
    """Batches from a data set of twice the size stand for twice the data: the likelihood counts double."""
    problem = Problem(3, 20)
    bnn = minimise(vi(problem, num_data=40), problem)
    assert_is_the_optimum(moments(bnn), problem.posterior(beta=0.5))


# -- maximum a posteriori ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_map_is_ridge_regression(beta):
    problem = Problem(8, 30)
    net = nn.Linear(8, 1, bias=False).double()
    prior = priors.Gaussian(scale=PRIOR)
    minimise(MAP(net, likelihoods.Gaussian(NOISE), prior, num_data=30, beta=beta), problem)
    ridge = problem.x.T @ problem.x + beta * NOISE**2 / PRIOR**2 * torch.eye(8, dtype=torch.float64)
    expected = torch.linalg.solve(ridge, problem.x.T @ problem.y).T
    torch.testing.assert_close(net.weight.detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_learnt_noise_is_the_root_mean_square_of_the_residuals(beta):
    problem = Problem(4, 30)
    net, likelihood = nn.Linear(4, 1, bias=False).double(), likelihoods.Gaussian("learnt").double()
    prior = priors.Gaussian(scale=PRIOR)
    minimise(MAP(net, likelihood, prior, num_data=30, beta=beta), problem)
    residual = problem.y - problem.x @ net.weight.detach().T
    noise = likelihood.log_scale.exp().item()
    assert noise == pytest.approx(residual.square().mean().sqrt().item(), rel=1e-5)
    ridge = problem.x.T @ problem.x + beta * noise**2 / PRIOR**2 * torch.eye(4, dtype=torch.float64)
    expected = torch.linalg.solve(ridge, problem.x.T @ problem.y).T
    torch.testing.assert_close(net.weight.detach(), expected, rtol=1e-5, atol=1e-5)
