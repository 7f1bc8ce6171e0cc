"""Penalties that come from a known prior give it back within the reported error; others get the reason why not."""

import functools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gamma

from credent import penalties, priors
from credent.errors import InputError
from credent.penalties import Dirac, NoPrior, penalty_of, prior_of
from credent.penalties.inversion import Inverse, Points, invert
from credent.penalties.prior_of import _answer

STUDENT = float(stats.t(3).logpdf(0))
QUARTIC = math.log(2 * gamma(1.25) / 0.3**0.25)
SMOOTH = {
    "gaussian": lambda w: -((w / 0.7) ** 2) / 2 - math.log(0.7 * math.sqrt(2 * math.pi)),
    "logistic": lambda w: -2 * np.logaddexp((w - 0.5) / 0.4, (0.5 - w) / 0.4) - math.log(0.2),
    "student": lambda w: -2 * np.log1p(w**2 / 3) + STUDENT,
    "quartic": lambda w: -0.3 * w**4 - QUARTIC,
    "mixture": lambda w: np.logaddexp(stats.norm.logpdf(w), stats.norm.logpdf(w, 0, 3)) - math.log(2),
}
EVERY = {**SMOOTH, "laplace": lambda w: -np.abs(w) - math.log(2)}
NODES = np.linspace(-9, 9, 241)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


def divergence(log_prob, noise=0.0, seed=0):
    """KL(N(mu, nu^2) || p) by the trapezoidal rule, with noise of its own."""
    rng = np.random.default_rng(seed)

    def r(mu, nu):
        expected = sum(w * log_prob(mu + nu * e) for e, w in zip(NODES, WEIGHTS, strict=True))
        return -expected - np.log(nu) + noise * rng.standard_normal(mu.shape)

    return r


def true_error(table, log_prob, centre=0.0, width=1.0):
    w = np.concatenate([table.grid, centre + width * np.linspace(-12, 12, 4001)])
    return float(np.max(np.abs(table.density(w) - np.exp(log_prob(w)))))


def random_prior(rng):
    """A mixture of Gaussians, or a convex potential with bumps, anywhere and of any size."""
    width = 10 ** rng.uniform(-2, 2)
    centre = width * rng.normal()
    if rng.random() < 0.5:
        shares, means, sds = rng.dirichlet([2.0, 2.0, 2.0]), rng.uniform(-2, 2, 3), rng.uniform(0.4, 1.5, 3)

        def standard(z):
            parts = zip(shares, means, sds, strict=True)
            return np.logaddexp.reduce([math.log(p) - ((z - m) / s) ** 2 / 2 - math.log(s) for p, m, s in parts])

    else:
        a, b, bumps = rng.uniform(0.2, 1.5), rng.uniform(0, 0.3), rng.uniform(-0.6, 0.6, 3)
        means, sds = rng.uniform(-2, 2, 3), rng.uniform(0.5, 1.5, 3)

        def standard(z):
            parts = zip(bumps, means, sds, strict=True)
            return -a * np.sqrt(1 + z**2) - b * z**2 + sum(h * np.exp(-(((z - m) / s) ** 2) / 2) for h, m, s in parts)

    z = np.linspace(-150, 150, 200_001)
    log_z = math.log(np.exp(standard(z)).sum() * (z[1] - z[0]))
    return lambda w: standard((w - centre) / width) - log_z - math.log(width), centre, width


# -- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 1e-6])
@pytest.mark.parametrize("name", EVERY)
def test_a_prior_comes_back_from_its_penalty(name, noise):
    exact = penalty_of(stats.laplace(), stats.norm)  # the trapezoidal rule is no match for a kink
    rng = np.random.default_rng(1)
    r = divergence(EVERY[name], noise)
    if name == "laplace":
        r = lambda mu, nu: exact(mu, nu) + noise * rng.standard_normal(mu.shape)  # noqa: E731
    inside = 0.0

    def timed(mu, nu):  # a caller's own function may take as long as it likes
        nonlocal inside
        started = time.process_time()
        found = r(mu, nu)
        inside += time.process_time() - started
        return found

    began = time.process_time()
    table = prior_of(timed, stats.norm)
    assert time.process_time() - began - inside < 2
    assert true_error(table, EVERY[name]) <= table.error
    assert table.relative_error <= (0.02 if name == "laplace" else 1e-3)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_fixed_scale_is_undone_as_well(name):
    table = prior_of(divergence(SMOOTH[name]), stats.norm(scale=0.2))
    assert true_error(table, SMOOTH[name]) <= table.error
    assert table.relative_error <= 1e-3


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_a_kink_behind_fixed_noise_says_how_little_is_known(scale):
    table = prior_of(penalty_of(stats.laplace(), stats.norm), stats.norm(scale=scale))
    assert true_error(table, EVERY["laplace"]) <= table.error
    assert table.relative_error > 0.01


@pytest.mark.parametrize(
    "family",
    [
        stats.laplace, stats.uniform, stats.logistic, stats.expon, functools.partial(stats.t, 5),
        stats.laplace(scale=0.2), stats.uniform(scale=1.0), stats.logistic(scale=0.1), stats.t(5, scale=0.2),
    ],
    ids=["laplace", "uniform", "logistic", "expon", "t", "laplace-0.2", "uniform-1", "logistic-0.1", "t-0.2"],
)  # fmt: skip
def test_other_noise(family):
    p = stats.logistic(scale=0.5)
    table = prior_of(penalty_of(p, family), family)
    assert true_error(table, p.logpdf) <= table.error
    assert table.relative_error <= 1e-3
    assert table.variance == pytest.approx(p.var(), rel=1e-4)


def within_error(seeds, noise):
    missed, worst = 0, 0.0
    for seed in seeds:
        log_prob, centre, width = random_prior(np.random.default_rng(seed))
        table = prior_of(divergence(log_prob, noise, seed), stats.norm)
        missed += true_error(table, log_prob, centre, width) > table.error
        worst = max(worst, table.relative_error)
    return missed, worst


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_random_priors_are_within_the_reported_error(noise):
    missed, worst = within_error(range(5), noise)
    assert missed == 0
    assert worst <= 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_two_hundred_random_priors_are_within_the_reported_error(noise):
    missed, worst = within_error(range(200), noise)
    assert missed <= 2
    assert worst <= 1e-3


# -- verdicts ---------------------------------------------------------------------------------------------------------

S0 = 0.5


def a(sigma):
    return 0.5 * (sigma**2 / S0**2 + np.log(S0**2 / sigma**2) - 1)


def test_the_corrected_corollary_is_gaussian():
    table = prior_of(lambda mu, sigma: a(sigma) + mu**2 / (2 * S0**2), stats.norm)
    assert true_error(table, stats.norm(scale=S0).logpdf) <= table.error < 1e-8


def test_the_corollary_as_printed_has_no_prior():
    found = prior_of(lambda mu, sigma: 1 / (2 * S0**2) + a(sigma) * mu**2, stats.norm)
    assert found.reason == "it depends on the scale"


def test_weight_decay_alone_has_no_prior_if_the_scale_is_learnt():
    found = prior_of(lambda mu, sigma: 2 * mu**2, stats.norm)
    assert found.reason == "it depends on the scale"
    low, high = found.evidence["nu"], found.evidence["other nu"]
    by_hand = abs(math.log(high / low) - 2 * (high**2 - low**2))  # A = 2 (nu^2 - w^2) - log nu at each nu
    assert found.evidence["change"] == pytest.approx(by_hand, rel=0.03)  # to first order
    assert f"{found.evidence['change']:.3g} nats between nu={low:.3g} and nu={high:.3g}" in str(found)
    assert set(found.log_priors) >= {low, high}
    assert all(values.shape == found.grid.shape for values in found.log_priors.values())


@pytest.mark.parametrize("scale", [1e-3, 0.3, 5.0])
def test_weight_decay_with_a_fixed_scale_is_gaussian(scale):
    table = prior_of(penalties.L2(2.0), stats.norm(scale=scale))
    assert true_error(table, stats.norm(scale=0.5).logpdf) <= table.error < 1e-6


@pytest.mark.parametrize("scale", [1e-4, 0.01, 0.3, 3.0])
@pytest.mark.parametrize(("factor", "corner"), [(1.0, 0.0), (7.0, 3.1)])
def test_an_absolute_value_is_no_average_over_gaussian_noise(scale, factor, corner):
    found = prior_of(lambda mu, sigma: factor * np.abs(mu - corner), stats.norm(scale=scale))
    assert found.reason == "it is not smooth enough"
    assert found.evidence["mu"] == pytest.approx(corner, abs=scale)


def test_nor_if_the_scale_is_learnt():
    assert isinstance(prior_of(penalties.L1(1.0), stats.norm), NoPrior)


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_an_absolute_value_without_noise_is_laplace(noise):
    rng, p = np.random.default_rng(0), stats.laplace(3.1, 1 / 7)
    table = prior_of(lambda mu, sigma: 7 * np.abs(mu - 3.1) + noise * rng.standard_normal(mu.shape), Dirac)
    assert true_error(table, p.logpdf, 3.1, 0.2) <= table.error < 3e-3
    assert table.variance == pytest.approx(p.var(), rel=1e-4)


@pytest.mark.parametrize("name", SMOOTH)
def test_without_noise_any_density_comes_back(name):
    table = prior_of(lambda mu, sigma: 5 - SMOOTH[name](mu), Dirac)
    assert true_error(table, SMOOTH[name]) <= table.error < 1e-5


@pytest.mark.parametrize("scale", [0.8, 0.3])
def test_waves_are_undone_exactly(scale):
    """-log p = w^2/2 - cos(2 w)/2; behind the noise the wave has only exp(-2 nu^2) of its height."""

    def r(mu, nu):
        return mu**2 / 2 - 0.5 * np.exp(-2 * nu**2) * np.cos(2 * mu)

    w = np.linspace(-12, 12, 100_001)
    log_z = math.log(np.exp(-(w**2) / 2 + 0.5 * np.cos(2 * w)).sum() * (w[1] - w[0]))
    table = prior_of(r, stats.norm(scale=scale))
    assert true_error(table, lambda w: -(w**2) / 2 + 0.5 * np.cos(2 * w) - log_z) <= table.error < 1e-4


@pytest.mark.parametrize(
    "r",
    [
        lambda m, s: 0 * m,
        lambda m, s: np.log1p(m**2) / 4,
        lambda m, s: -(m**2),
        lambda m, s: m,
        lambda m, s: np.exp(-m),
    ],
    ids=["constant", "logarithm", "negative", "linear", "one-sided"],
)
@pytest.mark.parametrize("family", [Dirac, stats.norm(scale=0.3), stats.norm], ids=["none", "fixed", "learnt"])
def test_what_does_not_rise_does_not_integrate(r, family):
    found = prior_of(r, family)
    assert found.reason == "it is not integrable"
    assert found.evidence["rise"] <= 1


@pytest.mark.parametrize(
    ("r", "family"),
    [
        (lambda m, s: 60 * m**2 / (1 + m**2), Dirac),
        (lambda m, s: 60 * m**2 / (1 + m**2), stats.norm(scale=0.01)),
        (lambda m, s: 100 * (1 - np.exp(-(m**2))), stats.norm(scale=0.1)),
        (lambda m, s: 100 * (1 - np.cos(m)), Dirac),
        (lambda m, s: 900 * m**2 / (1 + m**2) - np.log(s), stats.norm),
    ],
    ids=["geman", "geman, fixed", "welsch, fixed", "wave", "learnt"],
)
def test_nor_does_what_saturates_however_high(r, family):
    assert prior_of(r, family).reason == "it is not integrable"


@pytest.mark.parametrize("r", [np.cosh, lambda m: np.exp(30 * np.abs(m))])
def test_what_overflows_far_out_rises_fast_enough(r):
    assert isinstance(prior_of(lambda m, s: r(m), Dirac), priors.Tabulated)


def test_a_log_density_that_does_not_fall_is_not_integrable():
    x = np.linspace(-8, 8, 201)
    flat = Inverse(x**2 / 100, np.zeros(201), np.zeros((1, 201)), np.ones((1, 201), dtype=bool))
    assert _answer(flat, x, [0.3], np.ones((1, 201), dtype=bool)).reason == "it is not integrable"


def test_a_guess_that_is_no_number_far_out_leaves_no_estimate():
    x = np.linspace(-8, 8, 201)
    points = Points(10 * np.sinh(x / 10), x / 10, 0.0, 10.0)

    def guess(w):
        return np.where(np.abs(w) > 9, np.nan, -(w**2) / 2)

    found = invert(points, penalties.noise.noise_of(stats.norm(scale=1.0)), [1.0], guess(x)[None], guess, 1e-12)
    assert np.isinf(found.errors).all()


@pytest.mark.parametrize("at", [0.03, 0.2, 0.7, 2.0])
def test_a_bump_at_a_scale_within_the_tested_ones_has_no_prior(at):
    def r(mu, sigma):
        return (mu**2 + sigma**2) / 2 - np.log(sigma) + 0.5 * np.exp(-((np.log(sigma / at) / 0.3) ** 2))

    found = prior_of(r, stats.norm)
    assert found.reason == "it depends on the scale"
    assert min(abs(math.log(found.evidence[k] / at)) for k in ("nu", "other nu")) < 0.7


def test_a_bump_in_mu_that_comes_with_a_large_scale_has_no_prior():
    def r(mu, sigma):
        return (mu**2 + sigma**2) / 2 - np.log(sigma) + np.where(sigma > 1.5, 5 * (sigma - 1.5) * np.exp(-(mu**2)), 0)

    assert prior_of(r, stats.norm).reason == "it depends on the scale"


def test_without_noise_the_penalty_is_not_asked_over_and_over():
    """Once to look for kinks and once for the table."""
    asked = []

    def r(mu, sigma):
        asked.append(mu)
        return mu**2 / 2

    table = prior_of(r, Dirac)
    assert sum(np.array_equal(mu, table.points) for mu in asked) <= 2


def test_a_fixed_scale_is_the_only_one_asked_for():
    table = prior_of(lambda mu, sigma: 2 * mu**2 - np.log(1 - sigma), stats.norm(scale=0.3))
    assert table.variance == pytest.approx(0.25)


def test_a_heavy_tail_that_integrates_is_a_prior():
    table = prior_of(lambda mu, sigma: np.log1p(mu**2), Dirac)
    assert true_error(table, stats.cauchy.logpdf) <= table.error < 1e-5
    assert table.variance == math.inf


@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.floats(0.2, 5), st.floats(-2, 2), st.floats(0.1, 0.9), st.floats(0.5, 2))
def test_random_penalties_get_their_prior_until_they_are_bent(width, centre, share, other):
    """A bump that comes with the scale makes a prior impossible."""

    def log_prob(w):
        one, two = (w - centre) / width, (w + centre) / (width * other)
        log = np.logaddexp(math.log(share) - one**2 / 2, math.log((1 - share) / other) - two**2 / 2)
        return log - math.log(width * math.sqrt(2 * math.pi))

    r = divergence(log_prob)
    table = prior_of(r, stats.norm)
    assert true_error(table, log_prob, 0.0, width) <= table.error
    assert table.relative_error <= 1e-2

    def bent(mu, nu):
        return r(mu, nu) + 0.1 * nu / (nu + width) * np.exp(-(((mu - centre) / width) ** 2))

    assert prior_of(bent, stats.norm).reason == "it depends on the scale"


def test_noise_far_wider_than_the_prior_hides_it():
    found = prior_of(penalty_of(stats.t(5, scale=0.05), stats.norm), stats.norm(scale=1.0))
    assert found.reason == "it cannot be told from this noise"


# -- bad input --------------------------------------------------------------------------------------------------------


def scalar_only(mu, sigma):
    return mu**2 if mu > 0 else -mu


@pytest.mark.parametrize(
    ("r", "message"),
    [
        (lambda mu, sigma: mu + 1j, "complex"),
        (lambda mu, sigma: np.log(mu), "r\\(-1, 0.3\\) is nan"),
        (lambda mu, sigma: np.where(np.abs(mu - 0.37) < 0.05, np.nan, mu**2), "is nan"),
        (lambda mu, sigma: math.sqrt(mu), "np.vectorize"),
        (scalar_only, "np.vectorize"),
        (lambda mu, sigma: 3.0, "one value for each mean"),
        (lambda mu, sigma: np.sum(mu**2), "one value for each mean"),
        (lambda mu: mu**2, "r does not take arrays"),
        (penalties.L1, r"write L1\(2.0\)"),
        (penalties.GroupLasso(), "couples weights, such as GroupLasso"),
        ("l2", "a function r"),
    ],
)
def test_a_penalty_that_cannot_be_one_is_refused(r, message):
    with pytest.raises(InputError, match=message):
        prior_of(r, stats.norm(scale=0.3))


@pytest.mark.parametrize("log_prob", [lambda m: np.where(np.abs(m) < 2, 0.0, -np.inf), lambda m: np.log(4 - m**2)])
def test_a_hard_constraint_is_refused(log_prob):
    with pytest.raises(InputError, match=r"hard constraint|is nan"):
        prior_of(lambda mu, sigma: -log_prob(mu), Dirac)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (stats.cauchy, "no mean"),
        (stats.cauchy(scale=0.3), "no mean"),
        (stats.t(1), "no mean"),
        (functools.partial(stats.t, 0.5), "no mean"),
        (stats.t, "functools.partial\\(stats.t, 5\\)"),
        (stats.norm(scale=-0.3), "scale is positive"),
        (stats.norm(0, 0.0), "scale is positive"),
        (stats.norm(scale=[0.3, 0.4]), "one number"),
        (stats.t([3, 4]), "one number"),
        (functools.partial(stats.norm, scale=0.3), r"write stats.norm\(scale=0.3\)"),
        (functools.partial(stats.t, 5, 0.0), r"shapes of stats.t only"),
        (stats.poisson(3), "discrete"),
        (stats.poisson, "discrete"),
        ("gaussian", "no family of noise"),
        (0.3, "no family of noise"),
    ],
)
def test_noise_that_cannot_be_is_refused(family, message):
    with pytest.raises(InputError, match=message):
        prior_of(lambda mu, sigma: mu**2, family)


def test_a_frozen_scale_may_be_given_by_place_or_name():
    for family in (stats.norm(0, 0.3), stats.norm(scale=0.3), stats.norm(5.0, scale=0.3)):
        assert penalties.noise.noise_of(family).fixed == 0.3
    assert penalties.noise.noise_of(stats.t(3, 0, 0.3)).fixed == 0.3
    assert penalties.noise.noise_of(stats.t(df=3)).fixed == 1.0


def test_shapes_are_taken_by_place_or_name():
    for family in (functools.partial(stats.beta, b=2.0, a=5.0), functools.partial(stats.beta, 5.0, b=2.0)):
        assert penalties.noise.noise_of(family).law.mean() == pytest.approx(5 / 7)
    assert penalties.noise.noise_of(stats.beta(b=2.0, a=5.0)).law.mean() == pytest.approx(5 / 7)


def test_the_answer_is_a_prior():
    assert isinstance(prior_of(penalties.L2(2.0), Dirac), priors.Tabulated)
