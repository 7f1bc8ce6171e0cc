"""The robust region against the eigenvalues of the iteration itself, and the curvature against the Hessian's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import credent as cr
from credent.errors import InputError
from credent.optim.robust import curvature, rates, spectral_radius


@given(st.floats(0.0, 0.99), st.floats(0.01, 5.0), st.floats(0.1, 10.0))
def test_the_radius_is_that_of_the_iteration(momentum, rate, h):
    companion = np.array([[1 + momentum - rate * h, -momentum], [1.0, 0.0]])
    assert spectral_radius(momentum, rate, h) == pytest.approx(max(abs(np.linalg.eigvals(companion))), abs=1e-6)


@given(st.floats(0.01, 0.95), st.floats(0.1, 10.0), st.floats(0.0, 1.0))
def test_inside_the_region_all_contract_at_root_mu(momentum, h, share):
    low, high = rates(momentum, h)
    root = momentum**0.5
    assert spectral_radius(momentum, low + share * (high - low), h) == pytest.approx(root, abs=1e-6)
    assert spectral_radius(momentum, 0.5 * low, h) > root + 1e-6
    assert spectral_radius(momentum, 1.05 * high, h) > root + 1e-6


def test_curvature_of_a_linear_model_is_known():
    torch.manual_seed(0)
    x = torch.randn(50, 3, dtype=torch.float64) * torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    net = nn.Linear(3, 1, bias=False).double()
    objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=1.0), cr.priors.Gaussian(1.0), num_data=50).double()
    hessian = x.T @ x / 50
    largest = torch.linalg.eigvalsh(hessian)[-1].item()
    assert curvature(objective, (x, x[:, :1]), steps=60) == pytest.approx(largest, rel=1e-6)


def test_the_region_of_an_objective_is_that_of_its_largest_curvature():
    torch.manual_seed(0)
    x = torch.randn(50, 2, dtype=torch.float64) * torch.tensor([1.0, 4.0], dtype=torch.float64)
    net = nn.Linear(2, 1, bias=False).double()
    objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=1.0), num_data=50)
    largest = torch.linalg.eigvalsh(x.T @ x / 50)[-1].item()
    found = cr.optim.robust.region_of(objective, (x, x[:, :1]), steps=60)
    assert found.curvature == pytest.approx(largest, rel=1e-6)
    assert (len(found.momenta), found.momenta[0], found.momenta[-1]) == (100, 0.0, 0.99)
    for momentum, low, high in zip(found.momenta, found.lowest, found.highest, strict=True):
        assert low * largest == pytest.approx((1 - momentum**0.5) ** 2, rel=1e-6)
        assert high * largest == pytest.approx((1 + momentum**0.5) ** 2, rel=1e-6)
    assert cr.optim.robust.region(largest, (0.25,)).highest == pytest.approx((2.25 / largest,))


def test_looking_changes_nothing():
    torch.manual_seed(0)
    x = torch.randn(16, 3)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    bnn = cr.VI(net, cr.likelihoods.Gaussian(scale=1.0), num_data=16)
    before = {k: v.clone() for k, v in bnn.state_dict().items() if isinstance(v, torch.Tensor)}
    curvature(bnn, (x, x[:, :1]), steps=2)
    after = bnn.state_dict()
    assert all(torch.equal(v, after[k]) for k, v in before.items())
    assert all(p.grad is None for p in bnn.parameters())


def test_a_batch_that_curves_the_wrong_way_has_no_region():

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor([[0.1]]))

        def forward(self, x):
            return self.w**2 * x

    bnn = cr.MAP(Square(), cr.likelihoods.Gaussian(1.0), num_data=1)
    batch = torch.ones(1, 1), torch.full((1, 1), 5.0)
    assert curvature(bnn, batch) == pytest.approx(6 * 0.1**2 - 2 * 5, rel=1e-5)  # of (w^2 - 5)^2 / 2
    with pytest.raises(InputError, match=r"is -9\.94 on this batch.*Train for some steps"):
        cr.optim.robust.region_of(bnn, batch)


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="momentum in"):
        rates(1.0, 1.0)
