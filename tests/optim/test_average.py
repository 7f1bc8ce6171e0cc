"""Averages of iterates: which iterates count how much, what is averaged, and what it is good for."""

import math

import pytest
import torch
from torch import nn

import credent as cr
from credent.data import batches
from credent.errors import InputError
from credent.optim import Average


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, 8.0])
def test_iterates_count_as_rising_powers_of_their_number(power):
    """Oracle: c_s = Gamma(s + p) / Gamma(s), a polynomial of degree p, summed in float64."""
    torch.manual_seed(0)
    iterates = torch.randn(50, 3, dtype=torch.float64)
    net = nn.Linear(3, 1, bias=False).double()
    average = Average(net, power=power)
    for w in iterates:
        net.weight.data.copy_(w[None])
        average.update()
    s = torch.arange(1, 51, dtype=torch.float64)
    weights = ((s + power).lgamma() - s.lgamma()).exp()
    average.apply()
    torch.testing.assert_close(net.weight.detach()[0], (weights[:, None] * iterates).sum(0) / weights.sum())


def test_it_finds_the_mode_that_a_constant_rate_only_wanders_about():
    """w <- w - a (w - 2 + noise): stationary variance a / (2 - a); the average's is smaller by its reach."""
    torch.manual_seed(0)
    net = nn.Linear(400, 1, bias=False).double()  # 400 chains side by side
    net.weight.data.fill_(2.0)
    average, steps, rate, power = Average(net, power=1.0), 2000, 0.2, 1.0
    for _ in range(steps):
        net.weight.data -= rate * (net.weight.data - 2.0 + torch.randn_like(net.weight))
        average.update()
    last = (net.weight.detach() - 2.0).square().mean()
    assert abs(last / (rate / (2 - rate)) - 1) < 4 * math.sqrt(2 / 400)
    with average.applied():
        squares = (net.weight.detach() - 2.0).square().mean()
    # the average of a stationary AR(1) over weights c_s has n_eff = T (2 p + 1) / (p + 1)^2 terms of spectral density 1
    expected = (power + 1) ** 2 / ((2 * power + 1) * steps)
    assert abs(squares / expected - 1) < 4 * math.sqrt(2 / 400)


def test_an_average_of_q_has_its_scales_and_statistics_too():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    net[0].bias.requires_grad_(False)
    bnn = cr.VI(net, cr.likelihoods.Categorical(), num_data=64)
    average = Average(bnn, power=0.0)
    optimizer = torch.optim.SGD(bnn.param_groups(lr=0.1, scale_lr=0.5))
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        bnn(torch.randn(16, 4), torch.randint(3, (16,))).backward()
        optimizer.step()
        average.update()
        seen.append({k: v.clone() for k, v in bnn.state_dict().items() if isinstance(v, torch.Tensor)})
    with average.applied():
        now = bnn.state_dict()
        for name in ("net.0.weight", "net.1.running_var", "q.scales.rho.3.weight"):
            torch.testing.assert_close(now[name], torch.stack([each[name] for each in seen]).mean(0), msg=name)
            assert not torch.allclose(seen[0][name], seen[2][name], rtol=1e-4), name
        assert now["net.1.num_batches_tracked"] == 3
    assert all(torch.equal(bnn.state_dict()[name], value) for name, value in seen[-1].items())


def test_the_module_comes_back_after_an_exception():
    net = nn.Linear(2, 1)
    average = Average(net)
    net.weight.data.add_(1.0)
    was = net.weight.detach().clone()
    with pytest.raises(RuntimeError, match="stop"), average.applied():
        assert not torch.equal(net.weight, was)
        raise RuntimeError("stop")
    assert torch.equal(net.weight, was)


def test_it_follows_a_module_that_is_converted():
    net = nn.Linear(2, 1, bias=False)
    average = Average(net, power=0.0)
    net.weight.data.fill_(1.0)
    average.update()
    net.double()
    net.weight.data.fill_(2.0)
    average.update()
    average.apply()
    assert net.weight.dtype == torch.float64
    assert net.weight.tolist() == [[1.5, 1.5]]


def _fitted(average_power=None, **options):
    torch.manual_seed(0)
    data = cr.data.load("digits")
    bnn = cr.MAP(cr.models.MLP(64, 10, hidden=(32,)), cr.likelihoods.Categorical(), num_data=len(data.train))
    optimizer = torch.optim.Adam(bnn.param_groups(lr=1e-2))
    average = None if average_power is None else Average(bnn, average_power)
    loader, val = batches(data.train, 64, shuffle=True, seed=1), batches(data.val, 400)
    options |= {"epochs": 3, "val": val, "progress": False}
    result = cr.fit(bnn, optimizer, loader, average=average, **options)
    x, y = data.val[:]
    return bnn, result, -bnn.predict(x).log_prob(y).mean().item()


def test_fit_averages_every_step_and_validates_what_it_returns():
    bnn, result, nll = _fitted(average_power=8.0)
    other, _, last = _fitted()
    assert result.history[-1]["val_nll"] == pytest.approx(nll, rel=1e-5)
    assert abs(nll - last) > 1e-3  # the average is not the last iterate
    for ours, theirs in zip(bnn.net.parameters(), other.net.parameters(), strict=True):
        assert not torch.equal(ours, theirs)


def test_fit_averages_no_chain_and_no_other_module():
    net = nn.Linear(4, 3)
    bnn = cr.MAP(net, cr.likelihoods.Categorical(), num_data=8)
    loader = [(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))]
    sampler = cr.samplers.SGLD(net.parameters(), lr=1e-5, num_data=8)
    with pytest.raises(InputError, match="draws, to be kept"):
        cr.fit(bnn, sampler, loader, epochs=1, average=Average(bnn), progress=False)
    with pytest.raises(InputError, match="another module"):
        cr.fit(bnn, None, loader, epochs=1, average=Average(net), progress=False)
    with pytest.raises(InputError, match="number >= 0"):
        Average(net, power=-1.0)


def test_a_state_goes_on_and_that_of_another_module_is_refused():
    net = nn.Linear(2, 1)
    average, other = Average(net), Average(net)
    net.weight.data.add_(1.0)
    average.update()
    other.load_state_dict(average.state_dict())
    net.weight.data.add_(1.0)
    average.update()
    other.update()
    assert other.steps == 2
    assert all(torch.equal(other.state_dict()["average"][k], v) for k, v in average.state_dict()["average"].items())
    with pytest.raises(InputError, match="another module"):
        Average(nn.Linear(2, 1, bias=False)).load_state_dict(average.state_dict())


def test_what_is_no_running_statistic_stays():
    """A mask of minus infinity, whose average would be no number, and the temperature of predictions."""
    net = nn.Linear(2, 2)
    net.register_buffer("mask", torch.tensor([0.0, -math.inf]), persistent=False)
    bnn = cr.MAP(net, cr.likelihoods.Categorical(), num_data=8)
    average = Average(bnn)
    average.update()
    bnn.likelihood.temperature.fill_(2.0)
    with average.applied():
        assert net.mask.tolist() == [0.0, -math.inf]
    average.apply()
    assert bnn.likelihood.temperature == 2


def test_a_parameter_that_is_trained_later_begins_with_what_it_is():
    net = nn.Linear(1, 1)
    net.bias.requires_grad_(False)
    average = Average(net, power=0.0)
    net.weight.data.fill_(1.0)
    average.update()
    net.bias.requires_grad_(True)
    net.bias.data.fill_(4.0)
    average.update()
    average.apply()
    assert (net.weight.item(), net.bias.item()) == (1.0, 4.0)


def test_an_average_of_sixteen_bits_keeps_moving():
    net = nn.Linear(1, 1, bias=False).bfloat16()
    average = Average(net, power=0.0)
    for w in [1.0] * 500 + [2.0] * 500:
        net.weight.data.fill_(w)
        average.update()
    average.apply()
    assert net.weight.dtype == torch.bfloat16
    assert net.weight.item() == pytest.approx(1.5, abs=0.01)
