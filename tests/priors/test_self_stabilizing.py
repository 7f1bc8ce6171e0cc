"""The self-stabilising prior: what it makes of q, what that costs, and that both keep a deep network's signal alive."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from credent import MAP, VI, VL, families, likelihoods, priors
from credent.errors import InputError
from credent.layout import Layout

C = 1 - 1 / math.pi


def product(net, scale=None, **options):
    """q made stable; `scale` is sigma of all weights."""
    layout = Layout(net)
    q, prior = families.Gaussian(1.0).bind(layout), priors.SelfStabilizing(**options).bind(layout)
    if scale is not None:
        q.scales.rho.data.fill_(math.log(scale))
    return prior.sampled(q), prior


def one_neuron(total, variance, inputs=100):
    net = nn.Linear(inputs, 1, bias=False).double()
    nn.init.constant_(net.weight, total / inputs)
    return product(net, math.sqrt(variance))


@pytest.mark.parametrize(
    ("total", "variance", "prior_variance", "kept"),
    [
        (0.0, 0.05, 1 / 30, 2.0),  # gamma 2
        (1.0, 0.05, 0.017904, 2 - C),  # gamma 1.318310
        (0.0, 0.01, 1.0, 100 / (100 + 1)),  # V = 1 < gamma: a wide prior leaves it, where the paper's abs shrinks it
        (2.0, 0.05, 0.01 / 100 / (1 - 0.01 / 5), 0.01),  # the means alone are too large: all but nothing is left
    ],
)
def test_one_neuron(total, variance, prior_variance, kept):
    q, prior = one_neuron(total, variance)
    assert float(prior.precision(q.scales.rho)[0]) == pytest.approx(1 / prior_variance, rel=1e-4)
    assert float(q.stddev()["weight"].square().sum()) == pytest.approx(kept, rel=1e-6)
    assert float(C * q.mean()["weight"].sum() ** 2) == pytest.approx(C * total**2)


def by_hand(net, sigma, condition="sum"):
    """Precisions and product scales with loops over output units."""
    found = {}
    for name, module in net.named_modules():
        if not isinstance(module, nn.Linear | nn.Conv2d):
            continue
        w, s = module.weight.detach(), sigma[f"{name}.weight"]
        precision = torch.zeros_like(w)
        for j in range(len(w)):
            means = C * w[j].sum() ** 2 if condition == "sum" else (w[j] ** 2).sum()
            left = max(2 - float(means), 0.01)
            precision[j] = max(w[j].numel() * (1 / left - 1 / float((s[j] ** 2).sum())), 1.0)
        found[f"{name}.weight"] = precision
    return found


@pytest.mark.parametrize("condition", ["sum", "squares"])
def test_dense_and_convolutional_layers_unit_by_unit(condition):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.Linear(6, 5)).double()
    q, prior = product(net, condition=condition)
    q.scales.rho.data += torch.randn_like(q.scales.rho) * 0.5 + 1
    sigma = {k: v.clone() for k, v in q.layout.unflatten(q.scales.rho.detach().exp()).items()}
    expected, stddev = by_hand(net, sigma, condition), q.stddev()
    assert set(expected) == {"0.weight", "1.weight", "3.weight"}
    found, kl = q.layout.unflatten(prior.precision(q.scales.rho)), 0.0
    assert len(expected["1.weight"].unique()) > 3
    for k in q.layout.names:
        if k in expected:
            torch.testing.assert_close(found[k], expected[k], rtol=1e-10, atol=0)
            torch.testing.assert_close(stddev[k], (sigma[k] ** -2 + expected[k]) ** -0.5, rtol=1e-10, atol=0)
            kl += (0.5 * (stddev[k] ** 2 * expected[k] - 1) - (stddev[k] * expected[k].sqrt()).log()).sum()
        else:
            assert (found[k] == 0).all()
            torch.testing.assert_close(stddev[k], sigma[k], rtol=1e-10, atol=0)
            offset = dict(net.named_parameters())[k] - (1.0 if k == "2.weight" else 0.0)
            kl += (0.5 * (offset**2 + sigma[k] ** 2 - 1) - sigma[k].log()).sum()
    assert prior(q).item() == pytest.approx(kl.item(), rel=1e-10)


def test_a_transposed_convolutions_units_are_its_outputs():
    torch.manual_seed(0)
    net = nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False).double()
    q, prior = product(net, 1.0)
    found = prior.precision(q.scales.rho).view(2, 2, 3, 9)  # group, its inputs, its outputs, places
    assert prior.precision(q.scales.rho).unique().numel() == 6
    assert (found == found[:, :1, :, :1]).all()
    row = net.weight.detach().view(2, 2, 3, 9)[1, :, 2]
    assert float(found[1, 0, 2, 0]) == pytest.approx(18 * (1 / float(2 - C * row.sum() ** 2) - 1 / 18))


def test_draws_log_prob_and_entropy_are_the_products():
    q, _ = one_neuron(0.0, 0.05, inputs=3)
    q.scales.rho.data.copy_(torch.tensor([0.8, 1.3, 1.0]).log())
    scale, n = q.stddev()["weight"].flatten(), 40_000
    raw = q.scales.rho.detach().exp()
    assert (scale < raw).all()
    drawn = q.sample(n, seed=0)["weight"].flatten(1)
    assert ((drawn.var(0) / scale**2 - 1).abs() < 4 * math.sqrt(2 / n)).all()
    expected = torch.distributions.Normal(q.mean()["weight"].flatten(), scale)
    w = drawn[0]
    assert q.log_prob({"weight": w.view(1, 3)}).item() == pytest.approx(expected.log_prob(w).sum().item(), rel=1e-10)
    assert q.entropy().item() == pytest.approx(expected.entropy().sum().item(), rel=1e-10)
    q.noise.seed(1)
    with q.cached():
        pair = [q.rsample()["weight"] for _ in range(2)]
    torch.testing.assert_close((pair[0] + pair[1]) / 2, q.layout.params()["weight"])


def test_gradients_hold_the_prior_constant():
    """Of the loss by rho: those of the formula with lambda as numbers; the means get the likelihood's alone."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 5, bias=False), nn.ReLU(), nn.Linear(5, 1, bias=False)).double()
    q = families.Gaussian(2.0)
    bnn = VI(net, likelihoods.Gaussian(1.0), priors.SelfStabilizing(), num_data=10, family=q)
    other = copy.deepcopy(bnn)
    x, y = torch.randn(6, 7, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    bnn(x, y).backward()
    held = other.penalty.precision(other.q.scales.rho)
    rho = other.q.scales.rho.detach().clone().requires_grad_()
    e, _ = other.q.noise.paired(other.q.standard, rho.detach())
    scale = ((-2 * rho).exp() + held).rsqrt()
    means = other.q.layout.params()
    w = {k: means[k] + v for k, v in other.q.layout.unflatten(scale * e).items()}
    outputs = torch.relu(x @ w["0.weight"].T) @ w["2.weight"].T
    kl = (0.5 * (scale**2 * held - 1) - (scale * held.sqrt()).log()).sum()
    loss = (0.5 * (y - outputs) ** 2).mean() + kl / 10
    loss.backward()
    torch.testing.assert_close(bnn.q.scales.rho.grad, rho.grad, rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(bnn.net.parameters(), other.net.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-12)
    assert bnn.last.penalty.item() == pytest.approx(kl.item(), rel=1e-10)


@pytest.mark.slow
def test_a_deep_network_keeps_its_signal():
    """Ten ReLU layers whose own variances would blow it up: drawn from the product, it passes at about its size."""
    torch.manual_seed(0)
    net = nn.Sequential(*[layer for _ in range(10) for layer in (nn.Linear(400, 400, bias=False), nn.ReLU())])
    for p in net.parameters():
        nn.init.zeros_(p)
    scale = math.sqrt(5 / 400)
    stable, _ = product(net, scale)
    plain = families.Gaussian(scale * 20).bind(Layout(net))
    x, variances = torch.randn(64, 400), {}
    for name, q in (("stable", stable), ("plain", plain)):
        each = [torch.func.functional_call(net[:-1], w, (x,)).var().item() for w in q.draws(5, seed=1)]
        variances[name] = np.mean(each)
    assert 0.5 < variances["stable"] / 2 < 2  # the last layer's outputs, before its ReLU: twice the mean square / 2
    assert variances["plain"] > 1000


def test_vi_trains_saves_and_predicts_with_the_product():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    bnn = VI(net, likelihoods.Gaussian(0.3), priors.SelfStabilizing(), num_data=50, family=families.Gaussian(3.0))
    x, y = torch.randn(50, 3), torch.randn(50, 1)
    optimizer = torch.optim.Adam(bnn.param_groups(lr=1e-2))
    assert sum(p.numel() for g in optimizer.param_groups for p in g["params"]) == 2 * sum(
        p.numel() for p in net.parameters()
    )
    for _ in range(20):
        optimizer.zero_grad()
        bnn(x, y).backward()
        optimizer.step()
    again = copy.deepcopy(bnn)
    again.q.scales.rho.data.zero_()
    again.load_state_dict(bnn.state_dict())
    for k, s in bnn.posterior.stddev().items():
        assert torch.equal(again.posterior.stddev()[k], s)
    assert (bnn.posterior.stddev()["0.weight"] < bnn.q.layout.unflatten(bnn.q.scales.rho.exp())["0.weight"]).all()
    assert torch.equal(again.predict(x, samples=4).mean, bnn.predict(x, samples=4).mean)


def test_vl_takes_it():
    """Its curvature term and its posterior are the product's."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1, bias=False).double()
    vl = VL(net, likelihoods.Gaussian(1.0), priors.SelfStabilizing(), num_data=10, curvature="exact", fraction=1.0)
    vl.q.scales.rho.data.fill_(0.5)
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
    vl(x, y)
    nll = likelihoods.Gaussian(1.0).log_prob(net(x), y).mean().neg()
    scale = vl.posterior.stddev()["weight"]
    assert (scale < math.exp(0.5)).all()
    values = []
    for _ in range(400):
        vl(x, y)
        values.append(vl.last.nll.item() - nll.item())
    expected = 0.5 * (scale**2 * (x**2).mean(0)).sum().item()
    assert abs(np.mean(values) - expected) < 4 * np.std(values) / 20 + 1e-12
    assert np.std(values) / 20 < 0.1 * expected


def test_where_it_cannot_be_used_it_says_so():
    net = nn.Linear(3, 1)
    with pytest.raises(InputError, match=r"DiracPosterior is none: write VI\("):
        MAP(net, likelihoods.Gaussian(1.0), priors.SelfStabilizing(), num_data=5)
    with pytest.raises(InputError, match=r"RadialPosterior is none.*family=families.Gaussian\(\)"):
        VI(net, likelihoods.Gaussian(1.0), priors.SelfStabilizing(), num_data=5, family=families.Radial())
    with pytest.raises(InputError, match="this penalty has no density"):
        VI(net, likelihoods.Gaussian(1.0), priors.SelfStabilizing(), num_data=5, estimator="path")
    with pytest.raises(InputError, match=r"what `sampled\(q\)` returns"):
        priors.SelfStabilizing().bind(Layout(net))(families.Gaussian().bind(Layout(net)))
    with pytest.raises(InputError, match="write 'sum' or 'squares'"):
        priors.SelfStabilizing(condition="abs")
