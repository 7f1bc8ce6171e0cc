"""A monitor looks and changes nothing."""

import copy

import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import InputError
from credent.likelihoods import Categorical


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten(), nn.Linear(64, 3)
    )


def data():
    g = torch.Generator().manual_seed(2)
    return torch.randn(24, 1, 6, 6, generator=g), torch.randint(3, (24,), generator=g)


def objectives():
    return {
        "map": lambda net: cr.MAP(net, Categorical(), num_data=24),
        "vi": lambda net: cr.VI(net, Categorical(), num_data=24),
        "vl": lambda net: cr.VL(net, Categorical(), num_data=24),
        "fisher penalty": lambda net: cr.objectives.FisherPenalty(net, Categorical(), num_data=24, weight=0.1),
    }


def train(make, monitors, sampler=False):
    net = network()
    torch.manual_seed(1)
    objective = make(net)
    optimizer = cr.samplers.BNPSGLD(net, 1e-4, num_data=24, seed=0) if sampler else None
    x, y = data()
    loader = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 24, 8)]
    result = cr.fit(objective, optimizer, loader, steps=6, log_every=1, monitors=monitors, progress=False)
    return objective, result, torch.get_rng_state()


@pytest.mark.parametrize("name", objectives())
def test_training_is_the_same_bit_for_bit(name):
    make, probe = objectives()[name], data()[0][:10]
    one, _, state = train(make, [])
    other, result, also = train(make, [cr.fisher.TraceMonitor(probe, every=2), cr.fisher.Condition(one, report=1)])
    for (k, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), k
    for (k, a), (_, b) in zip(one.named_buffers(), other.named_buffers(), strict=True):
        assert torch.equal(a, b), k
    assert torch.equal(state, also)
    traces = [row["fisher_trace"] for row in result.history if "fisher_trace" in row]
    assert len(traces) == 3
    assert min(traces) > 0
    assert any("fisher_trace_draws" in row for row in result.history) == (name in ("vi", "vl"))


@pytest.mark.filterwarnings("ignore:no draw of")
def test_a_sampler_that_watches_layers_sees_nothing_of_it():
    make = objectives()["map"]
    one, _, _ = train(make, [], sampler=True)
    other, _, _ = train(make, [cr.fisher.TraceMonitor(data()[0], every=1)], sampler=True)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_gradients_modes_and_statistics_stay():
    net = network()
    bnn = cr.VI(net, Categorical(), num_data=24)
    bnn(*data()).backward()
    net[3].eval()  # one layer in another mode than the rest
    before, modes = copy.deepcopy(bnn.state_dict()), [m.training for m in bnn.modules()]
    grads = {k: p.grad.clone() for k, p in bnn.named_parameters()}
    numbers = cr.fisher.TraceMonitor(data()[0])(bnn)
    assert set(numbers) == {"fisher_trace", "fisher_trace_draws"}
    assert modes == [m.training for m in bnn.modules()]
    for k, p in bnn.named_parameters():
        assert torch.equal(p.grad, grads[k])
    for k, v in bnn.state_dict().items():
        if isinstance(v, torch.Tensor):
            assert torch.equal(v, before[k]), k


def test_its_numbers_are_the_traces():
    net, (x, _) = network(), data()
    bnn = cr.VI(net, Categorical(), num_data=24, family=cr.families.Gaussian(initial_scale=0.5))
    for part in x.split(8):
        bnn(part, torch.zeros(8, dtype=torch.long))
    options = {"samples": 3, "labels": 2, "seed": 5}

    def drawn(statistics):
        return cr.fisher.trace(net, Categorical(), x, bnn.posterior, statistics=statistics, **options).value

    at_mean = cr.fisher.trace(net, Categorical(), x, labels=2, seed=5).value
    numbers = cr.fisher.TraceMonitor(x, **options)(bnn)
    assert numbers == {"fisher_trace": at_mean, "fisher_trace_draws": drawn(list(x.split(8)))}  # as predict normalises
    with pytest.warns(UserWarning, match="fit no single draw"):
        running = drawn(None)
    assert abs(running / numbers["fisher_trace_draws"] - 1) > 0.1

    given = cr.fisher.TraceMonitor(x, statistics=[x], name="probe", **options)(bnn)
    renewed = cr.fisher.trace(net, Categorical(), x, statistics=[x], labels=2, seed=5).value
    assert given == {"probe": renewed, "probe_draws": drawn([x])}
    assert abs(renewed / at_mean - 1) > 0.1


def test_monitors_are_compared_by_identity():
    one, other = (cr.fisher.TraceMonitor(data()[0]) for _ in range(2))
    assert one == one
    assert one != other


def test_two_of_the_same_name_are_refused():
    probe = data()[0]
    pair = [cr.fisher.TraceMonitor(probe, every=2), cr.fisher.TraceMonitor(probe[:5], every=3)]
    with pytest.raises(InputError, match=r"monitors\[0\].*monitors\[1\].*'fisher_trace'.*name="):
        train(objectives()["map"], pair)
    named = cr.fisher.TraceMonitor(probe[:5], every=3, name="small_trace")
    _, result, _ = train(objectives()["map"], [pair[0], named])
    assert [row["step"] for row in result.history if "small_trace" in row] == [3, 6]
    assert [row["step"] for row in result.history if "fisher_trace" in row] == [2, 4, 6]


def test_counts_begin_at_one():
    with pytest.raises(InputError, match="every=0"):
        cr.fisher.TraceMonitor(data()[0], every=0)
