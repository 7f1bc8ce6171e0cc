"""Compiled loops beside naive references in float64, and beside their twins in torch."""

import copy
import math
import shutil
from functools import partial
from itertools import count

import pytest
import torch
from tests.naive_normal import naive
from torch import nn

import credent as cr
from credent import native
from credent.families import passes
from credent.families.diagonal_gaussian import DiagonalGaussian
from credent.layout import Layout
from credent.quick_normal import Stream
from credent.samplers import inputs

pytestmark = pytest.mark.skipif(
    native.kernels is None and shutil.which("cc") is None, reason="no C compiler, so nothing was compiled"
)


def test_it_was_compiled():
    assert native.kernels is not None


@pytest.fixture
def without(monkeypatch):
    """What runs where nothing was compiled."""

    def switch():
        monkeypatch.setattr("credent.native.kernels", None)

    return switch


# -- passes over weights -----------------------------------------------------------------------------------------------

SIZES = [(1,), (7, 3), (1023,), (0,), (1025,), (3, 5, 3, 3), (130, 127)]  # around the lengths that loops are cut at


class Weights(nn.Module):
    def __init__(self, channels_last=False):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for i, size in enumerate(SIZES):
            w = torch.randn(size, generator=generator)
            if channels_last and len(size) == 4:
                w = w.to(memory_format=torch.channels_last)
            self.register_parameter(f"w{i}", nn.Parameter(w))


def problem(channels_last=False):
    """A layout, a prior with means of both signs, and what the passes take, in float32."""
    net = Weights(channels_last)
    layout = Layout(net)
    loc = {k: 0.7 * (i - 2) for i, k in enumerate(layout.names)}
    scale = {k: 0.3 + 0.2 * i for i, k in enumerate(layout.names)}
    prior = DiagonalGaussian(loc, scale).on(layout)
    means = [p.detach() for p in layout.params().values()]
    generator = torch.Generator().manual_seed(1)
    normal = lambda: torch.randn(layout.num_params, generator=generator)  # noqa: E731
    grads = [torch.randn(w.shape, generator=generator) for w in means]  # contiguous: another order than channels last
    return prior, means, normal() - 3, normal(), grads


def wide(prior, means, *others):
    """Everything as vectors of float64 in the layout's order: mu, m, p, and the others."""
    layout = prior.layout

    def vector(t):
        return (layout.lay(list(t))[0].clone() if isinstance(t, list) else t).double()

    constants = [
        torch.cat([torch.full((n,), v, dtype=torch.float64) for n, v in zip(prior.constants[0], each, strict=True)])
        for each in prior.constants[1:]
    ]
    return [vector(means), *constants, *map(vector, others)]


def flat(layout, tensors):
    return layout.lay(tensors)[0].clone()


def kl_of(mu, m, p, rho):
    q, prior = torch.distributions.Normal(mu, rho.exp()), torch.distributions.Normal(m, p.rsqrt())
    return torch.distributions.kl_divergence(q, prior).sum().item()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
@torch.no_grad()
def test_a_draw_and_its_gradients(sign, channels_last, compiled, without):
    if not compiled:
        without()
    prior, means, rho, e, grads = problem(channels_last)
    kl, drawn = passes.draw(prior, means, rho, e, sign)
    mu, m, p, wide_rho, wide_e, g = wide(prior, means, rho, e, grads)
    sigma = wide_rho.exp()
    assert kl.item() == pytest.approx(kl_of(mu, m, p, wide_rho), rel=1e-6)
    torch.testing.assert_close(flat(prior.layout, drawn).double(), mu + sign * sigma * wide_e, rtol=1e-6, atol=1e-6)
    assert [w.stride() for w in drawn] == list(prior.layout.strides.values())
    c = 0.37
    by_mu, by_rho = passes.draw_back(prior, means, grads, rho, e, sign, torch.tensor(c))
    torch.testing.assert_close(flat(prior.layout, by_mu).double(), g + c * p * (mu - m), rtol=1e-6, atol=1e-5)
    expected = sigma * (sign * g * wide_e + c * p * sigma) - c
    torch.testing.assert_close(by_rho.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@torch.no_grad()
def test_the_kl_and_its_gradients(channels_last, compiled, without):
    if not compiled:
        without()
    prior, means, rho, *_ = problem(channels_last)
    mu, m, p, wide_rho = wide(prior, means, rho)
    assert passes.kl(prior, means, rho).item() == pytest.approx(kl_of(mu, m, p, wide_rho), rel=1e-6)
    c = 0.37
    by_mu, by_rho = passes.kl_back(prior, means, rho, torch.tensor(c))
    torch.testing.assert_close(flat(prior.layout, by_mu).double(), c * p * (mu - m), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(by_rho.double(), c * (p * (2 * wide_rho).exp() - 1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@torch.no_grad()
def test_an_expansion_and_its_gradients(channels_last, compiled, without):
    if not compiled:
        without()
    prior, means, rho, _, before = problem(channels_last)
    after = [g + 0.01 * torch.randn(g.shape, generator=torch.Generator().manual_seed(5)) for g in before]
    mu, m, p, wide_rho, g, moved = wide(prior, means, rho, before, after)
    variance = (2 * wide_rho).exp()
    found = passes.expand(prior, means, rho, before)
    assert found.rise.item() == pytest.approx((variance * g * g).sum().item(), rel=1e-6)
    assert found.length == pytest.approx((variance * g).norm().item(), rel=3e-6)
    assert found.size == pytest.approx(mu.norm().item(), rel=1e-6)
    assert found.kl.item() == pytest.approx(kl_of(mu, m, p, wide_rho), rel=1e-6)
    shifted = flat(prior.layout, passes.shift(prior, means, rho, before, 0.3)).double()
    torch.testing.assert_close(shifted, mu + 0.3 * variance * g, rtol=1e-6, atol=1e-6)
    a, b, c = 40.0, 8.0, 0.37
    by_mu, by_rho = passes.expand_back(prior, means, rho, before, after, (a, b, c))
    expected = a * (moved - g) + c * p * (mu - m)
    torch.testing.assert_close(flat(prior.layout, by_mu).double(), expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(by_rho.double(), variance * (b * g * g + c * p) - c, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_energy_and_its_gradient(channels_last):
    prior, means, *_ = problem(channels_last)
    weights = [w.clone(memory_format=torch.preserve_format).requires_grad_() for w in means]
    (2.5 * prior.energy(weights, 3.0)).backward()
    mu, m, p = wide(prior, means)
    assert prior.energy(weights, 3.0).item() == pytest.approx((p * (mu - m) ** 2).sum().item() / 2 + 3, rel=1e-6)
    found = flat(prior.layout, [w.grad for w in weights]).double()
    torch.testing.assert_close(found, 2.5 * p * (mu - m), rtol=1e-6, atol=1e-6)


def test_a_small_kl_keeps_its_digits():
    """Its terms are of order one for each weight, and all but cancel."""
    net = nn.Linear(700, 700)
    layout = Layout(net)
    prior = DiagonalGaussian(dict.fromkeys(layout.names, 0.0), dict.fromkeys(layout.names, 0.05)).on(layout)
    means = [torch.zeros_like(p) for p in layout.params().values()]
    rho = torch.full((layout.num_params,), math.log(0.05) + 1e-2)
    with torch.no_grad():
        kl, _ = passes.draw(prior, means, rho, torch.zeros_like(rho), 1)
    expected = kl_of(*(t.double() for t in (torch.zeros(1), torch.zeros(1), torch.tensor(0.05).pow(-2), rho[:1])))
    assert kl.item() == pytest.approx(expected * layout.num_params, rel=2e-3)


@pytest.mark.parametrize("rho", [-200.0, -87.5, -20.0, 0.0, 40.0, 88.5, math.inf, math.nan])
def test_scales_at_the_ends_of_float32(rho):
    """Too small is zero to within the least number there is, too large is infinite when squared, and nan stays nan."""
    prior, means, *_ = problem()
    given = torch.full((prior.layout.num_params,), rho)
    with torch.no_grad():
        kl, drawn = passes.draw(prior, means, given, torch.ones_like(given), 1)
    off = flat(prior.layout, drawn) - flat(prior.layout, means)
    if math.isnan(rho):
        assert off.isnan().all()
        assert kl.isnan()
    elif rho > 80:
        assert (off > 1e38).all()
        assert not kl.isfinite()
    else:
        assert kl.isfinite()
        torch.testing.assert_close(off, given.exp(), rtol=1e-5, atol=1e-6)


def test_sums_and_numbers_do_not_depend_on_threads():
    n = 400_003
    w, rho, e, out = (torch.randn(n, generator=torch.Generator().manual_seed(i)) for i in range(4))
    found = []
    for threads in (1, 2, 3):
        streams = tuple(t.data_ptr() for t in (w, rho, e, out))
        sums = native.kernels.draw(threads, [n - 5, 5], [0.1, 0.2], [2.0, 3.0], streams, (1.0,))
        found.append((sums, out.clone()))
    assert all(sums == found[0][0] and torch.equal(drawn, found[0][1]) for sums, drawn in found)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (1, [1], [], [], (), (), 1),
        (1, (1,), [], [], (), ()),
        (1, [1, 1], [0.5], [], (), ()),
        (1, [1], [], [], (), ()),
        (1, ["a"], [], [], (0,), ()),
    ],
)
def test_wrong_arguments_raise(arguments):
    with pytest.raises((TypeError, ValueError)):
        native.kernels.energy(*arguments)


# -- samplers ----------------------------------------------------------------------------------------------------------


def small(channels_last=False):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, groups=2, bias=False),
        nn.Flatten(),
        nn.LayerNorm(128),
        nn.Linear(128, 5),
    )
    return net.to(memory_format=torch.channels_last) if channels_last else net


SAMPLERS = {
    "sgld": lambda net, **o: cr.samplers.SGLD(net.parameters(), lr=1e-3, num_data=50, seed=3, **o),
    "psgld": lambda net, **o: cr.samplers.PSGLD(net.parameters(), lr=1e-5, num_data=50, seed=3, **o),
    "bnp": lambda net, **o: cr.samplers.BNPSGLD(net, lr=1e-4, num_data=50, seed=3, **o),
    "bnp, printed": lambda net, **o: cr.samplers.BNPSGLD(net, lr=1e-4, num_data=50, seed=3, noise="printed", **o),
}


def by_loops(tensors, calls):
    """What compiled loops draw, by numpy: each block of 8,192 numbers of a tensor has a stream of bits."""
    call, blocks, found = next(calls), count(), []
    for t in tensors:
        sizes = [min(8192, t.numel() - begin) for begin in range(0, t.numel(), 8192)]
        numbers = torch.cat([naive(size, (11, call, 13 + next(blocks))) for size in sizes]).float()
        found.append(torch.empty_like(t).copy_(numbers.as_strided(t.shape, t.stride())))
    return found


def mixed(sampler, normal, calls, tensors, noise):
    """Layers whose inputs are normalised take their noise, and everything else draws it."""
    taken = {p for layer in getattr(sampler.preconditioner, "layers", {}).values() for p in layer.params}
    return normal(tensors, noise) if taken.issuperset(tensors) else by_loops(tensors, calls)


@pytest.mark.parametrize("units", [8, 400])  # below and above the length of vectors that are kept
@pytest.mark.parametrize("kind", [cr.MAP, cr.VL])
def test_the_penaltys_gradient_comes_first_and_the_datas_is_added_to_it_in_place(kind, units, monkeypatch):
    net, made, blank = nn.Linear(units, units), [], Layout.blank

    def recorded(self, like):
        found = blank(self, like)
        made[:] = native.addresses(found)  # a reference would itself keep autograd from adding in place
        return found

    monkeypatch.setattr(Layout, "blank", recorded)
    bnn = kind(net, cr.likelihoods.Gaussian(scale=1.0), num_data=10)
    bnn(torch.ones(4, units), torch.ones(4, units)).backward()
    assert [p.grad.data_ptr() for p in net.parameters()] == made


def test_a_penalty_beyond_float32_is_infinite_and_no_error():
    """A chain that diverges is to be told so by its loss; the sum itself is a double."""
    net = nn.Linear(1000, 1)
    nn.init.constant_(net.weight, 1e17)
    bnn = cr.MAP(net, cr.likelihoods.Gaussian(scale=1.0), num_data=10)
    bnn(torch.zeros(4, 1000), torch.zeros(4, 1))
    assert bnn.last.penalty.item() == math.inf


def test_two_streams_of_noise_are_refused():
    w = [torch.zeros(3)]
    with pytest.raises(ValueError, match="one stream"):
        native.kernels.drift(1, [3], [], [], (native.addresses(w), *2 * [Stream((1, 2, 3)).call()]), (1.0, 1.0))
    with pytest.raises(ValueError, match="three words"):
        native.kernels.drift(1, [3], [], [], (native.addresses(w), native.addresses(w), (1, 2, 3)), (1.0, 1.0))


def test_groups_of_one_shape_have_noise_of_their_own():
    weights = [nn.Parameter(torch.zeros(50)) for _ in range(2)]
    sampler = cr.samplers.SGLD([{"params": [w]} for w in weights], lr=1.0, num_data=1, seed=0)
    for w in weights:
        w.grad = torch.zeros(50)
    sampler.step()
    assert not set(weights[0].tolist()) & set(weights[1].tolist())


def test_noise_drawn_on_the_spot_is_that_of_its_blocks():
    """Of tensors longer than a block, at any number of threads."""
    tensors = [torch.zeros(20_000), torch.zeros(3), torch.zeros(50, 700)]
    for threads in (1, 3):
        moved, still = [t.clone() for t in tensors], tensors
        sizes = [t.numel() for t in tensors]
        streams = native.addresses(moved), native.addresses(still), Stream((11, 4, 13)).call()
        native.kernels.drift(threads, sizes, [], [], streams, (1.0, 2.0))
        for found, e in zip(moved, by_loops(tensors, count(4)), strict=True):
            torch.testing.assert_close(found, 2 * e, rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.7}, {"temperature": 0.0}], ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_move_as_they_do_in_torch(name, channels_last, options, without, monkeypatch):
    """Three steps in float32 by compiled loops, which draw their noise or take it, and by torch with the same noise."""
    given = torch.randn(100_000, generator=torch.Generator().manual_seed(7))
    monkeypatch.setattr("credent.noise.Noise.normal_", lambda self, out: out.copy_(given[: len(out)]))
    nets = [small(channels_last), small(channels_last)]
    x = torch.randn(9, 2, 6, 6, generator=torch.Generator().manual_seed(8)) + 3
    for turn, net in enumerate(nets):
        sampler = SAMPLERS[name](net, **options)
        sampler.noise.stream().words = (11, 0, 13)
        if turn == 1:
            without()
            monkeypatch.setattr(sampler._memory, "normal", partial(mixed, sampler, sampler._memory.normal, count()))
        for _ in range(3):
            sampler.zero_grad()
            net(x).square().sum().backward()
            sampler.step()
    first = small(channels_last)
    for start, compiled, plain in zip(*(n.parameters() for n in (first, *nets)), strict=True):
        moved = (plain - start).abs().max()
        assert moved > 0
        torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=2e-4 * moved.item())


@pytest.mark.parametrize(
    "shape", [(1, 3), (5, 1), (64, 300), (1000, 70), (3, 4, 9, 7), (130, 3, 40, 33), (2, 600, 1, 1)]
)
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_moments_of_inputs(shape, channels_last, mean):
    h = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 2 + mean
    if channels_last and len(shape) == 4:
        h = h.to(memory_format=torch.channels_last)
    layer = nn.Linear(shape[1], 1) if len(shape) == 2 else nn.Conv2d(shape[1], 1, 1)
    found = inputs.moments(layer, h, layer(h))
    over = (0,) if len(shape) == 2 else (0, 2, 3)
    variance, expected = torch.var_mean(h.double(), over, unbiased=False)
    torch.testing.assert_close(found.mean.double(), expected, rtol=1e-6, atol=4e-6)
    torch.testing.assert_close(found.variance.double(), variance, rtol=2e-5, atol=1e-9)
    assert found.rows == shape[0]


# -- what is left to torch ---------------------------------------------------------------------------------------------


def test_only_plain_float32_on_a_cpu_suits():
    class Own(torch.Tensor):
        pass

    assert native.suits(torch.zeros(2), nn.Parameter(torch.zeros(2)))
    for other in (torch.zeros(2).double(), torch.zeros(2, device="meta"), torch.zeros(2).as_subclass(Own)):
        assert not native.suits(torch.zeros(2), other)


def test_lists_are_alike_when_their_numbers_lie_alike():
    image = torch.zeros(2, 3, 4, 5)
    last = image.to(memory_format=torch.channels_last)
    assert native.alike([image, last], [image.clone(), last.clone()])
    assert not native.alike([image], [last])
    assert not native.alike([torch.zeros(4, 6)[:, ::2]], [torch.zeros(4, 6)[:, ::2]])


def test_tensors_of_other_shapes_are_not_alike():
    """A loop that took the first one's size would run over the end of the second."""
    assert not native.alike([torch.zeros(50, 10)], [torch.zeros(2, 10)])
    assert not native.alike([torch.zeros(100_000)], [torch.zeros(3)])


def test_strides_of_dimensions_of_one_do_not_matter():
    weight = torch.zeros(4, 8, 1, 1).to(memory_format=torch.channels_last)
    other = torch.empty_strided((4, 8, 1, 1), (8, 1, 1, 1))
    assert weight.stride() != other.stride()
    assert native.alike([weight], [other])


@pytest.mark.parametrize(("kind", "saved", "other"), [("psgld", 5, 20_000), ("bnp", 5, 20_000), ("bnp", 20_000, 5)])
def test_the_state_of_a_network_of_another_size_raises(kind, saved, other):
    def made(units):
        net = nn.Linear(4 if kind == "psgld" else units, units if kind == "psgld" else 4)
        sampler = SAMPLERS[kind](net, burn_in=1)
        for _ in range(2):
            sampler.zero_grad()
            net(torch.ones(3, net.in_features)).sum().backward()
            sampler.step()
        return net, sampler

    _, before = made(saved)
    net, sampler = made(other)
    sampler.load_state_dict(before.state_dict())
    net(torch.ones(3, net.in_features)).sum().backward()
    with pytest.raises(RuntimeError):
        sampler.step()


def test_negative_bits_and_functional_transforms_are_torchs():
    imaginary = torch.complex(torch.zeros(3), torch.ones(3)).conj().imag
    assert imaginary.is_neg()
    assert not native.suits(imaginary)
    seen = []
    torch.func.vmap(lambda t: seen.append(native.suits(t)) or t)(torch.zeros(2, 3))
    torch.func.grad(lambda t: seen.append(native.suits(t)) or t.sum())(torch.zeros(3))
    assert seen == [False, False]


def test_what_a_sampler_moves_has_another_version():
    """Or a graph that is used once more would give wrong gradients, and not a word."""
    for make in SAMPLERS.values():
        net = nn.Linear(3, 2)
        sampler = make(net)
        loss = net(net(torch.ones(4, 3)).repeat(1, 2)[:, :3]).square().sum()
        loss.backward(retain_graph=True)
        sampler.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_preconditioner_sees_empty_inputs():
    net = nn.Conv2d(3, 2, 3, padding=1)
    sampler = cr.samplers.BNPSGLD(net, lr=1e-4, num_data=5)
    for rows in (2, 0, 0):
        net(torch.zeros(rows, 3, 4, 4)).sum().backward()
        sampler.step()
    assert sampler.state[net.weight]["rows"] == 2


@pytest.mark.parametrize("shape", [(1000, 7), (50, 7, 9, 9)])
def test_a_first_number_far_from_the_mean_costs_no_digits(shape):
    h = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    h[0] += 1e4
    layer = nn.Linear(7, 1) if len(shape) == 2 else nn.Conv2d(7, 1, 1)
    found = inputs.moments(layer, h, layer(h))
    variance, mean = torch.var_mean(h.double(), (0,) if len(shape) == 2 else (0, 2, 3), unbiased=False)
    torch.testing.assert_close(found.mean.double(), mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.variance.double(), variance, rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [1e-18, 1e-8, 1e18])
def test_the_kl_to_a_very_wide_or_narrow_prior(scale):
    layout = Layout(nn.Linear(3, 2))
    prior = DiagonalGaussian(dict.fromkeys(layout.names, 0.0), dict.fromkeys(layout.names, scale)).on(layout)
    means, rho = [torch.zeros_like(p) for p in layout.params().values()], torch.full((8,), math.log(scale) + 1)
    with torch.no_grad():
        kl, _ = passes.draw(prior, means, rho, torch.zeros(8), 1)
    assert kl.item() == pytest.approx(8 * (math.e**2 / 2 - 1.5), rel=1e-4)


def test_a_module_of_other_sources_is_not_used(monkeypatch):
    monkeypatch.setattr(native, "sources", lambda folder: "another digest")
    with pytest.warns(UserWarning, match="of other sources"):
        assert native._loaded() is None


@pytest.mark.parametrize("objective", ["VI", "VL", "MAP"])
def test_objectives_are_the_same_without(objective, without, monkeypatch):
    """Loss and gradients of a network in float32, by compiled loops and by torch, from the same noise."""
    noise = torch.randn(100_000, generator=torch.Generator().manual_seed(7))
    monkeypatch.setattr("credent.noise.Noise.normal_", lambda self, out: out.copy_(noise[: len(out)]))
    x, y = torch.randn(64, 2, 6, 6, generator=torch.Generator().manual_seed(8)), torch.arange(64) % 5
    net = cr.smooth(small())
    found = []
    for turn in range(2):
        if turn == 1:
            without()
        torch.manual_seed(5)
        bnn = getattr(cr, objective)(copy.deepcopy(net), cr.likelihoods.Categorical(), num_data=100)
        loss = bnn(x, y)
        loss.backward()
        found.append((loss.detach(), [p.grad for p in bnn.parameters()]))
    (loss, grads), (same, others) = found
    torch.testing.assert_close(loss, same, rtol=1e-5, atol=0)
    for g, other in zip(grads, others, strict=True):
        torch.testing.assert_close(
            g, other, rtol=1e-3, atol=2e-2 * other.abs().max().item() if objective == "VL" else 1e-6
        )
