"""Per-example norms against gradients taken one example at a time."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from credent.errors import InputError
from credent.fisher import layers
from credent.fisher.norms import Norms
from credent.models import ResNet20


class Tokens(nn.Module):
    """Embedding, attention, norms: rows of (n, T, d), with layers that have no closed form."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.rms = nn.LayerNorm(8), nn.RMSNorm(8)
        self.up, self.down, self.head = nn.Linear(8, 24), nn.Linear(24, 8), nn.Linear(8, 3)

    def forward(self, tokens):
        h = self.embedding(tokens)
        z = self.norm(h)
        h = h + self.attention(z, z, z, need_weights=False)[0]
        h = h + self.down(functional.gelu(self.up(self.rms(h))))
        return self.head(h.mean(1))


class Twice(nn.Module):
    """One layer in two places, and one whose weight is also used by hand."""

    def __init__(self):
        super().__init__()
        self.shared, self.mixed, self.head = nn.Linear(5, 5), nn.Linear(5, 4), nn.Linear(5, 3)
        self.idle = nn.Linear(2, 2)

    def forward(self, x):
        h = torch.tanh(self.shared(torch.tanh(self.shared(x))))
        return self.head(torch.tanh(self.mixed(h)) @ self.mixed.weight)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.head(torch.tanh(self.two(torch.tanh(self.one(x)))))


class TimeFirst(nn.Module):
    """Layers that see (T, n, d), with as many steps as examples, and (n T, d)."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = torch.tanh(self.one(x.transpose(0, 1)))
        h = torch.tanh(self.two(h.reshape(-1, 4))).reshape(h.shape)
        return self.head(h.cumsum(0)[-1])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Looks(nn.Module):
    """A network that looks at its numbers, which vmap cannot follow."""

    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.full((3,), 0.7)), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(x * self.scale if bool(x.sum() > -100) else x)


class Scaled(nn.Linear):
    """A subclass that computes something else."""

    def forward(self, x):
        return 3 * super().forward(x)


def flat(*modules):
    return nn.Sequential(*modules, nn.Flatten(), nn.LazyLinear(3))


def tokens(n):
    return torch.randint(11, (n, 6))


NETWORKS = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), (5,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(5, 7, bias=False), nn.Tanh(), nn.Linear(7, 3)), (5,)),
    "sequence": (lambda: flat(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 4)), (3, 5)),
    "conv2d": (lambda: flat(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3)), (3, 6, 7)),
    "stride, dilation": (
        lambda: flat(nn.Conv2d(2, 4, (3, 2), stride=(2, 3), dilation=(2, 1), padding=(1, 2))),
        (2, 9, 8),
    ),
    "gram": (lambda: flat(nn.Conv2d(24, 30, 3, stride=2, padding=1)), (24, 4, 3)),
    "groups": (
        lambda: flat(nn.Conv2d(4, 6, 3, groups=2, padding="same"), nn.Tanh(), nn.Conv2d(6, 6, 2, groups=6)),
        (4, 5, 5),
    ),
    "gram in groups": (lambda: flat(nn.Conv2d(32, 40, 3, groups=2)), (32, 4, 4)),
    "padded round": (lambda: flat(nn.Conv2d(2, 4, 3, padding=(1, 2), padding_mode="circular")), (2, 5, 4)),
    "conv1d": (
        lambda: flat(nn.Conv1d(3, 4, 3, stride=2, padding=2, dilation=2), nn.Tanh(), nn.Conv1d(4, 4, 1)),
        (3, 9),
    ),
    "conv3d": (lambda: flat(nn.Conv3d(2, 3, (2, 3, 2), stride=(1, 2, 1), padding=1, groups=1)), (2, 4, 5, 3)),
    "norms": (
        lambda: flat(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.GroupNorm(2, 4), nn.LayerNorm([3, 4])
        ),
        (3, 5, 6),
    ),
    "batch norm of features": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)),
        (4,),
    ),
    "instance norm": (lambda: flat(nn.Conv2d(2, 3, 2), nn.InstanceNorm2d(3, affine=True), nn.PReLU()), (2, 5, 5)),
    "transposed": (lambda: flat(nn.ConvTranspose2d(2, 3, 3)), (2, 4, 4)),
    "tokens": (Tokens, tokens),
    "twice": (Twice, (5,)),
    "tied": (Tied, (5,)),
    "time first": (TimeFirst, (6, 3)),
    "two times first": (lambda: nn.Sequential(TimeFirst(), nn.Softmax(-1)), (2, 3)),
    "recurrent": (Recurrent, (4, 3)),
    "looks": (Looks, (3,)),
    "subclass": (lambda: nn.Sequential(Scaled(5, 4), nn.Tanh(), nn.Linear(4, 3)), (5,)),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), (5,)),
}


def build(name, dtype, n=6):
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    net = make()
    x = shape(n) if callable(shape) else torch.randn(n, *shape)
    net(x)  # lazy layers; and BatchNorm's statistics become those of something
    with torch.no_grad():
        for p in net.parameters():  # gains and shifts away from 1 and 0
            p.add_(0.1 * torch.randn(p.shape))
    return net.to(dtype), x.to(dtype) if x.is_floating_point() else x


def one_by_one(net, x, cotangent):
    """The oracle: a backward pass for every example."""
    net.eval()
    names = [k for k, p in net.named_parameters() if p.requires_grad]
    rows = {k: [] for k in names}
    for i in range(len(x)):
        net.zero_grad()
        net(x[i : i + 1]).backward(cotangent[i : i + 1])
        for k, p in net.named_parameters():
            if p.requires_grad:
                rows[k].append(0.0 if p.grad is None else p.grad.square().sum().item())
    net.zero_grad()
    return {k: torch.tensor(v, dtype=torch.float64) for k, v in rows.items()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", NETWORKS)
def test_norms_are_those_of_the_single_gradients(name, dtype, tolerance):
    net, x = build(name, dtype)
    cotangent = torch.randn(6, 3, dtype=dtype)
    expected = one_by_one(copy.deepcopy(net), x, cotangent)
    found = Norms(net.train())({}, x, lambda outputs: cotangent)
    assert list(found) == list(expected)
    total, sum_expected = sum(found.values()).double(), sum(expected.values())
    torch.testing.assert_close(total, sum_expected, rtol=tolerance, atol=0)
    for k, squares in expected.items():
        assert found[k].dtype == dtype
        torch.testing.assert_close(
            found[k].double(), squares, rtol=10 * tolerance, atol=tolerance * sum_expected.mean()
        )


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("norms", set()),
        ("gram in groups", set()),
        ("sequence", set()),
        ("twice", {"shared.weight", "shared.bias", "mixed.weight"}),
        ("tied", {"one.weight"}),
        ("time first", {"one.weight", "one.bias", "two.weight", "two.bias"}),
        ("two times first", {"0.one.weight", "0.one.bias", "0.two.weight", "0.two.bias"}),
        ("subclass", {"0.weight", "0.bias"}),
        ("instance norm", {"1.weight", "1.bias", "2.weight"}),
    ],
)
def test_closed_forms_are_used_where_they_hold(name, rest):
    net, x = build(name, torch.float64)
    norms = Norms(net)
    norms({}, x, torch.ones_like)
    assert set(norms._plan.rest) == rest
    closed = {k for names in norms._plan.closed.values() for k in names.values()}
    assert closed == {k for k, _ in net.named_parameters()} - rest - {"idle.weight", "idle.bias"}


def test_a_layer_takes_the_cheaper_form():
    """L^2 (i + o) against L i o: the two cross where L = i o / (i + o)."""
    assert layers.gram_is_cheaper(4608, 512, 16)
    assert not layers.gram_is_cheaper(144, 16, 1024)
    assert layers.gram_is_cheaper(20, 20, 9)
    assert not layers.gram_is_cheaper(20, 20, 10)


def test_vmap_in_chunks_is_vmap(monkeypatch):
    net, x = build("tokens", torch.float64)
    whole = Norms(net)({}, x, torch.ones_like)
    monkeypatch.setattr("credent.fisher.norms._BYTES", 2 * 8 * 700)
    chunked = Norms(net)({}, x, torch.ones_like)
    for k, squares in whole.items():
        torch.testing.assert_close(chunked[k], squares, rtol=1e-12, atol=1e-14)


def test_scores_are_averaged():
    net, x = build("twice", torch.float64)
    scores = torch.randn(3, 6, 3, dtype=torch.float64)
    given = iter(scores)
    found = Norms(net)({}, x, lambda outputs: next(given), labels=3)
    each = [one_by_one(net, x, score) for score in scores]
    for k, squares in found.items():
        torch.testing.assert_close(squares, sum(e[k] for e in each) / 3, rtol=1e-10, atol=1e-14)


def test_other_weights_than_the_networks_own():
    net, x = build("norms", torch.float64)
    other = copy.deepcopy(net)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1.3)
    before = {k: p.clone() for k, p in net.state_dict().items()}
    found = Norms(net)({k: p.detach() for k, p in other.named_parameters()}, x, torch.ones_like)
    expected = one_by_one(other, x, torch.ones(6, 3, dtype=torch.float64))
    for k, squares in expected.items():
        torch.testing.assert_close(found[k], squares, rtol=1e-10, atol=0)
    assert all(torch.equal(before[k], p) for k, p in net.state_dict().items())


def test_frozen_parameters_do_not_count():
    net, x = build("linear", torch.float64)
    net[0].requires_grad_(False)
    found = Norms(net)({}, x, torch.ones_like)
    assert list(found) == ["2.weight", "2.bias"]
    torch.testing.assert_close(found["2.bias"], torch.full((6,), 3.0, dtype=torch.float64))


def test_a_user_s_hook_and_channels_last():
    net, x = build("conv2d", torch.float64)
    net[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    net = net.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    cotangent = torch.randn(6, 3, dtype=torch.float64)
    found = Norms(net)({}, x, lambda outputs: cotangent)
    for k, squares in one_by_one(net, x, cotangent).items():
        torch.testing.assert_close(found[k], squares, rtol=1e-10, atol=0)


def test_resnet20_in_single_precision():
    torch.manual_seed(0)
    net, x = ResNet20(width=8).double(), torch.randn(4, 3, 32, 32, dtype=torch.float64)
    net(x)
    cotangent = torch.randn(4, 10, dtype=torch.float64)
    expected = sum(one_by_one(copy.deepcopy(net), x, cotangent).values())
    norms = Norms(net)
    torch.testing.assert_close(sum(norms({}, x, lambda outputs: cotangent).values()), expected, rtol=1e-10, atol=0)
    assert norms._plan.rest == []
    found = sum(Norms(net.float())({}, x.float(), lambda outputs: cotangent.float()).values())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


class Masks(TorchDispatchMode):
    """Which gradients the backward passes of convolutions are asked for: (input, weight, bias)."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if function is torch.ops.aten.convolution_backward.default:
            self.seen.append(tuple(arguments[-1]))
        return function(*arguments, **(keywords or {}))


def test_no_gradient_by_weights_is_computed():
    net, x = build("conv2d", torch.float64)
    norms = Norms(net)
    norms({}, x, torch.ones_like)
    with Masks() as masks:
        norms({}, x, torch.ones_like)
    assert masks.seen == [(True, False, False)]  # the second convolution's, to the first one's output
    assert all(p.grad is None for p in net.parameters())


def test_batch_norm_without_statistics_has_no_fisher_information():
    with pytest.raises(InputError, match="track_running_stats=True"):
        Norms(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)))
