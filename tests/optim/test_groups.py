"""Optimisers that step as one, and groups that take turns."""

import pytest
import torch

import credent as cr
from credent.errors import InputError
from credent.optim.alternating import Alternating
from credent.optim.plateau import Plateau
from credent.optim.together import Together


def params(*values):
    return [torch.tensor([v], requires_grad=True) for v in values]


def loss(a, b):
    return ((a - 1) ** 2 + (b + 2) ** 2 + a * b).sum()


def run(optimizer, a, b, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(a, b).backward()
        optimizer.step()


def test_together_equals_each_by_itself():
    a, b = params(0.0, 0.0)
    run(Together(torch.optim.SGD([a], lr=0.1, momentum=0.9), torch.optim.Adam([b], lr=0.05)), a, b, 7)
    c, d = params(0.0, 0.0)
    sgd, adam = torch.optim.SGD([c], lr=0.1, momentum=0.9), torch.optim.Adam([d], lr=0.05)
    for _ in range(7):
        sgd.zero_grad(), adam.zero_grad()
        loss(c, d).backward()
        sgd.step(), adam.step()
    assert torch.equal(a, c)
    assert torch.equal(b, d)


def test_schedulers_move_the_rates_of_all():
    a, b = params(0.0, 0.0)
    sgd, adam = torch.optim.SGD([a], lr=0.1), torch.optim.Adam([b], lr=0.05)
    both = Together(sgd, adam)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(both, 0.5)
    run(both, a, b, 1)
    scheduler.step()
    assert sgd.param_groups[0]["lr"] == pytest.approx(0.05)
    assert adam.param_groups[0]["lr"] == pytest.approx(0.025)


@pytest.mark.parametrize("kind", ["together", "alternating"])
def test_a_saved_state_goes_on(kind):
    def build():
        a, b = params(0.0, 0.0)
        if kind == "together":
            return a, b, Together(torch.optim.SGD([a], lr=0.1, momentum=0.9), torch.optim.Adam([b], lr=0.05))
        groups = [{"name": "means", "params": [a]}, {"name": "scales", "params": [b]}]
        return a, b, Alternating(torch.optim.Adam(groups, lr=0.1), {"means": 2, "scales": 3})

    a, b, whole = build()
    run(whole, a, b, 9)
    c, d, first = build()
    run(first, c, d, 4)
    e, f, second = build()
    e.data.copy_(c.data), f.data.copy_(d.data)
    second.load_state_dict(first.state_dict())
    torch.optim.lr_scheduler.ExponentialLR(second, 1.0)  # the groups are still those that move
    run(second, e, f, 5)
    assert torch.equal(a, e)
    assert torch.equal(b, f)


def test_a_closure_is_called_once():
    a, b = params(0.0, 0.0)
    both = Together(torch.optim.SGD([a], lr=0.1), torch.optim.SGD([b], lr=0.1))
    calls = []

    def closure():
        calls.append(1)
        both.zero_grad()
        value = loss(a, b)
        value.backward()
        return value

    assert both.step(closure).item() == pytest.approx(5.0)
    assert len(calls) == 1


def test_turns_leave_the_others_where_they_are():
    a, b = params(0.0, 0.0)
    groups = [{"name": "means", "params": [a]}, {"name": "scales", "params": [b]}]
    optimizer = Alternating(torch.optim.Adam(groups, lr=0.1), {"means": 2, "scales": 1})
    trace = []
    for _ in range(6):
        run(optimizer, a, b, 1)
        trace.append((a.item(), b.item()))
    moved = [(x[0] != y[0], x[1] != y[1]) for x, y in zip([(0.0, 0.0), *trace], trace, strict=False)]
    assert moved == [(True, False), (True, False), (False, True)] * 2


def test_a_group_that_rests_keeps_its_moments():
    """Adam on the turns only: its two steps are those of Adam that has seen two gradients."""
    a, b = params(0.0, 0.0)
    groups = [{"name": "means", "params": [a]}, {"name": "scales", "params": [b]}]
    optimizer = Alternating(torch.optim.Adam(groups, lr=0.1), {"means": 1, "scales": 1})
    (c,) = params(0.0)
    alone = torch.optim.Adam([c], lr=0.1)
    for g in (1.0, 5.0, -2.0):  # the second is not the means' turn
        a.grad, b.grad = torch.tensor([g]), torch.tensor([0.3])
        optimizer.step()
    for g in (1.0, -2.0):
        c.grad = torch.tensor([g])
        alone.step()
    assert torch.equal(a, c)


@pytest.mark.parametrize("kind", ["gaussian", "radial", "vl"])
def test_every_objective_trains_its_groups_by_rules_of_their_own(kind):
    """Means by SGD, then scales by Adam, two epochs each, and a plateau that counts every epoch but the first."""
    torch.manual_seed(0)
    x = torch.randn(32, 2)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    made = {"net": net, "likelihood": cr.likelihoods.Gaussian(scale=1.0), "num_data": 32}
    families = {"gaussian": cr.families.Gaussian(), "radial": cr.families.Radial()}
    bnn = cr.VL(**made) if kind == "vl" else cr.VI(**made, family=families[kind])
    groups = {group["name"]: [group] for group in bnn.param_groups(lr=1e-2, ratio=0.1)}
    both = Together(torch.optim.SGD(groups["means"], momentum=0.9), torch.optim.Adam(groups["scales"]))
    turns = Alternating(both, {"means": 4, "scales": 4})
    plateau = Plateau(turns, {"means": "nll", "scales": "kl"}, factor=0.5, patience=0, threshold=10.0)
    trace = []
    for _ in range(2):
        before = [torch.cat([p.detach().flatten() for p in groups[n][0]["params"]]) for n in ("means", "scales")]
        cr.fit(bnn, turns, [(x, x[:, :1])] * 2, epochs=2, scheduler=plateau, progress=False)
        after = [torch.cat([p.detach().flatten() for p in groups[n][0]["params"]]) for n in ("means", "scales")]
        trace.append([not torch.equal(a, b) for a, b in zip(before, after, strict=True)])
    assert trace == [[True, False], [False, True]]
    assert [group["lr"] for group in turns.param_groups] == pytest.approx([1e-2 / 8, 1e-3 / 8])


def test_what_cannot_be_is_refused():
    a, b = params(0.0, 0.0)
    with pytest.raises(InputError, match="in several of the optimisers"):
        Together(torch.optim.SGD([a], lr=0.1), torch.optim.SGD([a, b], lr=0.1))
    with pytest.raises(InputError, match="its groups are None"):
        Alternating(torch.optim.SGD([a, b], lr=0.1), {"means": 1})
    with pytest.raises(InputError, match="steps from 1"):
        Alternating(torch.optim.SGD([{"name": "means", "params": [a]}], lr=0.1), {"means": 0})
