"""G and P of the layers against dense matrices, and which parameters have them."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import credent as cr
from credent.errors import InputError
from credent.samplers import BNPSGLD, SGLD, Identity, RMSprop


def step(net, h, sampler, seed=0):
    """One step on the loss sum(output x fixed numbers); the gradients before it, and the parameters' moves."""
    net.zero_grad()
    out = net(h)
    (out * torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(seed))).sum().backward()
    before = [p.detach().clone() for p in net.parameters()]
    grads = [p.grad.clone() for p in net.parameters()]
    sampler.step()
    return grads, [p.detach() - b for p, b in zip(net.parameters(), before, strict=True)]


def dense_p(mean, variance, q):
    """U D / q for one unit."""
    u, d = np.eye(len(mean) + 1), np.diag(np.concatenate([[1.0], variance**-0.5]))
    u[0, 1:] = -mean
    return u @ d / q


@pytest.mark.parametrize(
    ("layer", "shape", "fan_in", "count"),
    [
        (nn.Linear(6, 3), (4, 6), 6, 4),
        (nn.Conv2d(2, 3, 3, padding=1), (4, 2, 5, 5), 18, 4 * 25),
        (nn.Conv1d(4, 6, 2, groups=2), (1, 4, 3), 4, 2),
    ],
    ids=["linear", "conv", "groups"],
)
def test_drift_and_noise_are_those_of_the_dense_matrices(layer, shape, fan_in, count):
    """decay=0.6: running averages of two batches, from 0 and 1; P is the noise's own map, so its draw is known too."""
    torch.manual_seed(0)
    layer = layer.double()
    batches = [3 * torch.randn(shape, dtype=torch.float64) + torch.arange(shape[1]).view(-1, *[1] * (len(shape) - 2))
               for _ in range(2)]  # fmt: skip
    sampler = BNPSGLD(layer, lr=0.02, num_data=10, decay=0.6, seed=5)
    channels = batches[0].shape[1]
    mean, variance = np.zeros(channels), np.ones(channels)
    for i, h in enumerate(batches):
        rows = h.movedim(1, 0).reshape(channels, -1).numpy()
        mean, variance = 0.6 * mean + 0.4 * rows.mean(1), 0.6 * variance + 0.4 * rows.var(1)
        stream = torch.Generator()
        stream.set_state(sampler.noise.get_extra_state()["state"])
        sizes = [p.numel() for p in layer.parameters()]
        noise = torch.empty(sum(sizes), dtype=torch.float64).normal_(generator=stream).split(sizes)
        noise = [xi.view_as(p) for xi, p in zip(noise, layer.parameters(), strict=True)]
        grads, moves = step(layer, h, sampler, seed=i)
        q = math.sqrt(max(fan_in / count, 1))
        kernel = layer.weight[0, 0].numel()
        per_group = layer.weight.shape[1]
        for unit in range(len(layer.weight)):
            first = unit * getattr(layer, "groups", 1) // len(layer.weight) * per_group
            mine = slice(first, first + per_group)
            floored = variance[mine] + 1e-2 * variance[mine].max() + 1e-4
            p = dense_p(np.repeat(mean[mine], kernel), np.repeat(floored, kernel), q)

            def theta(tensors, unit=unit):
                return np.concatenate([[tensors[1][unit].item()], tensors[0][unit].flatten().numpy()])

            expected = -0.01 * 10 * p @ p.T @ theta(grads) + math.sqrt(0.02) * p @ theta(noise)
            np.testing.assert_allclose(theta(moves), expected, rtol=1e-10, atol=1e-12)


def test_a_convolution_is_the_dense_layer_on_its_patches():
    """With inputs whose every position has the same statistics, both layers make the same move."""
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 2).double()
    h = torch.randn(6, 2, 4, 4, dtype=torch.float64) + 3
    patches = functional.unfold(h, 2).transpose(1, 2).reshape(-1, 8)
    dense = nn.Linear(8, 3).double()
    dense.weight.data, dense.bias.data = conv.weight.data.flatten(1).clone(), conv.bias.data.clone()
    common = {"lr": 0.01, "num_data": 1, "temperature": 0.0}
    one, other = BNPSGLD(conv, **common), BNPSGLD(dense, **common)
    conv(h).square().sum().backward()
    dense(patches).square().sum().backward()
    torch.testing.assert_close(conv.weight.grad.flatten(1), dense.weight.grad)
    one.step()
    state = one.state[conv.weight]
    other.preconditioner.inputs.take()
    known = {"mean": state["mean"].repeat_interleave(4), "variance": state["variance"].repeat_interleave(4)}
    other.state[dense.weight] = {**known, "rows": len(patches), "positions": 1}
    other.burn_in, other.steps = 1, 1
    other.step()
    torch.testing.assert_close(conv.weight.flatten(1), dense.weight)
    torch.testing.assert_close(conv.bias, dense.bias)


@pytest.mark.parametrize(("rows", "declared", "q2"), [("positions", None, 1), ("batch", None, 9), ("batch", 6, 3)])
def test_q_counts_positions_or_rows(rows, declared, q2):
    layer = nn.Conv2d(2, 1, 3, bias=False)
    sampler = BNPSGLD(layer, lr=2.0, num_data=1, temperature=0.0, decay=0.0, rows=rows, batch_size=declared)
    torch.manual_seed(0)
    grads, moves = step(layer, torch.randn(2, 2, 5, 5), sampler)
    variance = sampler.state[layer.weight]["variance"]
    s2 = (variance + 1e-2 * variance.max() + 1e-4).view(1, 2, 1, 1)
    torch.testing.assert_close(moves[0], -grads[0] / (s2 * q2))


class Mixed(nn.Module):
    """Tied, unused, attention and norm layers beside one plain linear layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)  # calls no forward of its out_proj
        self.plain = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 5, bias=False)
        self.tied.weight = self.embedding.weight
        self.unused = nn.Linear(4, 4)

    def forward(self, x):
        h = self.norm(self.embedding(x))
        return self.tied(self.plain(self.attention(h, h, h)[0]))


@pytest.mark.parametrize("fallback", [Identity(), RMSprop(damping=0.5)])
def test_other_parameters_have_the_fallback(fallback):
    torch.manual_seed(0)
    net = Mixed().double()
    sampler = BNPSGLD(net, lr=2.0, num_data=1, temperature=0.0, fallback=fallback)
    net(torch.randint(5, (3, 6))).square().sum().backward()
    before = {k: p.detach().clone() for k, p in net.named_parameters()}
    sampler.step()
    for name, p in net.named_parameters():
        if p.grad is None:
            assert torch.equal(p, before[name])
            assert name.startswith("unused")
            continue
        g = p.grad if isinstance(fallback, Identity) else p.grad / (0.5 + p.grad.abs())
        same = torch.allclose(p.detach() - before[name], -g)
        assert same != name.startswith("plain"), name


def test_a_fallback_with_nothing_to_do_is_left_alone():
    layer = nn.Linear(2, 1)
    step(layer, torch.ones(3, 2), BNPSGLD(layer, lr=1e-3, num_data=1, fallback=RMSprop()))


def test_without_noise_it_is_preconditioned_gradient_descent():
    """Badly scaled least squares: BNP is there when gradient descent at its own best step has hardly begun."""
    torch.manual_seed(0)
    x = torch.randn(200, 3, dtype=torch.float64) * torch.tensor([1.0, 5.0, 2.0]) + torch.tensor([10.0, 0.0, -3.0])
    y = (x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + 7)[:, None]
    design = torch.cat([torch.ones(200, 1, dtype=torch.float64), x], 1)
    best = torch.linalg.eigvalsh(design.T @ design / 100)

    def distance(build):
        net = nn.Linear(3, 1).double()
        nn.init.zeros_(net.weight)
        nn.init.zeros_(net.bias)
        optimizer = build(net)
        for _ in range(30):
            optimizer.zero_grad()
            (net(x) - y).square().mean().backward()
            optimizer.step()
        return (net(x) - y).square().mean().item()

    plain = distance(lambda net: torch.optim.SGD(net.parameters(), lr=2 / (best.min() + best.max()).item()))
    bnp = distance(lambda net: BNPSGLD(net, lr=0.8, num_data=1, temperature=0.0, decay=0.0))
    assert bnp < 1e-6 < 1e-2 < plain


def test_after_burn_in_the_statistics_stay():
    layer = nn.Linear(2, 1)
    sampler = BNPSGLD(layer, lr=1e-3, num_data=1, burn_in=2)
    for i in range(4):
        step(layer, torch.randn(3, 2, generator=torch.Generator().manual_seed(i)), sampler)
        if i == 1:
            known = sampler.state[layer.weight]["mean"].clone()
    assert torch.equal(sampler.state[layer.weight]["mean"], known)
    assert not sampler.preconditioner.inputs.watching


# -- what cannot be ---------------------------------------------------------------------------------------------------


def test_a_network_without_such_layers_is_refused():
    with pytest.raises(InputError, match=r"no trainable linear or convolutional layer.*PSGLD"):
        BNPSGLD(nn.LayerNorm(3), lr=1e-3, num_data=1)
    frozen = nn.Linear(1, 1).requires_grad_(False)
    with pytest.raises(InputError, match="no trainable linear"):
        BNPSGLD(nn.Sequential(frozen, nn.LayerNorm(3)), lr=1e-3, num_data=1)


def test_a_sampler_of_another_copy_of_the_network_says_so():
    net = nn.Linear(1, 1)
    sampler = BNPSGLD(net, lr=1e-3, num_data=1)
    net.weight.grad = torch.ones(1, 1)
    with pytest.raises(InputError, match="no training pass"):
        sampler.step()


@pytest.mark.parametrize(
    "options", [{"decay": 1.0}, {"floor": (-1.0, 0.0)}, {"batch_size": 0}, {"noise": "right"}, {"rows": "all"}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(InputError, match="BNPSGLD"):
        BNPSGLD(nn.Linear(1, 1), lr=1e-3, num_data=1, **options)


def test_batch_norm_layers_are_sampled_with_the_fallback():
    """Documented: BNP stands in for BatchNorm and works beside it, whose gains and shifts have no input statistics."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    loss = cr.MAP(net, cr.likelihoods.Categorical(), num_data=8)
    x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    sampler = BNPSGLD(net, lr=1e-3, num_data=8, burn_in=2)
    result = cr.fit(loss, sampler, [(x, y)], steps=4, progress=False, keep=cr.Thin(after=0.5, every=1))
    assert set(sampler.state) == {net[0].weight, net[3].weight}
    assert len(result.posterior) == 2


def test_on_standardised_inputs_it_is_sgld():
    torch.manual_seed(0)
    h = torch.randn(500, 2, dtype=torch.float64)
    h = (h - h.mean(0)) / h.var(0, correction=0).sqrt()
    one, other = nn.Linear(2, 1).double(), nn.Linear(2, 1).double()
    other.load_state_dict(one.state_dict())
    a = BNPSGLD(one, lr=0.1, num_data=3, decay=0.0, floor=(0.0, 0.0), seed=1)
    b = SGLD(other.parameters(), lr=0.1, num_data=3, seed=1)
    step(one, h, a)
    step(other, h, b)
    torch.testing.assert_close(one.weight, other.weight)
    torch.testing.assert_close(one.bias, other.bias)
