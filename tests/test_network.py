import copy

import pytest
import torch
from torch import nn

from credent.errors import InputError
from credent.network import Network, owners, take


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def norm_net(norm):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 3, 2), norm, nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 2)).double()


BATCH_NORM = pytest.param(lambda: nn.BatchNorm1d(3), id="BatchNorm")
INSTANCE_NORM = pytest.param(lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), id="InstanceNorm")
BOTH = pytest.mark.parametrize("norm", [BATCH_NORM, INSTANCE_NORM])


class Returns(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.value = value

    def forward(self, x):
        return self.value(x * self.weight)


# -- outputs and arguments ---------------------------------------------------------------------------------------------


def test_logits_are_taken_from_a_mapping():
    out = Network(Returns(lambda f: {"loss": None, "logits": f}))({"weight": torch.tensor([3.0])}, torch.ones(2))
    assert out.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("value", [lambda f: (f, None), lambda f: {"hidden": f}, lambda f: {"logits": None}])
def test_other_outputs_are_refused_in_words(value):
    with pytest.raises(InputError, match="a likelihood needs one tensor; wrap the network"):
        Network(Returns(value)).mean(torch.ones(2))


class Difference(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        return self.scale * (a - b)


@pytest.mark.parametrize("pack", [lambda a, b: (a, b), lambda a, b: [a, b], lambda a, b: {"b": b, "a": a}])
def test_several_arguments(pack):
    x = pack(torch.tensor(5.0), torch.tensor(2.0))
    network = Network(Difference())
    assert network.mean(x).item() == 6.0
    assert network({"scale": torch.tensor(10.0)}, x).item() == 30.0


def test_part_of_the_parameters_may_be_given():
    net = nn.Linear(1, 1)
    nn.init.constant_(net.weight, 2.0)
    nn.init.constant_(net.bias, 5.0)
    assert Network(net)({"bias": torch.tensor([1.0])}, torch.tensor([[3.0]])).item() == 7.0


def test_gradients_flow_to_the_given_parameters_and_not_to_the_networks():
    net = nn.Linear(2, 1, bias=False)
    given = torch.tensor([[1.0, 2.0]], requires_grad=True)
    Network(net)({"weight": given}, torch.tensor([[3.0, 4.0]])).sum().backward()
    assert given.grad.tolist() == [[3.0, 4.0]]
    assert net.weight.grad is None


def test_owners_are_all_places_of_a_parameter():
    net = nn.Module()
    net.a, net.b = nn.Embedding(3, 2), nn.Linear(2, 3)
    net.b.weight = net.a.weight
    net.c = net.b
    found = owners(net)
    assert {k: [(m, attribute) for m, attribute in v] for k, v in found.items()} == {
        "a.weight": [(net.a, "weight"), (net.b, "weight")],
        "b.bias": [(net.b, "bias")],
    }
    assert list(found) == [name for name, _ in net.named_parameters()]


def test_a_lazy_layer_is_refused_in_words():
    with pytest.raises(InputError, match=r"LazyLinear '1' has no shapes yet; run one batch through it first: net\(x\)"):
        Network(nn.Sequential(nn.ReLU(), nn.LazyLinear(2)))


# -- running statistics ------------------------------------------------------------------------------------------------


def buffers(net):
    return {k: b.clone() for k, b in net.named_buffers()}


@BOTH
def test_frozen_statistics_normalise_as_in_training_and_record_nothing(norm):
    net, x = norm_net(norm()), normal(5, 2, 5)
    net[2].p = 0.0
    net(normal(5, 2, 5, seed=1))  # statistics away from where they start
    before, identities = buffers(net), [id(b) for b in net.buffers()]
    expected = copy.deepcopy(net)(x)
    with Network(net).frozen_statistics():
        torch.testing.assert_close(net(x), expected, rtol=0, atol=1e-14)
    assert [id(b) for b in net.buffers()] == identities
    torch.testing.assert_close(buffers(net), before, rtol=0, atol=0)
    net(x)
    assert not torch.equal(net[1].running_mean, before["1.running_mean"])  # and afterwards it records again


@BOTH
def test_frozen_statistics_come_back_after_an_exception(norm):
    net = norm_net(norm())
    before, identities = buffers(net), [id(b) for b in net.buffers()]
    with pytest.raises(RuntimeError), Network(net).frozen_statistics():
        net(normal(5, 7, 5))  # 7 channels where the network takes 2
    assert [id(b) for b in net.buffers()] == identities
    torch.testing.assert_close(buffers(net), before, rtol=0, atol=0)
    net(normal(5, 2, 5))
    assert not torch.equal(net[1].running_mean, before["1.running_mean"])


@BOTH
def test_frozen_statistics_leave_evaluation_alone(norm):
    net, x = norm_net(norm()), normal(5, 2, 5)
    net(x)
    net.eval()
    expected = net(x)
    with Network(net).frozen_statistics():
        assert torch.equal(net(x), expected)


def test_evaluating_gives_back_every_mode():
    net = norm_net(nn.BatchNorm1d(3))
    net.train()
    net[1].eval()  # a frozen norm in a network that trains
    modes = [m.training for m in net.modules()]
    x = normal(4, 2, 5)
    expected = copy.deepcopy(net).eval()(x)
    with Network(net).evaluating():
        assert not any(m.training for m in net.modules())
        assert torch.equal(net(x), expected)
    assert [m.training for m in net.modules()] == modes
    with pytest.raises(ArithmeticError), Network(net).evaluating():
        raise ArithmeticError
    assert [m.training for m in net.modules()] == modes


def statistics_by_hand(net, params, batches):
    """Averages over batches of the mean and unbiased variance of what the norm layer receives."""
    means, variances = [], []
    for x in batches:
        h = nn.functional.conv1d(x, params["0.weight"], params["0.bias"])
        if isinstance(net[1], nn.BatchNorm1d):
            means.append(h.mean((0, 2)))
            variances.append(h.transpose(0, 1).flatten(1).var(1))
        else:  # per instance first
            means.append(h.mean(2).mean(0))
            variances.append(h.var(2).mean(0))
    return torch.stack(means).mean(0), torch.stack(variances).mean(0)


@BOTH
def test_statistics_of_a_draw_are_plain_averages_at_that_draw(norm):
    net = norm_net(norm())
    net(normal(5, 2, 5, seed=9))
    net.eval()
    params = {"0.weight": normal(3, 2, 2, seed=1), "0.bias": normal(3, seed=2)}
    batches = [2 * normal(6, 2, 5, seed=3), normal(5, 2, 5, seed=4) + 1, normal(4, 2, 5, seed=5)]
    before, identities, momentum = buffers(net), [id(b) for b in net.buffers()], net[1].momentum
    with torch.no_grad(), Network(net).statistics_of(params, batches):
        mean, variance = statistics_by_hand(net, params, batches)
        torch.testing.assert_close(net[1].running_mean, mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(net[1].running_var, variance, rtol=1e-12, atol=1e-12)
        assert not net[1].training
        x = normal(3, 2, 5, seed=6)
        h = nn.functional.conv1d(x, params["0.weight"], params["0.bias"])
        h = (h - mean[:, None]) / (variance[:, None] + net[1].eps).sqrt() * net[1].weight[:, None]
        expected = net[4]((h + net[1].bias[:, None]).flatten(1))
        torch.testing.assert_close(Network(net)(params, x), expected, rtol=1e-11, atol=1e-11)
    assert [id(b) for b in net.buffers()] == identities
    torch.testing.assert_close(buffers(net), before, rtol=0, atol=0)
    assert net[1].momentum == momentum
    assert not any(m.training for m in net.modules())


@BOTH
@pytest.mark.parametrize("where", ["in a batch", "within"])
def test_statistics_come_back_after_an_exception(norm, where):
    net = norm_net(norm())
    net(normal(5, 2, 5, seed=9))
    before, identities, momentum = buffers(net), [id(b) for b in net.buffers()], net[1].momentum
    batches = [normal(5, 2, 5), normal(5, 7, 5)][: 2 if where == "in a batch" else 1]
    with pytest.raises((RuntimeError, ArithmeticError)), Network(net).statistics_of({}, batches):
        raise ArithmeticError
    assert [id(b) for b in net.buffers()] == identities
    torch.testing.assert_close(buffers(net), before, rtol=0, atol=0)
    assert net[1].momentum == momentum
    assert all(m.training for m in net.modules())


def test_dropout_stays_off_while_statistics_are_taken():
    net = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2, affine=False)).double().eval()
    x = normal(50, 2)
    with Network(net).statistics_of({}, [x]):
        torch.testing.assert_close(net[1].running_mean, x.mean(0))


# -- layer inputs ------------------------------------------------------------------------------------------------------


def test_captured_inputs_are_what_the_layers_received():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 5), nn.Tanh()), nn.Linear(5, 2)).double()
    x, params = normal(6, 3), {"0.weight": normal(4, 3, seed=1)}
    with Network(net).captured_inputs(nn.Linear) as inputs:
        Network(net)(params, x)
    first = torch.tanh(x @ params["0.weight"].T + net[0].bias)
    second = torch.tanh(first @ net[2][0].weight.T + net[2][0].bias)
    assert list(inputs) == ["0", "2.0", "3"]
    torch.testing.assert_close(inputs, {"0": x, "2.0": first.detach(), "3": second.detach()}, rtol=1e-14, atol=1e-14)
    assert not any(h.requires_grad for h in inputs.values())
    with Network(net).captured_inputs(nn.Linear) as inputs:
        net(x)
        net(x[:2])
    assert torch.equal(inputs["0"], x[:2])  # the latest


def test_captured_inputs_are_of_the_kinds_asked_for():
    net = norm_net(nn.BatchNorm1d(3))
    with Network(net).captured_inputs(nn.Conv1d, nn.Linear) as inputs:
        net(normal(5, 2, 5))
    assert {k: tuple(v.shape) for k, v in inputs.items()} == {"0": (5, 2, 5), "4": (5, 12)}


def test_capturing_ends_also_after_an_exception():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with pytest.raises(RuntimeError), Network(net).captured_inputs(nn.Linear) as inputs:
        net(torch.ones(1, 2))
    assert not any(m._forward_pre_hooks for m in net.modules())
    net(torch.zeros(1, 3))
    assert inputs["0"].tolist() == [[1.0, 1.0]]


def test_rows_of_every_tensor_are_taken():
    x = torch.arange(6.0).reshape(3, 2)
    nested = take({"a": x, "b": (x, [x, "word"])}, torch.tensor([0, -1]))
    for got in (nested["a"], nested["b"][0], nested["b"][1][0]):
        assert got.tolist() == [[0, 1], [4, 5]]
    assert nested["b"][1][1] == "word"
    assert take(x, slice(1, None)).tolist() == [[2, 3], [4, 5]]
    assert take([x], slice(None), torch.device("meta"))[0].device.type == "meta"
