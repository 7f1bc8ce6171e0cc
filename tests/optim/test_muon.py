"""Muon: what its polynomial does to singular values, how far a step goes, and who moves what."""

import math

import pytest
import torch
from torch import nn

import credent as cr
from credent.data import batches
from credent.errors import InputError
from credent.optim.muon import Muon, orthogonal


def naive(matrix):
    """The same quintic on the matrix itself instead of on its Gram matrix, in float64."""
    x = matrix.double()
    x = x / (x @ x.T).norm().sqrt()
    for _ in range(4):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


@pytest.mark.parametrize("shape", [(6, 25), (16, 150), (120, 400), (84, 120), (120, 84), (400, 3), (5, 5), (1, 7)])
def test_products_of_the_smaller_side_give_what_products_of_the_matrix_give(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape) * 1e-3
    torch.testing.assert_close(orthogonal(matrix).double(), naive(matrix), rtol=1e-3, atol=1e-4)


def test_directions_stay_and_their_lengths_become_alike():
    """Oracle: the polar factor of an SVD, in float64; the gradient's own singular values span a factor of fifty."""
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(40, 90, dtype=torch.float64), full_matrices=False)
    # one direction of length 1 and 39 shorter ones, so that |U U^T|_F is hardly more than the largest
    lengths = torch.cat([torch.ones(1), torch.linspace(0.02, 0.3, 39)]).double()
    found = orthogonal(u @ lengths.diag() @ v)
    coordinates = u.T @ found @ v.T
    assert (coordinates - coordinates.diagonal().diag()).abs().max() < 1e-10
    assert coordinates.diagonal().min() > 0.6
    assert coordinates.diagonal().max() < 1.3


def test_a_size_changes_nothing_and_nothing_stays_nothing():
    torch.manual_seed(0)
    matrix = torch.randn(8, 20)
    torch.testing.assert_close(orthogonal(matrix * 1e-6), orthogonal(matrix), rtol=1e-4, atol=1e-5)
    assert torch.equal(orthogonal(torch.zeros(8, 20)), torch.zeros(8, 20))


def test_momentum_looks_ahead_and_convolutions_are_matrices_of_their_outputs():
    """Oracle: the docstring's three lines, written out, over five steps."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(6, 3, 5, 5))
    by_hand, held = weight.detach().clone().double().reshape(6, 75), torch.zeros(6, 75).double()
    optimizer = Muon([weight], lr=0.01, momentum=0.9)
    for _ in range(5):
        weight.grad = torch.randn_like(weight)
        gradient = weight.grad.double().reshape(6, 75)
        held = 0.9 * held + 0.1 * gradient
        by_hand -= 0.2 * math.sqrt(75) * 0.01 * naive(0.9 * held + 0.1 * gradient)
        optimizer.step()
    torch.testing.assert_close(weight.detach().double().reshape(6, 75), by_hand, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(120, 400), (400, 120), (64, 64)])
def test_entries_of_a_step_are_as_large_as_adams(shape):
    """Root mean square 0.2 lr for any shape, up to what the quintic leaves of singular values; 1 / sqrt(rows) would be
    ten times as much."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(shape))
    weight.grad = torch.randn(shape)
    Muon([weight], lr=1.0).step()
    assert 0.16 < weight.square().mean().sqrt() < 0.24


class Words(nn.Module):
    """An embedding, a norm and a head."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.words(x).mean(1)))


def test_matrices_are_muons_and_everything_else_is_adams():
    bnn = cr.VI(Words(), cr.likelihoods.Categorical(), num_data=64)
    muon, adam = Muon.beside_adam(bnn, lr=0.02, ratio=0.5).optimizers
    net = bnn.net
    assert [id(p) for group in muon.param_groups for p in group["params"]] == [id(net.head.weight)]
    rates = {id(p): group["lr"] for group in adam.param_groups for p in group["params"]}
    assert rates.keys() == {id(p) for p in bnn.parameters() if p is not net.head.weight}
    assert rates[id(net.words.weight)] == 0.02
    assert all(rates[id(p)] == 0.01 for p in bnn.posterior.parameters())


@pytest.mark.parametrize("kind", [cr.MAP, cr.VI])
def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(tmp_path, kind):
    data = cr.data.load("digits")

    def run(place, epochs, resume=False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.ReLU(), nn.Linear(144, 10))
        bnn = kind(net, cr.likelihoods.Categorical(), num_data=len(data.train), beta=0.01)
        loader = batches(data.train, 128, shuffle=True, seed=0)
        optimizer = Muon.beside_adam(bnn, lr=4e-3)
        average = cr.optim.Average(bnn)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 4)
        options = {"scheduler": schedule, "average": average, "run_dir": place, "resume": resume, "progress": False}
        cr.fit(bnn, optimizer, loader, epochs=epochs, **options)
        return bnn.state_dict()

    whole = run(tmp_path / "whole", 4)
    run(tmp_path / "parts", 2)
    parts = run(tmp_path / "parts", 4, resume=True)
    tensors = [name for name, value in whole.items() if isinstance(value, torch.Tensor)]
    assert tensors
    assert all(torch.equal(whole[name], parts[name]) for name in tensors)


def test_it_learns_what_a_gradient_hardly_shows():
    """Least squares with inputs of unequal sizes: in as many steps, each at its best rate, Muon is ahead of SGD."""
    torch.manual_seed(0)
    sizes = torch.logspace(0, -1.5, 20)
    x, truth = torch.randn(500, 20) * sizes, torch.randn(20, 10)

    def loss(make):
        net = nn.Linear(20, 10, bias=False)
        net.weight.data.zero_()
        optimizer = make(net.parameters())
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 200)
        for _ in range(200):
            optimizer.zero_grad()
            (net(x) - x @ truth).square().mean().backward()
            optimizer.step()
            schedule.step()
        return (net.weight.detach().T - truth).square().mean().item()

    sgd = min(loss(lambda p, lr=lr: torch.optim.SGD(p, lr=lr, momentum=0.95)) for lr in (0.03, 0.1, 0.3, 1.0))
    muon = min(loss(lambda p, lr=lr: Muon(p, lr=lr)) for lr in (0.01, 0.03, 0.1, 0.3))
    assert muon < 0.1 * sgd


def test_vectors_and_impossible_rates_are_refused():
    with pytest.raises(InputError, match=r"shape \(3,\).*beside_adam"):
        Muon(nn.Linear(4, 3).parameters())
    bnn = cr.MAP(nn.Linear(4, 3), cr.likelihoods.Categorical(), num_data=8)
    with pytest.raises(InputError, match=r"lr=-1\.0 is no positive rate"):
        Muon.beside_adam(bnn, lr=-1.0)
    with pytest.raises(InputError, match="takes the objective, such as VI or MAP, and here is a Linear"):
        Muon.beside_adam(bnn.net)
    for options in ({"lr": 0.0}, {"lr": -1.0}, {"momentum": 1.0}):
        with pytest.raises(InputError, match="positive rate"):
            Muon([nn.Parameter(torch.ones(2, 2))], **options)
