"""KL(q || p) as a function of mean and scale: closed forms, scipy's adaptive quadrature, and what it refuses."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gamma

from credent import penalties, priors
from credent.errors import InputError

MEANS, SCALES = np.array([-2.3, 0.0, 0.4, 1.2]), np.array([0.05, 0.5, 2.0])


def by_quadrature(log_prob, law, mu, kink=0.0):
    """KL of mu + e to p for centred noise e, adaptive, split at the kinks of both."""
    low, high = max(law.support()[0], law.ppf(1e-14)), min(law.support()[1], law.isf(1e-14))
    shift = mu - law.mean()
    cuts = sorted({low, high, *(c for c in (kink - shift, law.median()) if low < c < high)})

    def integrand(e):
        return law.pdf(e) * log_prob(e + shift)

    pieces = (
        integrate.quad(integrand, a, b, epsabs=1e-13, epsrel=1e-12, limit=500) for a, b in itertools.pairwise(cuts)
    )
    return -law.entropy() - sum(value for value, _ in pieces)


def test_gaussian_to_gaussian_by_hand():
    mu, nu, m, s = MEANS[:, None], SCALES[None], 0.3, 0.7
    by_hand = 0.5 * (((mu - m) ** 2 + nu**2) / s**2 - 1) + np.log(s / nu)
    found = penalties.penalty_of(stats.norm(m, s), stats.norm)(mu, nu)
    assert found == pytest.approx(by_hand, abs=1e-12)
    assert penalties.penalty_of(stats.norm(m, s).logpdf, stats.norm)(mu, nu) == pytest.approx(by_hand, abs=1e-8)


def test_the_quartic_at_a_known_point():
    log_z = math.log(2 * gamma(1.25) / 0.3**0.25)
    r = penalties.penalty_of(lambda w: -0.3 * w**4 - log_z, stats.norm)
    rest = stats.norm(scale=0.5).entropy() - log_z
    assert float(r(np.array(1.2), np.array(0.5))) + rest == pytest.approx(1.32633, abs=1e-8)


@pytest.mark.parametrize("noise", ["norm", "laplace", "uniform", "logistic", "expon"])
@pytest.mark.parametrize("prior", ["laplace", "logistic", "norm"])
def test_every_noise_by_quadrature(noise, prior):
    law, p = getattr(stats, noise), getattr(stats, prior)(0.1, 0.8)
    r = penalties.penalty_of(p, law)
    for mu in MEANS:
        for nu in SCALES:
            exact = by_quadrature(p.logpdf, law(scale=nu), mu, kink=0.1)
            assert float(r(np.array(mu), np.array(nu))) == pytest.approx(exact, abs=1e-8)


def test_student_noise_keeps_its_slow_tails():
    """E e^2 = 3 for 3 degrees of freedom, half of it beyond any quantile that one would think of cutting at."""
    r = penalties.penalty_of(stats.norm(), functools.partial(stats.t, 3))
    exact = 0.5 * (1.2**2 + 3 * 0.5**2) + 0.5 * math.log(2 * math.pi) - stats.t(3, scale=0.5).entropy()
    assert float(r(np.array(1.2), np.array(0.5))) == pytest.approx(exact, abs=1e-8)


def test_without_noise_it_is_minus_the_log_density():
    r = penalties.penalty_of(stats.logistic(), penalties.Dirac)
    assert r(MEANS, np.ones(4)) == pytest.approx(-stats.logistic.logpdf(MEANS))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (priors.Gaussian(scale=0.5), stats.norm(scale=0.5)),
        (priors.Laplace(scale=0.5), stats.laplace(scale=0.5)),
        (
            priors.Tabulated(np.linspace(-7, 13, 401), stats.norm.logpdf(np.linspace(-7, 13, 401), 3, 1)),
            stats.norm(3, 1),
        ),
    ],
    ids=["gaussian", "laplace", "tabulated"],
)
def test_our_priors_are_priors_too(ours, theirs):
    mu, nu = MEANS[:, None], SCALES[None]
    expected = penalties.penalty_of(theirs, stats.norm)(mu, nu)
    assert penalties.penalty_of(ours, stats.norm)(mu, nu) == pytest.approx(expected, abs=1e-7)


def test_a_prior_that_is_zero_where_the_noise_reaches_costs_infinitely_much():
    assert penalties.penalty_of(stats.uniform(-1, 2), stats.norm)(np.zeros(1), np.ones(1)) == [math.inf]
    inside = penalties.penalty_of(stats.uniform(-1, 2), stats.uniform)(np.zeros(1), np.ones(1))
    assert inside == pytest.approx([math.log(2)])


def test_what_is_no_prior_is_refused():
    with pytest.raises(InputError, match="frozen scipy distribution"):
        penalties.penalty_of("laplace", stats.norm)
    with pytest.raises(InputError, match="a weight alone needs a number"):
        penalties.penalty_of(priors.Gaussian(), stats.norm)
    with pytest.raises(InputError, match="is its scale positive"):
        penalties.penalty_of(stats.norm(scale=-1), stats.norm)
    with pytest.raises(InputError, match="positive number"):
        penalties.penalty_of(priors.Gaussian(scale=-1.0), stats.norm)
    with pytest.raises(InputError, match="scale of the noise is positive"):
        penalties.penalty_of(stats.norm(), stats.norm)(np.zeros(1), -np.ones(1))
