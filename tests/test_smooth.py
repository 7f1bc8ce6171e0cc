import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from credent import VL, likelihoods, smooth
from credent.errors import InputError
from credent.smooth import kinks

X, Y = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
WAYS = ["exact", "hessian"]


class Functional(nn.Module):
    """A layer and a function of its outputs."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.function = nn.Linear(3, 3), function

    def forward(self, x):
        return self.function(self.linear(x))


class Method(nn.Module):
    """As people write it, and as pickle takes it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def statement(x):
    x = x * 1.0
    x.relu_()
    return x


def vl(net, way="exact", **options):
    return VL(net, likelihoods.Categorical(), num_data=6, curvature=way, **options)


SOFTPLUS_CALLS = {
    "relu": functional.relu,
    "relu ": torch.relu,
    "relu  ": torch.Tensor.relu,
    "relu   ": lambda x: functional.relu(x, inplace=True),
    "relu_": lambda x: torch.relu_(x * 1),
    "relu_ ": lambda x: functional.relu_(x * 1),
    "relu by name": lambda x: functional.relu(input=x),
    "leaky_relu": functional.leaky_relu,
    "leaky_relu ": lambda x: functional.leaky_relu(x, 0.2, inplace=True),
    "prelu": lambda x: functional.prelu(x, torch.tensor([0.2])),
    "rrelu": functional.rrelu,
    "relu6": functional.relu6,
    "selu": functional.selu,
}
OTHER_CALLS = {
    "hardtanh": (functional.hardtanh, torch.tanh),
    "hardsigmoid": (functional.hardsigmoid, torch.sigmoid),
    "hardswish": (functional.hardswish, functional.silu),
}
NO_REPLACEMENT = {
    "clamp": lambda x: x.clamp(min=0),
    "clamp ": lambda x: torch.clamp(x, -1, 1),
    "clamp_": lambda x: (x * 1).clamp_(min=0),
    "clamp_min": lambda x: x.clamp_min(0),
    "clip": lambda x: torch.clip(x, 0),
    "abs": abs,
    "abs ": torch.abs,
    "absolute": torch.absolute,
    "softshrink": functional.softshrink,
    "hardshrink": functional.hardshrink,
    "threshold": lambda x: functional.threshold(x, 0.0, 0.0),
    "maximum": lambda x: torch.maximum(x, torch.zeros(())),
    "minimum": lambda x: torch.minimum(x, torch.zeros(())),
}
MODULES = [
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.LeakyReLU(0.2),
    nn.PReLU(),
    nn.RReLU(),
    nn.ReLU6(),
    nn.SELU(),
    nn.Threshold(0.0, 0.0),
    nn.Hardtanh(),
    nn.Hardsigmoid(),
    nn.Hardswish(),
]
SMOOTH = [nn.Softplus(), nn.Tanh(), nn.GELU(), nn.SiLU(), nn.Sigmoid(), nn.ELU(), nn.Mish(), nn.LayerNorm(3)]


# -- finding them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SOFTPLUS_CALLS, *OTHER_CALLS, *NO_REPLACEMENT])
def test_a_call_with_a_kink_is_named(name):
    calls = SOFTPLUS_CALLS | {k: kinked for k, (kinked, _) in OTHER_CALLS.items()} | NO_REPLACEMENT
    assert kinks(Functional(calls[name]), X) == [f"{name.removesuffix(' by name').strip()}()"]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_with_a_kink_is_named_by_its_place(module):
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Tanh(), copy.deepcopy(module)), nn.Linear(3, 3))
    assert kinks(net, X) == [f"{type(module).__name__} at 1.1"]
    assert kinks(copy.deepcopy(module), X.clone().requires_grad_() * 1) == [type(module).__name__]


@pytest.mark.parametrize("module", SMOOTH, ids=str)
def test_a_smooth_module_is_not(module):
    assert kinks(nn.Sequential(nn.Linear(3, 3), module), X) == []


def test_max_pooling_is_allowed():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Softplus(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    x = torch.randn(6, 1, 6, 6)
    assert kinks(net, x) == []
    for function in (lambda x: functional.max_pool1d(x, 2), lambda x: x.amax(1, keepdim=True), lambda x: x.max(1)[0]):
        assert kinks(Functional(function), X) == []
    assert torch.isfinite(vl(net)(x, Y))


def test_what_only_touches_the_data_is_no_kink():
    """Absolute values and clamps of inputs do not bend the loss."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x.abs().clamp(max=2))

    assert kinks(Net(), X) == []


def test_a_recurrent_layer_of_relus_has_kinks():
    class Net(nn.Module):
        def __init__(self, nonlinearity):
            super().__init__()
            self.rnn, self.head = nn.RNN(1, 4, nonlinearity=nonlinearity, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.rnn(x[:, :, None])[0][:, -1])

    assert kinks(Net("tanh"), X) == []
    assert kinks(Net("relu"), X) == ["RNN at rnn"]


def test_looking_leaves_no_trace():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())
    before = copy.deepcopy(net.state_dict())
    kinks(net, X)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in net.modules())
    assert net.training


def test_an_exception_leaves_no_trace_either():
    def fail(x):
        raise ZeroDivisionError

    net = nn.Sequential(Functional(fail))
    with pytest.raises(ZeroDivisionError):
        kinks(net, X)
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in net.modules())
    assert torch.overrides._get_current_function_mode() is None


# -- smooth networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOFTPLUS_CALLS)
def test_calls_become_softplus(name):
    net = Functional(SOFTPLUS_CALLS[name])
    expected = (net.linear(X).exp() + 1).log()
    torch.testing.assert_close(smooth(net)(X), expected)
    assert kinks(smooth(net), X) == []


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_calls_become_their_smooth_namesakes(name):
    kinked, namesake = OTHER_CALLS[name]
    net = Functional(kinked)
    torch.testing.assert_close(smooth(net)(X), namesake(net.linear(X)))
    assert kinks(smooth(net), X) == []


def test_a_call_in_place_for_its_effect_alone():
    net = Functional(statement)
    torch.testing.assert_close(smooth(net)(X), functional.softplus(net.linear(X)))


@pytest.mark.parametrize("name", NO_REPLACEMENT)
def test_what_has_no_smooth_namesake_stays_and_is_named(name):
    net = Functional(NO_REPLACEMENT[name])
    torch.testing.assert_close(smooth(net)(X), net(X))
    assert kinks(smooth(net), X) == kinks(net, X)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_modules_become_smooth(module):
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(copy.deepcopy(module)))
    soft = smooth(net)
    inner = net[0](X)
    expected = {nn.Hardtanh: torch.tanh, nn.Hardsigmoid: torch.sigmoid, nn.Hardswish: functional.silu}
    torch.testing.assert_close(soft(X), expected.get(type(module), functional.softplus)(inner))
    assert type(soft[1][0]) is not type(module)
    assert type(net[1][0]) is type(module)
    assert kinks(soft, X) == []
    torch.testing.assert_close(smooth(copy.deepcopy(module))(inner), soft(X))  # a network that is all activation


def test_an_activation_in_several_places():
    activation = nn.ReLU()
    net = nn.Sequential(nn.Linear(3, 3), activation, nn.Sequential(nn.Linear(3, 3), activation), activation)
    soft = smooth(net)
    assert not any(isinstance(m, nn.ReLU) for m in soft.modules())
    expected = functional.softplus(net[2][0](functional.softplus(net[0](X))))
    torch.testing.assert_close(soft(X), functional.softplus(expected))
    assert kinks(net, X) == ["ReLU at 1"] * 3


def test_parameters_keep_names_and_values_and_the_original_its_own():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.BatchNorm1d(3), Method())
    before, out = copy.deepcopy(net.state_dict()), net.eval()(X)
    soft = smooth(net)
    assert list(soft.state_dict()) == list(before)
    assert all(torch.equal(v, before[k]) for k, v in soft.state_dict().items())
    assert not soft.training
    with torch.no_grad():
        for p in soft.parameters():
            p.add_(1.0)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert torch.equal(net(X), out)
    assert isinstance(net[1], nn.ReLU)
    assert not net._forward_hooks
    soft.load_state_dict(before)
    again = smooth(Method())
    again.load_state_dict(soft[3].state_dict())
    torch.testing.assert_close(again(X), again.second(functional.softplus(again.first(X))))


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net)), smooth], ids=["copied", "pickled", "smoothed"]
)
def test_copies_are_smooth_too(how):
    torch.manual_seed(0)
    soft = smooth(Method())
    out, copied = soft(X), how(soft)
    assert torch.equal(copied(X), out)
    assert kinks(copied, X) == []
    with torch.no_grad():
        copied.second.bias.add_(1.0)
    assert torch.equal(soft(X), out)


def test_outside_its_forward_nothing_is_replaced():
    soft = smooth(Method())
    soft(X)
    assert torch.equal(torch.relu(X), X.clamp(min=0))


def test_an_exception_in_forward_ends_the_replacement():
    def fail_once(x):
        if not fail_once.failed:
            fail_once.failed = True
            raise ZeroDivisionError
        return torch.relu(x)

    fail_once.failed = False
    soft = smooth(Functional(fail_once))
    with pytest.raises(ZeroDivisionError):
        soft(X)
    assert torch.equal(torch.relu(X), X.clamp(min=0))
    torch.testing.assert_close(soft(X), functional.softplus(soft.linear(X)))
    assert torch.equal(torch.relu(X), X.clamp(min=0))


def test_smooth_networks_within_smooth_networks():
    inner = smooth(Functional(torch.relu))
    soft = smooth(nn.Sequential(inner, Functional(torch.relu)))
    torch.testing.assert_close(
        soft(X), functional.softplus(soft[1].linear(functional.softplus(inner.linear(X)))), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("training", [True, False])
def test_a_transformers_relu(training):
    """In evaluation mode without gradients torch has a fused layer, whose ReLU no one could replace."""
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True).train(training)
    soft, by_hand = smooth(net), copy.deepcopy(net)
    by_hand.activation, by_hand.activation_relu_or_gelu = functional.softplus, 0
    x = torch.randn(2, 3, 4)
    assert kinks(net, x) == ["relu()"]
    with torch.no_grad():
        torch.testing.assert_close(soft(x), by_hand(x), rtol=1e-5, atol=1e-6)
        assert (net(x) - soft(x)).abs().max() > 0.01


# -- what the objective does with them --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("net", "named"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), "ReLU at 1 is"),
        (nn.Sequential(nn.Linear(3, 3), nn.PReLU(), nn.Linear(3, 3)), "PReLU at 1 is"),
        (Functional(torch.relu), r"relu\(\) is"),
    ],
    ids=["ReLU", "PReLU", "relu"],
)
def test_differentiating_twice_refuses_kinks_by_name(way, net, named):
    with pytest.raises(InputError, match=rf"{named} linear in pieces.*credent\.smooth\(net\).*finite_difference"):
        vl(net, way)(X, Y)
    with pytest.raises(InputError, match=named):  # and does so again
        objective = vl(net, way)
        with pytest.raises(InputError):
            objective(X, Y)
        objective(X, Y)
    assert torch.isfinite(vl(net, "finite_difference")(X, Y))


def test_many_kinks_are_counted():
    layers = [m for _ in range(5) for m in (nn.Linear(3, 3), nn.ReLU())]
    with pytest.raises(InputError, match="ReLU at 1, ReLU at 3, ReLU at 5 and 2 more"):
        vl(nn.Sequential(*layers))(X, Y)


@pytest.mark.parametrize("way", WAYS)
def test_a_smooth_network_is_accepted(way):
    for net in (nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), Method()):
        objective = vl(smooth(net), way)
        objective(X, Y).backward()
        assert all(math.isfinite(p.grad.sum()) for p in objective.parameters())


class Attention(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2, dropout=p, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        h = x[:, :, None].expand(-1, -1, 4)
        return self.head(self.attention(h, h, h)[0].mean(1))


class Recurrent(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 4, 2, dropout=p, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.lstm(x[:, :, None])[0][:, -1])


DROPOUTS = {
    "Dropout at 1": lambda p: nn.Sequential(nn.Linear(3, 3), nn.Dropout(p)),
    "AlphaDropout at 1": lambda p: nn.Sequential(nn.Linear(3, 3), nn.AlphaDropout(p)),
    r"dropout\(\)": lambda p: Functional(lambda x: functional.dropout(x, p)),
    r"dropout\(\) ": lambda p: Functional(lambda x: torch.dropout(x, p, train=True)),
    "MultiheadAttention at attention": Attention,
    "LSTM at lstm": Recurrent,
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_differentiating_twice_refuses_dropout_in_training(name):
    make = DROPOUTS[name]
    with pytest.raises(InputError, match=rf"{name.strip()}.*one random mask.*finite_difference"):
        vl(make(0.5))(X, Y)
    assert torch.isfinite(vl(make(0.0))(X, Y))
    assert torch.isfinite(vl(make(0.5), "finite_difference")(X, Y))


def test_dropout_is_allowed_where_it_does_nothing():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval()
    assert torch.isfinite(vl(net)(X, Y))
    for function in (
        lambda x: functional.dropout(x, 0.5, training=False),
        lambda x: functional.dropout(x, 0.5, False),
        lambda x: torch.dropout(x, 0.5, train=False),
    ):
        assert torch.isfinite(vl(Functional(function))(X, Y))


def test_an_evaluation_before_training_does_not_let_dropout_through():
    objective = vl(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)))
    assert torch.isfinite(objective.eval()(X, Y))
    with pytest.raises(InputError, match="Dropout at 1"):
        objective.train()(X, Y)


@pytest.mark.parametrize("call", [lambda h: torch.max(h, torch.zeros_like(h)), lambda h: torch.fmax(h, h * 0)])
def test_the_larger_of_two_is_a_kink_and_the_largest_of_many_is_not(call):
    assert len(kinks(Functional(call), X)) == 1
    assert kinks(Functional(lambda h: torch.max(h, dim=1).values), X) == []


def test_a_kink_without_a_smooth_namesake_is_not_sent_to_smooth():
    net = Functional(lambda h: h.clamp(min=0))
    vl = VL(net, likelihoods.Categorical(), num_data=10, curvature="exact")
    with pytest.raises(InputError, match=r"clamp\(\) is linear in pieces.*Write curvature='finite_difference'"):
        vl(X, torch.zeros(len(X), dtype=torch.long))
