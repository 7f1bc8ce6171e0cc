"""Condition numbers against naive float64 eigenvalues and cases where they are known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import BudgetError, InputError
from credent.fisher import Condition
from credent.likelihoods import Categorical


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 5, 2),
        nn.Tanh(),
        nn.Conv2d(5, 4, 2, groups=1, bias=False),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).double()


def run(net, condition, steps=60, step=None):
    """Random minibatches; returns the gradients of every step by name."""
    g = torch.Generator().manual_seed(1)
    seen = {k: [] for k, _ in net.named_parameters()}
    for _ in range(steps):
        net.zero_grad()
        x = torch.randn(8, 2, 4, 4, dtype=torch.float64, generator=g) * torch.tensor([1.0, 3.0])[:, None, None] + 0.5
        y = torch.randint(3, (8,), generator=g)
        nn.functional.cross_entropy(net(x), y).backward()
        condition.observe()
        for k, p in net.named_parameters():
            seen[k].append(p.grad.numpy().copy())
        if step is not None:
            step()
    return seen


def naive(seen, name, unit):
    """(1/t) sum g g' of one unit, theta = [b; w]."""
    rows = [g[unit].reshape(-1) for g in seen[f"{name}.weight"]]
    if f"{name}.bias" in seen:
        rows = [np.concatenate([b[unit : unit + 1], w]) for b, w in zip(seen[f"{name}.bias"], rows, strict=True)]
    return sum(np.outer(g, g) for g in rows) / len(rows)


def ratio(matrix):
    values = np.linalg.eigvalsh(matrix)
    return values[-1] / values[0]


@pytest.mark.parametrize(("name", "units"), [("0", 5), ("2", 4), ("5", 3)])
def test_against_naive_eigenvalues(name, units):
    net = network()
    condition = Condition(net, units=3)
    seen = run(net, condition)
    numbers = condition.numbers()
    assert {k.split("/")[1] for k in numbers} == {"0", "2", "5"}
    blocks = [naive(seen, name, unit) for unit in range(units)]
    diagonals = [np.diag(b) for b in blocks]
    assert numbers[f"condition/{name}/elementwise"] == pytest.approx(np.mean([d.max() / d.min() for d in diagonals]))
    percentiles = [np.percentile(d, 95) / np.percentile(d, 5) for d in diagonals]
    assert numbers[f"condition/{name}/percentiles"] == pytest.approx(np.mean(percentiles))
    assert numbers[f"condition/{name}/full"] == pytest.approx(np.mean([ratio(b) for b in blocks[:3]]), rel=1e-6)


def test_a_known_condition_number():
    """Gradients of scales 1 to 1/100 have condition 10^4; 4,000 of them are within 10 % of it."""
    layer = nn.Linear(10, 1, bias=False)
    condition = Condition(layer, "")
    g = torch.Generator().manual_seed(0)
    scales = torch.logspace(0, -2, 10)
    for _ in range(4000):
        layer.weight.grad = scales * torch.randn(1, 10, generator=g)
        condition.observe()
    numbers = condition.numbers()
    assert numbers["condition//elementwise"] == pytest.approx(1e4, rel=0.1)
    assert numbers["condition//full"] == pytest.approx(1e4, rel=0.1)


def test_fewer_steps_than_dimensions_are_singular():
    net = network()
    condition = Condition(net, "0")  # theta has 1 + 2 x 4 entries
    run(net, condition, steps=8)
    assert condition.numbers()["condition/0/full"] == math.inf
    assert math.isfinite(condition.numbers()["condition/0/elementwise"])
    run(net, condition, steps=30)
    assert math.isfinite(condition.numbers()["condition/0/full"])


def test_a_direction_without_gradient_is_infinite():
    layer = nn.Linear(2, 1, bias=False)
    condition = Condition(layer)
    for _ in range(5):
        layer.weight.grad = torch.tensor([[0.1, 0.3]])
        condition.observe()
    assert condition.numbers()["condition//full"] == math.inf  # rank one, and no round-off hides it
    assert condition.numbers()["condition//elementwise"] == pytest.approx(9.0)
    layer.weight.grad = torch.tensor([[1.0, 0.0]])
    other = Condition(layer)
    other.observe()
    assert other.numbers()["condition//elementwise"] == math.inf


def bnp_matrix(layer, state):
    """U D / q of one unit, written out: theta = [b; w], mean and variance by channel, repeated over the kernel."""
    known = state[layer.weight]
    per = layer.weight[0, 0].numel()
    mean = known["mean"].repeat_interleave(per).numpy()
    variance = known["variance"]
    variance = (variance + 1e-2 * variance.max() + 1e-4).repeat_interleave(per).numpy()
    m = len(mean)
    if layer.bias is None:
        return np.diag(1 / np.sqrt(variance))
    u = np.eye(m + 1)
    u[0, 1:] = -mean
    return u @ np.diag([1.0, *(1 / np.sqrt(variance))])


def test_preconditioned_by_layer_inputs():
    net = network()
    sampler = cr.samplers.BNPSGLD(net, lr=1e-9, num_data=10, temperature=0.0)
    condition = Condition(net, units=2, precondition=sampler.precondition)
    seen = run(net, condition, step=sampler.step)
    numbers = condition.numbers()
    for name in ("0", "2", "5"):
        p = bnp_matrix(net[int(name)], sampler.state)  # q scales all alike, and no ratio sees it
        blocks = [p.T @ naive(seen, name, unit) @ p for unit in range(2)]
        assert numbers[f"condition/{name}/preconditioned"] == pytest.approx(
            np.mean([ratio(b) for b in blocks]), rel=1e-6
        )
        spreads = [np.diag(b).max() / np.diag(b).min() for b in blocks]
        assert numbers[f"condition/{name}/preconditioned_elementwise"] == pytest.approx(np.mean(spreads), rel=1e-8)
    assert numbers["condition/0/preconditioned"] < numbers["condition/0/full"]


def test_the_right_preconditioner_makes_it_one():
    """With P = F^(-1/2) elementwise, P' F P is the identity for gradients of independent entries."""
    layer, g = nn.Linear(4, 2), torch.Generator().manual_seed(0)
    scales = torch.tensor([[0.01, 1.0, 10.0, 0.3, 5.0]])

    def precondition(params, vectors):
        assert [p.shape for p in params] == [v.shape for v in vectors] == [(2,), (2, 4)]
        vectors[0].div_(scales[0, 0])
        vectors[1].div_(scales[:, 1:])

    condition = Condition(layer, units=2, precondition=precondition)
    for _ in range(4000):
        noise = scales * torch.randn(2, 5, generator=g)
        layer.bias.grad, layer.weight.grad = noise[:, 0], noise[:, 1:]
        condition.observe()
    numbers = condition.numbers()
    assert numbers["condition//full"] == pytest.approx(1e6, rel=0.15)
    assert numbers["condition//preconditioned"] == pytest.approx(1.0, abs=0.2)


def test_layers_are_chosen_by_name():
    assert set(Condition(network(), ["0", "5"])._layers) == {"0", "5"}
    assert set(Condition(network(), "[25]")._layers) == {"2", "5"}
    with pytest.raises(InputError, match="there are '0', '2', '5'"):
        Condition(network(), "head")
    with pytest.raises(InputError, match="there are none"):
        Condition(nn.LayerNorm(3))


def test_frozen_tied_and_idle_layers():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    net[2].weight.requires_grad_(False)
    condition = Condition(net)
    assert set(condition._layers) == {"3"}
    condition.observe()  # no gradient yet
    assert condition.numbers() == {}


def test_memory_is_asked_for_beforehand():
    with pytest.raises(BudgetError, match="choose layers="):
        Condition(nn.Linear(5000, 8), max_bytes=2**20)


def test_as_a_monitor_of_fit_on_an_objective(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    objective = cr.MAP(net, Categorical(), num_data=20)
    x, y = torch.randn(20, 3), torch.randint(3, (20,))
    condition = Condition(objective, "net.2", every=2, report=3)
    loader = [(x[i : i + 5], y[i : i + 5]) for i in range(0, 20, 5)]
    result = cr.fit(objective, None, loader, steps=12, monitors=[condition], progress=False, run_dir=tmp_path)
    rows = [row for row in result.history if "condition/net.2/elementwise" in row]
    assert len(rows) == 2
    assert condition._layers["net.2"].steps == 6
    assert rows[-1]["condition/net.2/elementwise"] == condition.numbers()["condition/net.2/elementwise"]
    assert rows[0]["condition/net.2/full"] is None  # infinite after three steps


def test_the_memory_goes_on():
    net, other = network(), network()
    whole, first = Condition(net), Condition(other)
    run(net, whole, steps=40)
    run(net, whole, steps=40)
    run(other, first, steps=40)
    second = Condition(other)
    second.load_state_dict(first.state_dict())
    run(other, second, steps=40)
    assert second.numbers() == whole.numbers()
    with pytest.raises(InputError, match="same layers="):
        Condition(net, "0").load_state_dict(first.state_dict())
