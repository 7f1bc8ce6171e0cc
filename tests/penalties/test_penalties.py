"""Penalties of the weights' means: their values, their gradients, who pays, and how objectives use them."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from credent import families, likelihoods, penalties, priors
from credent.errors import InputError
from credent.layout import Layout
from credent.objectives import MAP, VI, VL

MEMBERS = {
    "l2": penalties.L2,
    "l1": penalties.L1,
    "rows": lambda factor: penalties.GroupLasso(factor, over="rows"),
    "columns": lambda factor: penalties.GroupLasso(factor, over="columns"),
}
each_member = pytest.mark.parametrize("describe", MEMBERS.values(), ids=MEMBERS)


class Conv1D(nn.Module):
    """A linear layer whose weight lies as Hugging Face's does, (in, out)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))

    def forward(self, x):
        return x @ self.weight


LAYERS = {
    "linear": (nn.Linear(3, 4), (3,)),
    "one-output": (nn.Linear(3, 1), (3,)),
    "conv1d": (nn.Conv1d(3, 2, 4), (3, 9)),
    "conv2d": (nn.Conv2d(2, 3, (2, 3), stride=2), (2, 6, 7)),
    "conv3d": (nn.Conv3d(2, 3, 2), (2, 3, 3, 3)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (4, 5, 5)),
    "depthwise": (nn.Conv1d(3, 6, 2, groups=3), (3, 5)),
    "transposed": (nn.ConvTranspose2d(2, 3, 2), (2, 4, 4)),
    "transposed-grouped": (nn.ConvTranspose1d(6, 4, 3, groups=2), (6, 5)),
    "reversed": (Conv1D(3, 5), (3,)),
}


def network():
    """Two layers and a norm layer, with fans that differ."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()


def value(description, net):
    layout = Layout(net)
    return description.bind(layout)(families.Dirac().bind(layout))


def number(description, net):
    return value(description, net).item()


def groups_by_influence(layer, shape, over):
    """Masks of a weight: the entries that an output depends on, or that an input is multiplied by."""
    torch.manual_seed(1)
    x = torch.rand(1, *shape, dtype=torch.float64) + 1
    found = []
    for i in range(layer(x).shape[1] if over == "rows" else shape[0]):
        if over == "rows":
            total = layer(x)[:, i].sum()
        else:
            only = torch.zeros_like(x)
            only[:, i] = x[:, i]
            total = layer(only).sum()
        found.append(torch.autograd.grad(total, layer.weight)[0] != 0)
    return found


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["rows", "columns"])
@pytest.mark.parametrize(("layer", "shape"), LAYERS.values(), ids=LAYERS)
def test_groups_are_what_a_neuron_reads_or_sends_on(layer, shape, over):
    layer = layer.double()
    masks = groups_by_influence(layer, shape, over)
    by_hand = [math.sqrt(sum(v**2 for v in layer.weight[mask].tolist())) for mask in masks]
    assert penalties.norms(layer, over)["weight"].tolist() == pytest.approx(by_hand, rel=1e-12)
    assert sum(int(mask.sum()) for mask in masks) == layer.weight.numel()  # every weight in one group
    found = value(penalties.GroupLasso(0.7, over), layer)
    assert found.item() == pytest.approx(0.7 * sum(by_hand), rel=1e-12)


def test_an_embedding_counts_inputs_first():
    layer = nn.Embedding(5, 2).double()
    columns = penalties.norms(layer, "columns")["weight"]  # what a token sends on
    assert columns.tolist() == pytest.approx([math.hypot(*row) for row in layer.weight.tolist()])
    assert penalties.norms(layer, "rows")["weight"].shape == (2,)


def test_an_embedding_tied_to_a_linear_layer_is_grouped_as_the_linear_layer():
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)).double()
    net[1].weight = net[0].weight
    assert penalties.norms(net, "rows")["0.weight"].shape == (5,)


def test_elementwise_penalties_by_hand():
    net = network()
    by_hand = {"l2": 0.0, "l1": 0.0}
    for layer, factor in ((net[0], 0.3), (net[2], 2.0)):
        for w in layer.weight.flatten().tolist():
            by_hand["l2"] += factor * w * w
            by_hand["l1"] += factor * abs(w)
    factor = {"0.*": 0.3, "*": 2.0}
    assert number(penalties.L2(factor), net) == pytest.approx(by_hand["l2"], rel=1e-12)
    assert number(penalties.L1(factor), net) == pytest.approx(by_hand["l1"], rel=1e-12)


@each_member
def test_biases_and_norm_layers_are_free(describe):
    net = network()
    before = number(describe(1.0), net)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name not in ("0.weight", "2.weight"):
                p.add_(5.0)
    assert number(describe(1.0), net) == before > 0


@each_member
def test_the_gradient_is_the_slope(describe):
    net = network()
    value(describe({"0.*": 0.3, "*": 2.0}), net).backward()
    step = 1e-6
    for w in (net[0].weight, net[2].weight):
        for i in range(w.numel()):
            with torch.no_grad():
                w.view(-1)[i] += step
                above = number(describe({"0.*": 0.3, "*": 2.0}), net)
                w.view(-1)[i] -= 2 * step
                below = number(describe({"0.*": 0.3, "*": 2.0}), net)
                w.view(-1)[i] += step
            assert float(w.grad.view(-1)[i]) == pytest.approx((above - below) / (2 * step), abs=1e-7)
    assert net[0].bias.grad is None


@each_member
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_zero_the_gradient_is_zero(describe, dtype):
    net = nn.Sequential(nn.Linear(3, 2), nn.Conv1d(2, 4, 3, groups=2)).to(dtype)
    with torch.no_grad():
        net[0].weight[0] = 0
        net[1].weight[:] = 0
    found = value(describe(2.0), net)
    found.backward()
    assert found.dtype == dtype
    assert (net[1].weight.grad == 0).all()
    assert torch.isfinite(net[0].weight.grad).all()
    assert (net[0].weight.grad[1] != 0).all()


@each_member
def test_only_random_weights_pay(describe):
    net = network()
    layout = Layout(net, random="2.*")
    bound = describe(1.0).bind(layout)
    assert set(bound.factor) == {"2.weight"}
    assert bound(families.Dirac().bind(layout)).item() == pytest.approx(number(describe(1.0), net[2]), rel=1e-12)


def test_elementwise_functions_for_the_solver():
    mu, sigma = np.array([[-2.0, 0.5]]), np.array([[0.1], [3.0]])
    assert penalties.L2(3.0).elementwise(mu, sigma) == pytest.approx(np.array([[12.0, 0.75], [12.0, 0.75]]))
    assert penalties.L1(3.0).elementwise(mu, sigma) == pytest.approx(np.array([[6.0, 1.5], [6.0, 1.5]]))
    for factor in ("fan_in", {"*": 1.0}):
        with pytest.raises(InputError, match=r"L1\(factor=penalties\.factor\(penalties\.L1, net\[0\]\)\)"):
            penalties.L1(factor).elementwise(mu, sigma)


# -- in objectives ----------------------------------------------------------------------------------------------------


def data(n=64, inputs=6):
    g = torch.Generator().manual_seed(2)
    x = torch.randn(n, inputs, generator=g, dtype=torch.float64)
    y = 2 * x[:, :1] - 1.5 * x[:, 1:2] + 0.1 * torch.randn(n, 1, generator=g, dtype=torch.float64)
    return x, y


@each_member
@pytest.mark.parametrize("n", [64, 1000])
def test_the_objective_weighs_the_penalty_by_the_size_of_the_data(describe, n):
    x, y = data()
    net, likelihood = nn.Linear(6, 1).double(), likelihoods.Gaussian(scale=0.5)
    free, paid = (MAP(net, likelihood, describe(f), num_data=n, beta=0.5)(x, y) for f in (0.0, 3.0))
    assert (paid - free).item() == pytest.approx(0.5 / n * 3.0 * number(describe(1.0), net), rel=1e-9)


@pytest.mark.parametrize(
    ("penalty", "prior"),
    [
        (penalties.L2(1 / (2 * 0.3**2)), priors.Gaussian(scale=0.3)),
        (penalties.L2("kaiming"), priors.Gaussian(scale="kaiming")),
        (penalties.L1(1 / 0.3), priors.Laplace(scale=0.3)),
        (penalties.L1("glorot"), priors.Laplace(scale="glorot")),
    ],
)
def test_map_with_a_penalty_takes_the_steps_of_map_with_its_prior(penalty, prior):
    x, y = data()
    ends = []
    for described in (penalty, prior):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 1, bias=False)).double()
        start = torch.cat([p.detach().flatten() for p in net.parameters()])
        objective = MAP(net, likelihoods.Gaussian(scale=0.5), described, num_data=64)
        optimizer = torch.optim.Adam(objective.param_groups(lr=1e-2))
        for _ in range(50):
            optimizer.zero_grad()
            objective(x, y).backward()
            optimizer.step()
        ends.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    assert torch.allclose(*ends, rtol=0, atol=1e-6)
    assert (ends[0] - start).abs().max() > 0.1


def train(objective, x, y, steps, lr):
    optimizer = torch.optim.SGD(objective.param_groups(lr=lr))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        objective(x, y).backward()
        optimizer.step()
        schedule.step()


def test_columns_prune_the_inputs_that_say_nothing():
    """Two of six inputs matter; the norm of the others' columns goes to zero, which a squared norm does not do."""
    x, y = data()
    gone = {}
    for described in (penalties.GroupLasso(30.0, over="columns"), penalties.L2(30.0)):
        torch.manual_seed(4)
        net = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1)).double()
        train(MAP(net, likelihoods.Gaussian(scale=0.5), described, num_data=64), x, y, steps=600, lr=0.02)
        gone[type(described).__name__] = int(penalties.dead(net, over="columns", tolerance=2e-3)["0.weight"].sum())
        if isinstance(described, penalties.GroupLasso):
            assert penalties.norms(net, "columns")["0.weight"].topk(2).indices.sort().values.tolist() == [0, 1]
    assert gone == {"GroupLasso": 4, "L2": 0}


@pytest.mark.parametrize("method", [VI, VL])
@each_member
def test_it_trains_with_a_penalty_and_nothing_holds_its_scales(describe, method):
    x, y = data()
    torch.manual_seed(5)
    net = nn.Linear(6, 1).double()
    bnn = method(net, likelihoods.Gaussian(scale=0.5), describe(1.0), num_data=64)
    before, first = bnn(x, y).item(), bnn.q.stddev()["weight"].clone()
    optimizer = torch.optim.Adam(bnn.param_groups(lr=0.05))
    for _ in range(200):
        optimizer.zero_grad()
        bnn(x, y).backward()
        optimizer.step()
    assert float(bnn.last.loss) < before / 3
    assert float(bnn.last.penalty) == pytest.approx(number(describe(1.0), net), rel=0.05)
    assert bnn.q.stddev()["weight"].mean() < 0.5 * first.mean()
    optimizer.zero_grad()
    bnn.penalty(bnn.q).backward()
    assert all(p.grad is None or not p.grad.any() for p in bnn.q.parameters())


def test_an_estimator_of_the_density_has_none_to_estimate():
    with pytest.raises(InputError, match="no density"):
        VI(nn.Linear(2, 1), likelihoods.Gaussian(scale=1.0), penalties.L1(1.0), num_data=4, estimator="path")


# -- counting ---------------------------------------------------------------------------------------------------------


def test_dead_neurons_are_small_beside_the_largest():
    net = nn.Linear(1, 4, bias=False)
    net.weight.data.copy_(torch.tensor([[1e-9], [1e-12], [0.9e-11], [0.0]]))  # a norm layer may follow
    assert int(penalties.dead(net, tolerance=0.02)["weight"].sum()) == 3
    assert int(penalties.dead(net, tolerance=0.005)["weight"].sum()) == 2
    assert int(penalties.dead(net, over="columns")["weight"].sum()) == 0
    net.weight.data.zero_()
    assert int(penalties.dead(net)["weight"].sum()) == 4
    with pytest.raises(InputError, match=r"such as 0\.01"):
        penalties.dead(net, tolerance=1.0)


# -- bad input --------------------------------------------------------------------------------------------------------


@each_member
@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf, None, 1j, {"0.*": 1.0, "*": -2}])
def test_a_factor_is_a_number_of_at_least_zero(describe, factor):
    with pytest.raises(InputError, match="number >= 0"):
        describe(factor)


@each_member
def test_an_unknown_rule_lists_the_known_ones(describe):
    with pytest.raises(InputError, match="'fan_in', 'kaiming' or 'glorot'"):
        describe({"*": "xavier"})
    with pytest.raises(InputError, match=r"activation=torch\.tanh"):
        describe("edge_of_chaos")


@each_member
def test_patterns_must_match_weights_and_weights_a_pattern(describe):
    layout = Layout(network())
    with pytest.raises(
        InputError, match=r"'head\.\*'\] matches no random weight; the weights are 0\.weight, 2\.weight"
    ):
        describe({"head.*": 1.0, "*": 1.0}).bind(layout)
    with pytest.raises(InputError, match="only biases or norm layers"):
        describe({"*.bias": 1.0, "*": 1.0}).bind(layout)
    with pytest.raises(InputError, match=r"'2\.weight': add a last one, as in '\*': 0"):
        describe({"0.*": 1.0}).bind(layout)
    assert describe({"0.*": 1.5, "*": 0}).bind(layout).factor == {"0.weight": 1.5, "2.weight": 0.0}


@each_member
def test_a_network_without_random_weights_has_nothing_to_penalise(describe):
    with pytest.raises(InputError, match=r"random parameters are none: 1\.weight, 1\.bias"):
        describe(1.0).bind(Layout(network(), random="1.*"))


def test_rows_or_columns():
    for call in (lambda: penalties.GroupLasso(1.0, over="neurons"), lambda: penalties.norms(network(), over="row")):
        with pytest.raises(InputError, match=r"'rows' \(a neuron's inputs\) or 'columns'"):
            call()
