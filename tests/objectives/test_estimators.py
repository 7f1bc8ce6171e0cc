"""Estimators of the KL and of its gradient, on q = N(0.5, 0.8^2) and p = N(0, 1) for each weight.

With one weight every estimator is a function of one noise e, so a sum over e gives its mean and variance exactly; the
same then holds of draws, within their Monte-Carlo error.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from credent import VI, families, likelihoods, priors
from credent.errors import InputError

MU, SIGMA = 0.5, 0.8
KL = -math.log(SIGMA) + (SIGMA**2 + MU**2) / 2 - 0.5
BY_MU, BY_SIGMA = MU, SIGMA - 1 / SIGMA  # .5 and -.45
SAMPLED = ("path", "total", "score")

# Variances of the gradients by mu and by sigma, for one draw of one weight w = mu + sigma e:
#   path   mu + B e,               (mu + B e) e                     B = sigma - 1/sigma
#   total  mu + sigma e,           (mu + sigma e) e - 1/sigma
#   score  R e / sigma,            R (e^2 - 1) / sigma              R = log q - log p = A0 + A1 e + A2 e^2
# from the moments 1, 3, 15, 105 of e^2, e^4, e^6, e^8.
B = SIGMA - 1 / SIGMA
A0, A1, A2 = MU**2 / 2 - math.log(SIGMA), MU * SIGMA, (SIGMA**2 - 1) / 2
VARIANCES = {
    "path": (B**2, MU**2 + 2 * B**2),  # .2025 and .655
    "total": (SIGMA**2, MU**2 + 2 * SIGMA**2),  # .64 and 1.53
    "score": (  # .8613 and 4.6667
        (A0**2 + 3 * A1**2 + 15 * A2**2 + 6 * A0 * A2) / SIGMA**2 - BY_MU**2,
        (2 * A0**2 + 10 * A1**2 + 78 * A2**2 + 20 * A0 * A2) / SIGMA**2 - BY_SIGMA**2,
    ),
}


def one_kind_of_weight(estimator, count=1, mu=MU, sigma=SIGMA, prior=priors.Gaussian(scale=1.0), samples=1):  # noqa: B008
    """VI over `count` independent weights, all with the same q."""
    torch.manual_seed(0)
    net = nn.Linear(count, 1, bias=False).double()
    nn.init.constant_(net.weight, mu)
    q = families.Gaussian(initial_scale=sigma * math.sqrt(count))  # in units of 1/sqrt(fan_in)
    noise = likelihoods.Gaussian(1.0)
    return VI(net, noise, prior, num_data=10, family=q, estimator=estimator, samples=samples)


def gradients(bnn):
    """By mu and by sigma (rho's, less the exponential), one number per weight."""
    by_sigma = bnn.q.scales.rho.grad / bnn.q.scales.rho.detach().exp()
    return bnn.net.weight.grad.flatten(), by_sigma


def estimate(bnn, draws=1):
    """One value of the KL from `draws` draws, and its gradients."""
    bnn.zero_grad()
    value = bnn.kl([bnn.q.rsample() for _ in range(draws)])
    value.backward()
    return value.item(), *gradients(bnn)


def independent_estimates(bnn, n):
    """n of them from new seeds: within one stream draws come in mirrored pairs."""
    results = []
    for seed in range(n):
        bnn.q.noise.seed(seed)
        results.append(estimate(bnn))
    return results


def over_noise(bnn, monkeypatch):
    """Mean and variance over e of value and gradients, for one weight: (3,) each. The trapezium rule is exact here."""
    points = np.linspace(-10, 10, 401)
    weights = np.exp(-0.5 * points**2)
    weights /= weights.sum()
    results = []
    for e in points:
        monkeypatch.setattr(type(bnn.q), "standard", lambda self, noise, like, e=e: torch.full_like(like, e))
        bnn.q.noise.seed(0)  # a new pair, not the last one's mirror image
        value, by_mu, by_sigma = estimate(bnn)
        results.append([value, by_mu.item(), by_sigma.item()])
    mean = weights @ np.array(results)
    return mean, weights @ (np.array(results) - mean) ** 2


@pytest.mark.parametrize("estimator", SAMPLED)
def test_value_and_gradients_are_unbiased_and_their_variances_are_known(estimator, monkeypatch):
    mean, variance = over_noise(one_kind_of_weight(estimator), monkeypatch)
    assert mean == pytest.approx([KL, BY_MU, BY_SIGMA], abs=1e-10)
    assert variance[1:] == pytest.approx(VARIANCES[estimator], rel=1e-10)


def test_the_closed_form_has_no_variance(monkeypatch):
    mean, variance = over_noise(one_kind_of_weight("closed"), monkeypatch)
    assert mean == pytest.approx([KL, BY_MU, BY_SIGMA], abs=1e-12)
    assert variance.max() < 1e-25


@pytest.mark.parametrize("sigma", [2.0, 1 / math.sqrt(2), 0.05, 4.5398899e-5])
def test_a_narrow_posteriors_path_gradient_is_noisier_than_the_total_one(sigma, monkeypatch):
    """By mu, path has the variance (1/sigma - sigma)^2 and total sigma^2: alike at 1/sqrt 2, far apart below."""
    variances = {}
    for estimator in ("path", "total"):
        mean, variance = over_noise(one_kind_of_weight(estimator, sigma=sigma), monkeypatch)
        assert mean[1] == pytest.approx(MU, abs=1e-10 / sigma)
        variances[estimator] = variance[1]
    assert variances["path"] == pytest.approx(1 / sigma**2 - 2 + sigma**2, rel=1e-9)
    assert variances["total"] == pytest.approx(sigma**2, rel=1e-9)
    if sigma < 0.7:
        assert variances["path"] > 1e4 * variances["total"]


@pytest.mark.parametrize("sigma", [0.01, 0.25, 1.0])
@pytest.mark.parametrize("estimator", ["path", "total"])
def test_with_data_the_path_gradient_is_quiet_at_the_best_scale(estimator, sigma, monkeypatch):
    """A quadratic loss: noise (sigma / t^2 - 1/sigma) e / N by path, (sigma / t^2) e / N in total, t = 1/4 the best."""
    bnn = one_kind_of_weight(estimator, sigma=sigma)  # N = 10, noise 1, prior 1
    x = torch.full((10, 1), math.sqrt(1.5), dtype=torch.float64)  # 10 x^2 + 1 = 16 = 1 / t^2
    slopes = []
    for e in (1.0, -1.0):
        monkeypatch.setattr(type(bnn.q), "standard", lambda self, noise, like, e=e: torch.full_like(like, e))
        bnn.q.noise.seed(0)
        bnn.zero_grad()
        bnn(x, torch.ones(10, 1, dtype=torch.float64)).backward()
        slopes.append(bnn.net.weight.grad.item())
    score = 1 / sigma if estimator == "path" else 0.0
    assert (slopes[0] - slopes[1]) / 2 == pytest.approx((16 * sigma - score) / 10, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("estimator", ["path", "total"])
def test_many_draws_agree_in_mean_and_variance(estimator):
    """Each weight of a layer is a draw of its own, as the KL is a sum over weights."""
    count = 200_000
    value, *by = estimate(one_kind_of_weight(estimator, count))
    for gradient, expected, variance in zip(by, (BY_MU, BY_SIGMA), VARIANCES[estimator], strict=True):
        assert abs(gradient.mean().item() - expected) < 4 * math.sqrt(variance / count)
        assert gradient.var().item() == pytest.approx(variance, rel=0.03)
    assert abs(value / count - KL) < 4 * math.sqrt((A1**2 + 2 * A2**2) / count)


def test_many_draws_of_the_score_agree_in_mean_and_variance():
    n = 3000
    draws = independent_estimates(one_kind_of_weight("score"), n)
    results = torch.tensor([[value, by_mu.item(), by_sigma.item()] for value, by_mu, by_sigma in draws])
    error = results.std(0) / math.sqrt(n)
    assert ((results.mean(0) - torch.tensor([KL, BY_MU, BY_SIGMA])).abs() < 4 * error).all()
    fourth = (results - results.mean(0)).pow(4).mean(0)
    for i, variance in zip((1, 2), VARIANCES["score"], strict=True):
        error = math.sqrt((fourth[i].item() - variance**2) / n)
        assert abs(results[:, i].var().item() - variance) < 4 * error


@pytest.mark.parametrize("estimator", SAMPLED)
def test_several_draws_are_averaged(estimator):
    bnn, again = one_kind_of_weight(estimator, count=3), one_kind_of_weight(estimator, count=3)
    together = estimate(bnn, draws=4)
    apart = [estimate(again) for _ in range(4)]
    assert together[0] == pytest.approx(sum(v for v, _, _ in apart) / 4, rel=1e-12)
    for i in (1, 2):
        torch.testing.assert_close(together[i], torch.stack([each[i] for each in apart]).mean(0))


@pytest.mark.parametrize(("estimator", "variances"), [("path", (0, 0)), ("total", (1, 2)), ("score", (0, 0))])
def test_when_q_is_the_prior(estimator, variances, monkeypatch):
    """The path derivative vanishes draw by draw; the total derivative keeps the score's noise."""
    mean, variance = over_noise(one_kind_of_weight(estimator, mu=0.0, sigma=1.0), monkeypatch)
    assert mean == pytest.approx([0, 0, 0], abs=1e-12)
    assert variance == pytest.approx([0, *variances], abs=1e-12)


def test_the_path_gradient_is_exactly_zero_when_q_is_the_prior():
    bnn = one_kind_of_weight("path", count=1000, mu=0.0, sigma=1.0)
    _, by_mu, by_sigma = estimate(bnn)
    assert by_mu.abs().max() < 1e-14
    assert by_sigma.abs().max() < 1e-14


def test_a_scores_gradient_couples_weights_and_stays_unbiased():
    """With D weights the factor log q - log p is a sum over all of them; the mean is that of one weight."""
    n, count = 2000, 5
    results = independent_estimates(one_kind_of_weight("score", count), n)
    values = torch.tensor([v for v, _, _ in results])
    assert abs(values.mean().item() - count * KL) < 4 * values.std().item() / math.sqrt(n)
    for i, expected in ((1, BY_MU), (2, BY_SIGMA)):
        by = torch.stack([each[i] for each in results])
        error = by.std(0) / math.sqrt(n)
        assert ((by.mean(0) - expected).abs() < 4 * error).all()


# -- priors without a closed form -------------------------------------------------------------------------------------

MIXTURE = priors.ScaleMixture(weight=0.25, wide=1.5, narrow=0.2)


def test_closed_falls_back_to_the_entropy_which_has_the_total_derivative():
    closed = estimate(one_kind_of_weight("closed", 7, prior=MIXTURE), draws=1)
    path = estimate(one_kind_of_weight("path", 7, prior=MIXTURE), draws=1)
    total = estimate(one_kind_of_weight("total", 7, prior=MIXTURE), draws=1)
    assert path[0] == pytest.approx(total[0], rel=1e-12)
    for i in (1, 2):
        assert torch.allclose(closed[i], total[i], rtol=1e-12)
        assert not torch.allclose(closed[i], path[i])


@pytest.mark.parametrize("estimator", ["closed", *SAMPLED])
def test_a_scale_mixtures_kl_is_the_integral(estimator, monkeypatch):
    """KL and gradients for one weight against a fine sum over w of q log(q/p), which shares no code."""

    def kl(mu, sigma):
        w = np.linspace(mu - 10 * sigma, mu + 10 * sigma, 40_001)
        q = np.exp(-0.5 * ((w - mu) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
        wide = np.exp(-0.5 * (w / 1.5) ** 2) / (1.5 * math.sqrt(2 * math.pi))
        narrow = np.exp(-0.5 * (w / 0.2) ** 2) / (0.2 * math.sqrt(2 * math.pi))
        return np.sum(q * (np.log(q) - np.log(0.25 * wide + 0.75 * narrow))) * (w[1] - w[0])

    h = 1e-4
    by_mu = (kl(MU + h, SIGMA) - kl(MU - h, SIGMA)) / (2 * h)
    by_sigma = (kl(MU, SIGMA + h) - kl(MU, SIGMA - h)) / (2 * h)
    mean, _ = over_noise(one_kind_of_weight(estimator, prior=MIXTURE), monkeypatch)
    assert mean == pytest.approx([kl(MU, SIGMA), by_mu, by_sigma], abs=1e-6)


# -- in the loss ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["closed", *SAMPLED])
@pytest.mark.parametrize("samples", [1, 3])
def test_the_loss_uses_one_set_of_draws_for_both_terms(estimator, samples):
    """The likelihood's gradient is reparameterised under every estimator; only the KL's differs."""
    bnn, other = (one_kind_of_weight(estimator, 4, samples=samples) for _ in range(2))
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    bnn(x, y).backward()
    draws = [other.q.rsample() for _ in range(samples)]
    nll = sum((0.5 * (y - x @ w["weight"].T) ** 2).mean() for w in draws) / samples + 0.5 * math.log(2 * math.pi)
    kl = other.kl(draws)
    (nll + kl / 10).backward()
    assert bnn.last.nll.item() == pytest.approx(nll.item(), rel=1e-12)
    assert bnn.last.penalty.item() == pytest.approx(kl.item(), rel=1e-12)
    for mine, naive in zip(gradients(bnn), gradients(other), strict=True):
        torch.testing.assert_close(mine, naive, rtol=1e-10, atol=1e-12)


def test_bad_estimators_and_samples_are_refused():
    with pytest.raises(InputError, match=r"estimator='reinforce'\): write 'closed', 'path', 'total' or 'score'"):
        one_kind_of_weight("reinforce")
    with pytest.raises(InputError, match="at least one draw"):
        one_kind_of_weight("closed", samples=0)
