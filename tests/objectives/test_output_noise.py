"""Noise on outputs against noise on weights: the same law where it should be, the same expectation, less variance."""

import math

import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import InputError
from credent.objectives.output_noise import OutputNoise

GAUSSIAN = cr.likelihoods.Gaussian(scale=1.0)


def wide(layer, scale=0.5):
    """A layer of float64 with wide scales, so that noise is what is seen."""
    torch.manual_seed(0)
    layer = layer.double()
    layout = cr.layout.Layout(layer)
    q = cr.families.Gaussian(initial_scale=scale).bind(layout)
    with torch.no_grad():
        q.scales.rho.add_(0.3 * torch.randn_like(q.scales.rho))  # no two weights alike
    return layer, layout, q


LAYERS = {
    "linear": (lambda: nn.Linear(3, 2), (3,)),
    "linear without bias": (lambda: nn.Linear(3, 2, bias=False), (3,)),
    "sequence": (lambda: nn.Linear(3, 2), (4, 3)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 6)),
    "conv2d": (lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), (2, 4, 4)),
    "grouped": (lambda: nn.Conv2d(4, 4, 2, groups=2, dilation=2), (4, 4, 4)),
}


@pytest.mark.parametrize("kind", ["local", "flipout"])
@pytest.mark.parametrize("name", LAYERS)
def test_an_output_has_the_moments_of_weight_noise(kind, name):
    """Mean W x + b, variance sigma^2 x^2 + sigma_b^2, by the layer's own arithmetic in float64."""
    build, shape = LAYERS[name]
    layer, layout, q = wide(build())
    x = torch.randn(1, *shape, dtype=torch.float64)
    scale = {k: s.detach() for k, s in layout.views(q.scales.sigma()).items()}
    noise = OutputNoise(layer, layout, kind)
    with torch.no_grad(), noise.installed(q):
        each = x.expand(3_000, *shape) if kind == "local" else x  # the examples of a batch share the size of flipout's
        out = torch.cat([layer(each) for _ in range(3_000 // len(each))])
    mean, squares = layer(x).detach(), cr.network.Network(layer)({k: s**2 for k, s in scale.items()}, x**2)
    error = (squares / len(out)).sqrt()
    assert ((out.mean(0) - mean[0]).abs() < 5 * error[0]).all()
    assert torch.allclose(out.var(0), squares[0].detach(), rtol=5 * math.sqrt(2 / len(out)))


def test_flipout_positions_of_an_example_share_their_weights_and_local_ones_do_not():
    """Two equal positions err alike under flipout, as under weight noise; apart under local."""
    layer, layout, q = wide(nn.Linear(3, 1, bias=False))
    x = torch.randn(1, 1, 3, dtype=torch.float64).expand(2000, 2, 3)
    for kind, expected in (("flipout", 1.0), ("local", 0.0)):
        with torch.no_grad(), OutputNoise(layer, layout, kind).installed(q):
            out = layer(x)[..., 0]
        assert torch.corrcoef(out.T)[0, 1].item() == pytest.approx(expected, abs=5 / math.sqrt(2000))


def test_flipout_examples_err_apart_and_have_the_law_of_weight_noise():
    """Pairs of outputs of one example are correlated as under weight noise: independent rows of W, so not at all."""
    layer, layout, q = wide(nn.Linear(3, 2, bias=False))
    x = torch.randn(1, 3, dtype=torch.float64).expand(20_000, 3)
    noise = OutputNoise(layer, layout, "flipout")
    means = []
    with torch.no_grad():
        for _ in range(200):
            with noise.installed(q):
                means.append(layer(x[:50])[:, 0].mean())
    scale = layout.views(q.scales.sigma())["weight"][0].detach()
    alone = (scale**2 * x[0] ** 2).sum().sqrt() / math.sqrt(50)  # were the examples alike, sqrt(50) times as much
    assert torch.stack(means).std().item() == pytest.approx(alone.item(), rel=4 / math.sqrt(2 * 200))


def classifier():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 3))


def gradients(noise, net, draws, batch, seed=0):
    torch.manual_seed(seed)
    family = cr.families.Gaussian(initial_scale=0.5)
    bnn = cr.VI(net(), cr.likelihoods.Categorical(), num_data=batch, beta=0.0, family=family, noise=noise)
    x = torch.randn(batch, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    y = torch.arange(batch) % 3
    losses, found = [], []
    for _ in range(draws):
        bnn.zero_grad()
        loss = bnn(x, y)
        loss.backward()
        losses.append(loss.item())
        means = torch.cat([p.grad.flatten() for p in bnn.layout.params().values()])
        found.append(torch.cat([means, bnn.q.scales.rho.grad]))
    return torch.tensor(losses, dtype=torch.float64), torch.stack(found).double()


NETS = {"linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3)), "conv": classifier}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("noise", ["local", "flipout"])
def test_a_batch_of_128_has_the_same_expectation_and_a_quieter_gradient(noise, name):
    if noise == "local" and name == "conv":
        pytest.skip("positions of a convolution err apart: another expectation, as documented")
    draws = 200
    plain, ours = gradients("weight", NETS[name], draws, 128), gradients(noise, NETS[name], draws, 128, seed=0)
    pairs = plain[0].view(-1, 2).mean(1)  # weight noise comes in mirrored pairs
    error = math.sqrt(pairs.var() / len(pairs) + ours[0].var() / draws)
    assert abs(pairs.mean() - ours[0].mean()) < 3 * error
    variances = [g.var(0).sum().item() for g in (plain[1], ours[1])]
    assert variances[0] / variances[1] > 2, f"{noise} on {name}: variance smaller by {variances[0] / variances[1]:.1f}"
    gap = (plain[1].mean(0) - ours[1].mean(0)).norm() / plain[1].mean(0).norm()
    assert gap < 4 * math.sqrt(sum(variances) / draws) / plain[1].mean(0).norm()


def test_tied_weights_and_other_layers_are_drawn_as_ever():
    shared = nn.Linear(3, 3)
    net = nn.Sequential(nn.Embedding(5, 3), shared, nn.Tanh(), shared, nn.LayerNorm(3), nn.Linear(3, 2))
    tied = nn.Linear(3, 3)
    tied.weight = net[1].weight
    both = nn.ModuleList([net, tied])
    layout = cr.layout.Layout(both)
    assert OutputNoise(both, layout, "local").names == {"0.5.weight", "0.5.bias"}


def test_the_network_is_as_it_was_and_training_works():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.randn(64, 3)
    bnn = cr.VI(net, GAUSSIAN, num_data=64, noise="local", samples=2)
    cr.fit(bnn, None, [(x, x[:, :1])], steps=60, progress=False)
    assert not net[0]._forward_hooks
    zero = net(torch.zeros(1, 3))
    assert torch.equal(zero, net(torch.zeros(1, 3)))
    assert all(p.grad is None or p.grad.isfinite().all() for p in bnn.parameters())
    assert bnn.predict(x).log_prob(x[:, :1]).mean() > -1.3


def test_what_cannot_be_is_refused():
    net = nn.Linear(2, 1)
    with pytest.raises(InputError, match=r"families\.Gaussian\(\)"):
        cr.VI(net, GAUSSIAN, num_data=4, noise="local", family=cr.families.Radial())
    with pytest.raises(InputError, match="kl_samples=1"):
        cr.VI(net, GAUSSIAN, cr.priors.ScaleMixture(), num_data=4, noise="flipout")
    with pytest.raises(InputError, match="'weight', 'local' or 'flipout'"):
        cr.VI(net, GAUSSIAN, num_data=4, noise="output")
    bnn = cr.VI(net, GAUSSIAN, cr.priors.ScaleMixture(), num_data=4, noise="flipout", kl_samples=3)
    assert bnn(torch.zeros(2, 2), torch.zeros(2, 1)).isfinite()


def test_building_runs_no_penalty_that_remembers():
    """The annealed inverse reference refuses a forward before its optimiser has stepped; building is none."""
    prior = cr.priors.InverseReference("inner", every=3)
    assert cr.VI(nn.Linear(2, 1), GAUSSIAN, prior, num_data=4).penalty.steps == 0
    cr.VI(nn.Linear(2, 1), GAUSSIAN, cr.priors.InverseReference("annealed"), num_data=4, kl_samples=2)
