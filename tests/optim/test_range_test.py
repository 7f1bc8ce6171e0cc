"""The range test against the stability limit of a quadratic, on digits, and that it leaves no trace."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import credent as cr
from credent.errors import InputError
from credent.optim import RangeTest, Together, YellowFin, range_test
from credent.optim.range_test import _read


def quadratic(h, seed=0):
    """Mean squared error with curvature h in one weight, from far away, in noisy batches."""
    g = torch.Generator().manual_seed(seed)
    x = torch.full((40, 1), h**0.5, dtype=torch.float64)
    y = 100 * x + torch.randn(40, 1, dtype=torch.float64, generator=g)
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    objective = cr.MAP(net, cr.likelihoods.Gaussian(1.0), num_data=40, beta=0.0)
    return objective, [(x[i : i + 4], y[i : i + 4]) for i in range(0, 40, 4)], x, y


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("h", [0.25, 4.0, 100.0])
def test_the_limit_of_a_quadratic_is_its_stability_limit(h, momentum):
    objective, loader, x, y = quadratic(h)
    optimizer = torch.optim.SGD(objective.param_groups(lr=1.0), momentum=momentum)
    found = range_test(objective, optimizer, loader, low=1e-4 / h, high=100 / h, steps=120)
    stable = 2 * (1 + momentum) / h
    assert stable / 4 < found.limit < 2 * stable
    assert stable / 1000 < found.suggestion < stable / 4
    before = objective(x, y).item()
    optimizer = torch.optim.SGD(objective.param_groups(lr=found.suggestion), momentum=momentum)
    for _ in range(300):
        optimizer.zero_grad()
        objective(x, y).backward()
        optimizer.step()
    assert objective(x, y).item() < 1e-2 * before


def test_losses_belong_to_the_rates_that_led_to_them():
    """One step after another, by hand: the loss is that of the next batch."""
    objective, loader, _, _ = quadratic(4.0)
    found = range_test(
        objective, torch.optim.SGD(objective.param_groups(lr=1.0)), loader, low=1e-3, high=1e-1, steps=12
    )
    assert found.rates == pytest.approx(np.geomspace(1e-3, 1e-1, 12))
    w = 0.0
    for t, rate in enumerate(found.rates):
        x, y = loader[t % 10]
        w -= rate * (-(y - w * x) * x).mean().item()
        x, y = loader[(t + 1) % 10]
        expected = 0.5 * (y - w * x).square().mean().item() + 0.5 * np.log(2 * np.pi)
        assert found.losses[t] == pytest.approx(expected, rel=1e-10)


def test_what_is_read_from_a_curve_by_hand():
    """Flat at 3, down to 1 around the rate 1e-3, up again from 1e-1."""
    rates = np.geomspace(1e-6, 1.0, 121)
    at = np.log10(rates)
    losses = 2 - np.tanh(2 * (at + 3)) + np.where(at > -1, 5 * (at + 1), 0.0)
    found = _read("means", rates, losses, start=3.0)
    assert found.suggestion == pytest.approx(1e-3, rel=0.25)
    assert found.limit == pytest.approx(1e-1, rel=0.25)
    falling = _read("means", rates[:90], losses[:90], start=3.0)
    assert falling.limit is None
    flat = 3 + 0.1 * np.random.default_rng(0).normal(size=121)
    assert _read("means", rates, flat, start=3.0).suggestion is None
    broken = np.append(losses[:100], np.nan)
    assert _read("means", rates[:101], broken, start=3.0).limit < 1e-1 * 1.3


class Reshuffled(nn.Module):
    """A network that draws from every global generator, has BatchNorm and dropout."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x) + 1e-3 * (random.random() + np.random.rand())  # noqa: NPY002


def bytes_of(*states):
    found = {}

    def walk(name, value):
        if isinstance(value, torch.Tensor):
            found[name] = value.contiguous().numpy().tobytes()
        elif isinstance(value, dict):
            for k, v in value.items():
                walk(f"{name}.{k}", v)
        elif isinstance(value, list | tuple):
            for i, v in enumerate(value):
                walk(f"{name}.{i}", v)
        else:
            found[name] = repr(value)

    for number, state in enumerate(states):
        walk(str(number), state)
    return found


@pytest.mark.parametrize("group", ["means", "scales", "rest"])
@pytest.mark.parametrize("kind", ["adam", "together", "fails"])
def test_everything_is_as_it_was(group, kind):
    torch.manual_seed(0)
    x, y = torch.randn(30, 5), torch.randint(3, (30,))
    bnn = cr.VI(Reshuffled(), cr.likelihoods.Categorical(), num_data=30, random="body.[04].*", samples=2)
    groups = bnn.param_groups(lr=1e-2)
    optimizer = torch.optim.Adam(groups)
    if kind == "together":
        optimizer = Together(torch.optim.SGD(groups[:1], momentum=0.9), torch.optim.Adam(groups[1:]))
    shuffle = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, generator=shuffle)
    cr.fit(bnn, optimizer, loader, steps=3, progress=False)  # moments, running statistics, an odd half of a pair
    bnn(x, y).backward()

    def everything():
        generators = (torch.get_rng_state(), np.random.get_state(), random.getstate(), shuffle.get_state())  # noqa: NPY002
        state = copy.deepcopy((bnn.state_dict(), optimizer.state_dict(), generators))
        return bytes_of(*state, [p.grad for p in bnn.parameters()], bnn.last.nll)

    before = everything()
    if kind == "fails":
        broken = [*list(loader)[:2], (x[:, :2], y)]
        before = everything()
        with pytest.raises(RuntimeError):
            range_test(bnn, optimizer, broken, group, steps=10)
    else:
        found = range_test(bnn, optimizer, loader, group, low=1e-3, high=1e-1, steps=12)
        assert len(found.losses) == 12
    assert everything() == before


def test_the_other_groups_rest():
    torch.manual_seed(0)
    bnn = cr.VI(nn.Linear(3, 1), cr.likelihoods.Gaussian(1.0), num_data=16)
    x = torch.randn(16, 3)
    seen = []

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            result = super().step(closure)
            seen.append([p.detach().clone() for g in self.param_groups for p in g["params"]])
            return result

    optimizer = Watched(bnn.param_groups(lr=0.1, scale_lr=0.3), momentum=0.9)
    for group, moves in (("means", [True, True, False]), ("scales", [False, False, True])):
        seen.clear()
        range_test(bnn, optimizer, [(x, x[:, :1])], group, low=1e-3, high=1e-1, steps=10)
        assert [not torch.equal(a, b) for a, b in zip(seen[0], seen[-1], strict=True)] == moves
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.3]


def test_the_suggested_rate_trains_an_mlp_on_digits():
    data = cr.data.load("digits")
    torch.manual_seed(0)
    net = cr.models.MLP(64, 10, hidden=(32,))
    bnn = cr.VI(net, cr.likelihoods.Categorical(), num_data=len(data.train), beta=0.01)
    loader = cr.data.batches(data.train, 64, shuffle=True, seed=0)
    found = {
        group: range_test(bnn, torch.optim.Adam(bnn.param_groups(lr=1.0), fused=True), loader, group, high=10.0)
        for group in ("means", "scales")
    }
    assert isinstance(found["means"], RangeTest)
    assert 1e-3 < found["means"].suggestion < 0.1 < 2 * found["means"].limit
    optimizer = torch.optim.Adam(bnn.param_groups(found["means"].suggestion, ratio=0.1), fused=True)
    result = cr.fit(bnn, optimizer, loader, epochs=4, val=cr.data.batches(data.val, 256), progress=False, seed=0)
    assert result.history[-1]["val_accuracy"] > 0.9


def test_what_cannot_be_is_refused():
    objective, loader, _, _ = quadratic(4.0)
    optimizer = torch.optim.SGD(objective.param_groups(lr=1.0))
    with pytest.raises(InputError, match="0 < low < high"):
        range_test(objective, optimizer, loader, low=1.0, high=0.1)
    with pytest.raises(InputError, match="the optimiser's groups are 'means'"):
        range_test(objective, optimizer, loader, "scales")
    with pytest.raises(InputError, match="no iterator"):
        range_test(objective, optimizer, iter(loader))
    with pytest.raises(InputError, match="loader is empty"):
        range_test(objective, optimizer, [])
    with pytest.raises(InputError, match="YellowFin sets its own rates"):
        range_test(objective, YellowFin(objective.param_groups(lr=1.0)), loader)
