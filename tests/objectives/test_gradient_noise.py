"""Moments of the gradient against closed forms, a naive loop, and between kinds of noise on a batch of 128."""

import math

import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import InputError
from credent.noise import Noise
from credent.objectives import gradient_noise

MU, SIGMA = 0.5, 0.8
# by mu and by sigma, for q = N(.5, .8^2), p = N(0, 1) and one draw; the score's by quadrature
VARIANCES = {"path": (0.2025, 0.655), "total": (0.64, 1.53), "score": (0.8613, 4.6667)}


def weights(estimator, count=1):
    """`count` weights with the same q, whose loss is the KL alone: the input is zero."""
    net = nn.Linear(count, 1, bias=False).double()
    nn.init.constant_(net.weight, MU)
    family = cr.families.Gaussian(initial_scale=SIGMA * math.sqrt(count))  # in units of 1/sqrt(fan_in)
    prior = cr.priors.Gaussian(scale=1.0)
    bnn = cr.VI(net, cr.likelihoods.Gaussian(1.0), prior, num_data=1, family=family, estimator=estimator)
    return bnn, (torch.zeros(1, count, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))


@pytest.mark.parametrize("estimator", ["path", "total"])
def test_variances_of_the_estimators_are_the_closed_forms(estimator):
    """1,000 independent weights at 100 draws: the variances' own error is below one per cent."""
    found = gradient_noise(*weights(estimator, 1000), draws=100)
    for name, mean, variance, slope in zip(
        ("means", "scales"), (0.5, -0.45), VARIANCES[estimator], (1.0, SIGMA), strict=True
    ):
        mine = found[name]  # the scales' parameter is log sigma
        assert mine.total / 1000 / slope**2 == pytest.approx(variance, rel=0.03)
        error = mine.mean_error.square().sum().sqrt().item() / 1000
        assert abs(mine.mean.mean().item() - mean * slope) < 3 * error
        assert error == pytest.approx(slope * math.sqrt(variance / 1e5), rel=0.03)


def test_the_scores_variances_are_those_of_quadrature():
    """Heavy tails: the draws know them to a quarter, by sigma to less. The exact sum is in test_estimators."""
    found = gradient_noise(*weights("score"), draws=1000)
    for name, mean, variance, slope in zip(
        ("means", "scales"), (0.5, -0.45), VARIANCES["score"], (1.0, SIGMA), strict=True
    ):
        mine = found[name]
        assert abs(mine.mean.item() - mean * slope) < 3 * mine.mean_error.item()
        assert abs(mine.variance.item() - variance * slope**2) < 4 * mine.variance_error.item()
    assert found["means"].variance_error.item() < 0.25 * VARIANCES["score"][0]


def classifier(norm=False):
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(4)] if norm else []
    net = nn.Sequential(nn.Linear(3, 4), *middle, nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 3))
    return cr.VI(net.double(), cr.likelihoods.Categorical(), num_data=20, samples=2), (
        torch.randn(20, 3, dtype=torch.float64),
        torch.arange(20) % 3,
    )


def test_moments_are_those_of_all_gradients_held():
    bnn, batch = classifier()
    found = gradient_noise(bnn, batch, draws=7, seed=3)
    seeds, rows = torch.Generator().manual_seed(3), []
    for _ in range(7):
        for noise in [m for m in bnn.modules() if isinstance(m, Noise)]:
            noise.seed(int(torch.randint(2**62, (), generator=seeds)))
        torch.manual_seed(int(torch.randint(2**62, (), generator=seeds)))
        bnn.zero_grad()
        bnn(*batch).backward()
        rows.append(torch.cat([p.grad.flatten() for g in bnn.param_groups(lr=1.0) for p in g["params"]]))
    rows = torch.stack(rows)
    torch.testing.assert_close(torch.cat([g.mean for g in found.values()]), rows.mean(0))
    torch.testing.assert_close(torch.cat([g.variance for g in found.values()]), rows.var(0))
    fourth, second = (rows - rows.mean(0)).pow(4).mean(0), rows.var(0, correction=0)
    error = ((fourth - second**2) / 7).sqrt()
    torch.testing.assert_close(torch.cat([g.variance_error for g in found.values()]), error, rtol=1e-5, atol=1e-9)
    assert list(found) == ["means", "scales"]
    assert found["means"].total == pytest.approx(rows.var(0)[: len(found["means"].mean)].sum().item())


def test_measuring_leaves_no_trace():
    bnn, batch = classifier(norm=True)
    bnn(*batch).backward()
    grads, last = [p.grad.clone() for p in bnn.parameters()], bnn.last
    seen, here = bnn.get_extra_state()["batches"], torch.get_rng_state()
    before = {k: v.clone() for k, v in bnn.state_dict().items() if isinstance(v, torch.Tensor)}
    stream = bnn.q.noise.get_extra_state()
    gradient_noise(bnn, batch, draws=3)
    after = bnn.state_dict()
    assert all(torch.equal(v, after[k]) for k, v in before.items())
    assert all(torch.equal(g, p.grad) for g, p in zip(grads, bnn.parameters(), strict=True))
    assert torch.equal(here, torch.get_rng_state())
    now = bnn.q.noise.get_extra_state()
    assert torch.equal(stream["state"], now["state"])
    assert stream["words"] == now["words"]
    assert (bnn.get_extra_state()["batches"], bnn.last) == (seen, last)
    with pytest.raises(InputError, match="two draws"):
        gradient_noise(bnn, batch, draws=1)


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3))


def conv():
    """Each position speaks for itself, so that local noise has the expectation of weight noise here, too."""
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 1, 1))


@pytest.mark.parametrize("build", [linear, conv])
def test_noise_on_outputs_has_the_same_mean_gradient_and_less_variance(build):
    draws, x = 100, torch.randn(128, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    y = torch.arange(128) % 3 if build is linear else (x[:, :, 1:5, 1:5] > 0).float()
    likelihood = cr.likelihoods.Categorical() if build is linear else cr.likelihoods.Bernoulli()
    found = {}
    for kind in ("weight", "local", "flipout"):
        torch.manual_seed(0)
        family = cr.families.Gaussian(initial_scale=0.5)
        bnn = cr.VI(build(), likelihood, num_data=128, beta=0.0, family=family, noise=kind)
        found[kind] = gradient_noise(bnn, (x, y), draws, seed=len(found))
    for kind in ("local", "flipout"):
        for name, mine in found[kind].items():
            plain = found["weight"][name]
            factor = plain.total / mine.total
            # flipout flips signs, and the scales' gradient sees the size of the noise, which the batch still shares
            least = 1.15 if (kind, name) == ("flipout", "scales") else 3
            assert factor > least, f"{kind}, {name}: the variance is smaller by {factor:.1f} only"
            z = (mine.mean - plain.mean) / torch.hypot(mine.mean_error, plain.mean_error)
            assert (z.abs() > 3).double().mean() < 0.02
            assert z.abs().max() < 5
