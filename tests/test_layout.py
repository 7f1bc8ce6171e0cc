import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import credent as cr
from credent.errors import InputError
from credent.layout import Layout, Role


@pytest.fixture(autouse=True)
def _short_vectors_are_kept_too(monkeypatch):
    """So that small networks show what happens to memory that large ones use again."""
    monkeypatch.setattr("credent.layout._SHORT", 0)


class Net(nn.Module):
    """A backbone, a head, and an embedding that is also the decoder."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.backbone = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5))
        self.head = nn.Linear(5, 4)
        self.decoder = nn.Linear(4, 7, bias=False)
        self.decoder.weight = self.embedding.weight
        self.alias = self.head


EMBEDDING = ("embedding.weight",)
BACKBONE = ("backbone.0.weight", "backbone.0.bias", "backbone.1.weight", "backbone.1.bias")
HEAD = ("head.weight", "head.bias")


# -- which parameters are random ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("random", "names"),
    [
        (None, EMBEDDING + BACKBONE + HEAD),
        ("head.*", HEAD),
        ("*.weight", ("embedding.weight", "backbone.0.weight", "backbone.1.weight", "head.weight")),
        ("head.bias", ("head.bias",)),
        (["head.*", "embedding.*"], EMBEDDING + HEAD),  # in the network's order
        (("backbone.?.bias", "backbone.0.*"), ("backbone.0.weight", "backbone.0.bias", "backbone.1.bias")),
        ((name for name in ("head.*",)), HEAD),
        ("decoder.weight", EMBEDDING),  # a tied weight by its other name
        ("alias.*", HEAD),  # a module by its other name
        (["decoder.*", "embedding.*"], EMBEDDING),
        (lambda name, p: p.ndim > 1, ("embedding.weight", "backbone.0.weight", "head.weight")),
        (lambda name, p: name.startswith("head"), HEAD),
    ],
)
def test_random_chooses_by_pattern_or_predicate(random, names):
    layout = Layout(Net(), random)
    assert layout.names == names
    assert layout.num_params == sum(p.numel() for p in layout.params().values())


def test_patterns_choose_among_what_is_trainable():
    net = Net()
    net.backbone[0].weight.requires_grad_(False)
    assert "backbone.0.weight" not in Layout(net).names
    assert Layout(net, "backbone.0.*").names == ("backbone.0.bias",)
    assert Layout(net, lambda name, p: True).names == Layout(net).names


@pytest.mark.parametrize("random", ["haed.*", ["head.*", "haed.*"], "head", "Head.weight"])
def test_an_unknown_pattern_is_refused_with_what_is_near(random):
    with pytest.raises(InputError, match=r"matches no parameter; near it: .*head\.weight"):
        Layout(Net(), random)


def test_a_pattern_like_nothing_lists_what_there_is():
    with pytest.raises(InputError, match=r"near it: embedding\.weight, backbone\.0\.weight, .* and 2 more"):
        Layout(Net(), "qqq")


def test_a_pattern_of_frozen_parameters_only_is_refused():
    net = Net()
    net.backbone.requires_grad_(False)
    with pytest.raises(InputError, match=r"'backbone\.0\.\*' matches only frozen .*requires_grad_\(True\)"):
        Layout(net, "backbone.0.*")
    assert Layout(net, "*").names == EMBEDDING + HEAD


def test_choosing_nothing_is_refused():
    with pytest.raises(InputError, match="returned False for every trainable parameter"):
        Layout(Net(), lambda name, p: False)
    with pytest.raises(InputError, match="no trainable parameter"):
        Layout(Net().requires_grad_(False))
    with pytest.raises(InputError, match="no trainable parameter"):
        Layout(nn.ReLU())


def test_parameters_of_several_types_are_refused_unless_chosen_apart():
    net = nn.Sequential(nn.Linear(2, 2).double(), nn.Linear(2, 2))
    with pytest.raises(InputError, match=r"torch\.float32 on cpu, torch\.float64 on cpu.*net\.float\(\)"):
        Layout(net)
    assert Layout(net, "1.*").names == ("1.weight", "1.bias")


# -- what a parameter does ---------------------------------------------------------------------------------------------


def weight(fan_in, fan_out):
    return Role("weight", fan_in, fan_out)


BIAS, GAIN = Role("bias"), Role("gain")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.decoder = nn.Embedding(11, 3), nn.Linear(3, 11)
        self.decoder.weight = self.embedding.weight


# Every fan counted by hand: the inputs that are summed into one output, the outputs that one input reaches.
ROLES = {
    "linear": (nn.Linear(3, 5), {"weight": weight(3, 5), "bias": BIAS}),
    "conv1d": (nn.Conv1d(2, 6, 5), {"weight": weight(10, 30), "bias": BIAS}),
    "conv2d": (nn.Conv2d(3, 8, (3, 5)), {"weight": weight(45, 120), "bias": BIAS}),
    "conv3d": (nn.Conv3d(2, 4, 3, bias=False), {"weight": weight(54, 108)}),
    "grouped": (nn.Conv2d(6, 12, 3, groups=3), {"weight": weight(18, 36), "bias": BIAS}),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8, bias=False), {"weight": weight(9, 9)}),
    "transposed": (nn.ConvTranspose2d(4, 6, (2, 3)), {"weight": weight(24, 36), "bias": BIAS}),
    "transposed1d": (nn.ConvTranspose1d(4, 6, 5, groups=2), {"weight": weight(10, 15), "bias": BIAS}),
    "bilinear": (nn.Bilinear(3, 4, 5), {"weight": weight(12, 20), "bias": BIAS}),
    "embedding": (nn.Embedding(11, 3), {"weight": weight(1, 3)}),
    "bag": (nn.EmbeddingBag(11, 3), {"weight": weight(1, 3)}),
    "tied": (Tied(), {"embedding.weight": weight(3, 11), "decoder.bias": BIAS}),
    "batch norm": (nn.BatchNorm2d(3), {"weight": GAIN, "bias": BIAS}),
    "instance norm": (nn.InstanceNorm1d(3, affine=True), {"weight": GAIN, "bias": BIAS}),
    "layer norm": (nn.LayerNorm((3, 4)), {"weight": GAIN, "bias": BIAS}),
    "group norm": (nn.GroupNorm(2, 4), {"weight": GAIN, "bias": BIAS}),
    "rms norm": (nn.RMSNorm(4), {"weight": GAIN}),
    "prelu": (nn.PReLU(3), {"weight": BIAS}),
    "lstm": (
        nn.LSTM(3, 4),
        {"weight_ih_l0": weight(3, 16), "weight_hh_l0": weight(4, 16), "bias_ih_l0": BIAS, "bias_hh_l0": BIAS},
    ),
    "gru": (nn.GRU(3, 4, bias=False), {"weight_ih_l0": weight(3, 12), "weight_hh_l0": weight(4, 12)}),
    "attention": (
        nn.MultiheadAttention(4, 2, add_bias_kv=True),
        {
            "in_proj_weight": weight(4, 12),
            "in_proj_bias": BIAS,
            "bias_k": BIAS,
            "bias_v": BIAS,
            "out_proj.weight": weight(4, 4),
            "out_proj.bias": BIAS,
        },
    ),
    "spectral norm": (
        parametrizations.spectral_norm(nn.Linear(3, 5)),
        {"bias": BIAS, "parametrizations.weight.original": weight(3, 5)},
    ),
}


@pytest.mark.parametrize("name", ROLES)
def test_roles(name):
    net, roles = ROLES[name]
    assert Layout(net).roles == roles


def test_the_natural_scale_keeps_outputs_of_order_one():
    """With weights of the natural scale and unit inputs, a layer's outputs have unit variance."""
    torch.manual_seed(0)
    for layer, x in [
        (nn.Linear(50, 400, bias=False), torch.randn(400, 50)),
        (nn.Conv2d(6, 60, 3, groups=2, bias=False), torch.randn(50, 6, 12, 12)),
        (nn.ConvTranspose2d(40, 60, 3, groups=2, bias=False), torch.randn(20, 40, 9, 9)),
    ]:
        scale = Layout(layer).roles["weight"].natural_scale
        nn.init.normal_(layer.weight, std=scale)
        out = layer(x)
        inner = out[..., 2:-2, 2:-2] if out.ndim == 4 else out  # where no border cuts the sum short
        assert inner.std().item() == pytest.approx(1, abs=0.05)
    assert Role("weight", 9, 4).natural_scale == 1 / 3
    assert BIAS.natural_scale == GAIN.natural_scale == 1


# -- one vector --------------------------------------------------------------------------------------------------------


def net_of_several_shapes(channels_last):
    net = nn.Sequential(nn.Conv2d(2, 3, (2, 3)), nn.Flatten(), nn.Linear(4, 2)).double()
    net.register_parameter("scalar", nn.Parameter(torch.tensor(1.0, dtype=torch.float64)))
    return net.to(memory_format=torch.channels_last) if channels_last else net


@pytest.fixture(params=[False, True], ids=["contiguous", "channels_last"])
def layout(request):
    torch.manual_seed(0)
    return Layout(net_of_several_shapes(request.param))


def params_like(layout):
    return {k: torch.randn_like(p).detach() for k, p in layout.params().items()}


def test_flatten_and_unflatten_undo_each_other(layout):
    params = params_like(layout)
    flat = layout.flatten(params)
    assert flat.shape == (layout.num_params,)
    back = layout.unflatten(flat)
    assert list(back) == list(params) == list(layout.names)
    for k, w in params.items():
        assert torch.equal(back[k], w)
        assert back[k].stride() == layout.params()[k].stride()
    assert torch.equal(layout.flatten(back), flat)
    assert flat.sort().values.tolist() == torch.cat([w.flatten() for w in params.values()]).sort().values.tolist()


def test_contiguous_parameters_lie_in_row_major_order():
    layout = Layout(net_of_several_shapes(False))
    params = params_like(layout)
    assert torch.equal(layout.flatten(params), torch.cat([w.reshape(-1) for w in params.values()]))


def test_flatten_copies_and_unflatten_shares(layout):
    params = params_like(layout)
    flat = layout.flatten(params)
    before = params["2.weight"].clone()
    for view in layout.unflatten(flat).values():
        view.fill_(7.0)
    assert flat.unique().tolist() == [7.0]
    assert torch.equal(params["2.weight"], before)


def test_unflatten_starts_where_the_vector_does(layout):
    P = layout.num_params
    rows = torch.arange(3.0 * P).view(3, P)
    for k, view in layout.unflatten(rows[1]).items():
        assert torch.equal(view, layout.unflatten(rows[1].clone())[k])


def test_views_give_the_gradients_of_naive_slices(layout):
    params, weights = params_like(layout), params_like(layout)
    order = layout.unflatten(torch.arange(float(layout.num_params)))  # where in the vector each number lies

    def loss(views):
        return sum((weights[k] * views[k].sin()).sum() for k in views if k != "2.bias")  # one view is not used

    flat = layout.flatten(params).requires_grad_()
    loss(layout.views(flat)).backward()
    naive = layout.flatten(params).requires_grad_()
    value = loss({k: naive[index.long()] for k, index in order.items()})
    value.backward()
    assert loss(layout.views(flat)).item() == pytest.approx(value.item(), rel=1e-14)
    torch.testing.assert_close(flat.grad, naive.grad, rtol=1e-14, atol=0)
    assert (flat.grad == 0).sum() == 2


def test_params_are_the_networks_own_also_after_conversion():
    net = nn.Linear(2, 3)
    layout = Layout(net)
    assert layout.params()["weight"] is net.weight
    net.weight = nn.Parameter(torch.zeros(3, 2))
    assert layout.params()["weight"] is net.weight
    net.double()
    with torch.no_grad():
        assert layout.flatten(layout.params()).dtype == torch.float64
    assert math.prod(layout.shapes["weight"]) == 6


# -- vectors that are used again ---------------------------------------------------------------------------------------


def test_a_vector_in_use_is_never_handed_out_again():
    layout = Layout(nn.Linear(3, 2))
    like = torch.zeros(1)
    held = [layout.vector(like).fill_(i) for i in range(12)]
    for i, vector in enumerate(held):
        assert (vector == i).all()
    view = held[0].as_strided((2,), (1,))
    held.clear()  # only a view is left of the first one
    for _ in range(12):
        layout.vector(like).fill_(-1)
    assert (view == 0).all()


def test_a_vector_out_of_use_is_handed_out_again():
    layout = Layout(nn.Linear(3, 2))
    address = layout.vector(torch.zeros(1)).data_ptr()
    assert layout.vector(torch.zeros(1)).data_ptr() == address
    assert layout.vector(torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


def test_two_losses_before_one_backward_keep_their_own_draws():
    """Accumulated, retained and interleaved graphs must not see each other's memory."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    bnn = cr.VI(net, cr.likelihoods.Gaussian(scale=1.0), num_data=8)
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
    state = copy.deepcopy(bnn.state_dict())

    def gradients(run):
        bnn.load_state_dict(state)
        bnn.zero_grad()
        run()
        return [p.grad.clone() for p in bnn.parameters()]

    def one_by_one():
        for _ in range(4):
            bnn(x, y).backward()

    def together():
        sum(bnn(x, y) for _ in range(4)).backward()

    def backwards():
        for loss in reversed([bnn(x, y) for _ in range(4)]):
            loss.backward()

    def twice():
        losses = [bnn(x, y) for _ in range(4)]
        for loss in losses:
            (loss / 2).backward(retain_graph=True)
        for loss in losses:
            (loss / 2).backward()

    expected = gradients(one_by_one)
    for run in (together, backwards, twice):
        for got, wanted in zip(gradients(run), expected, strict=True):
            assert torch.allclose(got, wanted, rtol=1e-10)


def test_roles_outside_torchs_own_layers():
    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

    class Conv1D(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 12))  # 4 inputs, 12 outputs

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.position = nn.Parameter(torch.zeros(1, 17, 8))
            self.norm, self.mix = RMSNorm(), Conv1D()

    roles = Layout(Tokens()).roles
    assert roles["position"] == Role("bias")
    assert roles["norm.weight"].kind == "gain"
    assert (roles["mix.weight"].fan_in, roles["mix.weight"].fan_out) == (4, 12)
    assert Layout(nn.Linear(5, 1)).roles["weight"].fan_in == 5


def test_kept_memory_does_not_remember_gradients() -> None:
    layout = Layout(nn.Linear(3, 2))
    flat = layout.flatten(layout.params())  # of leaves: it has a history
    assert flat.requires_grad
    address = flat.data_ptr()
    del flat
    again = layout.vector(torch.zeros(()))
    assert again.data_ptr() == address  # the same memory
    assert not again.requires_grad


def padded():
    return nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Flatten(), nn.Linear(6, 2))


def test_a_row_for_padding_is_warned_of_where_weights_are_drawn():
    likelihood = cr.likelihoods.Categorical()
    match = r"0\.weight has a row for padding \(padding_idx=0\).*random=lambda k, p: k != '0\.weight'"
    for objective in (cr.VI, cr.VL):
        with pytest.warns(UserWarning, match=match):
            objective(padded(), likelihood, num_data=4)
    cr.VI(padded(), likelihood, num_data=4, random=lambda k, p: k != "0.weight")
    bnn = cr.MAP(padded(), likelihood, num_data=4)
    rows = [(torch.ones(4, 2, dtype=torch.long), torch.zeros(4, dtype=torch.long))]
    cr.fit(bnn, None, rows, steps=1, progress=False)
    sampler = cr.samplers.SGLD(bnn.net.parameters(), lr=1e-5, num_data=4)
    with pytest.warns(UserWarning, match=match):
        cr.fit(bnn, sampler, rows, steps=1, keep=cr.Thin(0.0, every=1), progress=False)
