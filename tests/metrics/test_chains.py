"""R-hat and effective sample size against closed forms, hand-computed numbers and arviz."""

import math

import numpy as np
import pytest
import torch
from scipy import signal

from credent.errors import InputError
from credent.metrics import ess, rhat


def autoregressive(phi, chains, draws, seed=0, quantities=()):
    """Stationary x_t = phi x_{t-1} + e_t of unit variance."""
    noise = np.random.default_rng(seed).standard_normal((chains, draws, *quantities))
    noise[:, 1:] *= math.sqrt(1 - phi**2)
    return signal.lfilter([1.0], [1.0, -phi], noise, axis=1)


@pytest.mark.parametrize("phi", [0.9, 0.5, 0.0, -0.3])
@pytest.mark.parametrize("rank", [True, False])
def test_ess_of_an_autoregression(phi, rank):
    """n (1 - phi) / (1 + phi), from fifty independent sets of four chains; a monotone score changes it by little."""
    draws = autoregressive(phi, 4, 4000, quantities=(50,))
    found = ess(torch.from_numpy(draws), rank)
    exact = 16_000 * (1 - phi) / (1 + phi)
    assert found.shape == (50,)
    error = float(found.std()) / 50**0.5
    bias = 0.04 if phi >= 0 else 0.1  # of Geyer's truncation, and at phi < 0 of its pairs
    assert abs(float(found.mean()) - exact) < 3 * error + bias * exact
    assert error < 0.02 * exact


def test_the_mean_s_error_is_what_ess_says():
    """Var(mean) = 1 / ESS for unit variance: measured over four hundred sets."""
    draws = autoregressive(0.8, 4, 500, quantities=(400,))
    measured = draws.mean((0, 1)).var()
    assert 1 / measured == pytest.approx(float(ess(draws, rank=False).mean()), rel=4 * math.sqrt(2 / 400))


def test_plain_r_hat_by_hand():
    """Halves (0, 1, 0, 1) and (4, 5, 4, 5): W = 1/3, means 1/2 and 9/2, B/n = 8, V = 3/4 W + 8."""
    draws = torch.tensor([[0.0, 1, 0, 1, 4, 5, 4, 5]])
    assert float(rhat(draws, rank=False)) == pytest.approx(math.sqrt((0.25 + 8) / (1 / 3)))


def test_chains_that_agree():
    draws = autoregressive(0.5, 4, 1000, quantities=(100,))
    assert float(rhat(draws).max()) < 1.05
    assert float((rhat(draws) - 1).mean()) < 0.005


def test_chains_that_do_not_agree():
    """In mean, in drift, or in spread alone, which only the folded ranks see; heavy tails are no disguise."""
    draws = autoregressive(0.0, 4, 500)
    shifted, drifting, wide = draws.copy(), draws + np.linspace(0, 3, 500), draws.copy()
    shifted[0] += 2
    wide[0] *= 5
    for bad in (shifted, drifting):
        assert float(rhat(bad)) > 1.2
        assert float(rhat(bad, rank=False)) > 1.2
        assert float(ess(bad)) < 100
    assert float(rhat(wide, rank=False)) < 1.02
    assert float(rhat(wide)) > 1.1
    cauchy = np.random.default_rng(0).standard_cauchy((4, 500))
    cauchy[0] += 3
    assert float(rhat(cauchy)) > 1.1


def test_ranks_do_not_see_a_monotone_change():
    draws = autoregressive(0.6, 3, 101)
    assert float(ess(draws)) == pytest.approx(float(ess(np.exp(3 * draws))), rel=1e-12)


def test_each_quantity_is_by_itself():
    draws = autoregressive(0.7, 3, 60, quantities=(2, 5))
    for function in (rhat, ess):
        together = function(draws)
        assert together.shape == (2, 5)
        assert float(together[1, 3]) == pytest.approx(float(function(draws[:, :, 1, 3])), rel=1e-12)


def test_what_never_changes_has_neither():
    draws = np.stack([np.ones((2, 20)), autoregressive(0.0, 2, 20)], axis=-1)
    assert torch.equal(rhat(draws).isnan(), torch.tensor([True, False]))
    assert torch.equal(ess(draws).isnan(), torch.tensor([True, False]))


def test_what_cannot_be_chains():
    with pytest.raises(InputError, match=r"\(chains, draws, \.\.\.\).*draws\[None\]"):
        rhat(torch.zeros(100))
    with pytest.raises(InputError, match="at least 8 draws"):
        ess(torch.zeros(4, 7))
    with pytest.raises(InputError, match="diverged"):
        rhat(torch.full((2, 10), torch.nan))


@pytest.mark.parametrize(
    ("phi", "expected"),
    [
        (0.9, (1.2574493895813088, 13.146515511499626, 1.2678692161652652, 12.749285287922746)),
        (-0.7, (1.0220292306182217, 571.2506980107854, 0.9870278786475114, 571.2506980107854)),
    ],
)
def test_the_numbers_that_arviz_gave(phi, expected):
    """arviz 0.23.4: rank R-hat, bulk ESS, split R-hat, ESS of the mean."""
    draws = autoregressive(phi, 4, 60, seed=3)
    found = [rhat(draws), ess(draws), rhat(draws, rank=False), ess(draws, rank=False)]
    assert [float(each) for each in found] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [(4, 100), (3, 51), (2, 9)])
@pytest.mark.parametrize("phi", [0.0, 0.95, -0.7])
def test_the_numbers_of_arviz(size, phi):
    arviz = pytest.importorskip("arviz")
    draws = autoregressive(phi, *size, seed=3)
    draws[0] += 0.3
    for rank, methods in ((True, ("rank", "bulk")), (False, ("split", "mean"))):
        assert float(rhat(draws, rank)) == pytest.approx(float(arviz.rhat(draws, method=methods[0])), rel=1e-9)
        assert float(ess(draws, rank)) == pytest.approx(float(arviz.ess(draws, method=methods[1])), rel=1e-9)
