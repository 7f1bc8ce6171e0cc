"""What all samplers share: arithmetic, streams, states, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import credent as cr
from credent.errors import InputError, NonFiniteError
from credent.samplers import BNPSGLD, PSGLD, SGLD, cyclical, polynomial

BUILD = {
    "SGLD": lambda net, **given: SGLD(net.parameters(), **given),
    "PSGLD": lambda net, **given: PSGLD(net.parameters(), burn_in=3, **given),
    "BNPSGLD": lambda net, **given: BNPSGLD(net, burn_in=3, **given),
}
X, Y = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2


def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return net, cr.MAP(net, cr.likelihoods.Categorical(), num_data=12)


def walk(loss, sampler, steps):
    for _ in range(steps):
        sampler.zero_grad()
        loss(X, Y).backward()
        sampler.step()


def flat(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_without_noise_sgld_is_gradient_descent(momentum):
    """Torch's velocity has the other sign and no lr in it: the same path."""
    (net, loss), (other, same) = problem(), problem()
    walk(loss, SGLD(net.parameters(), lr=0.02, num_data=12, temperature=0.0, momentum=momentum), 5)
    walk(same, torch.optim.SGD(other.parameters(), lr=0.02 / 2 * 12, momentum=momentum), 5)
    torch.testing.assert_close(flat(net), flat(other))


def test_psgld_is_li_and_others():
    """Three steps by hand, then V stays."""
    w = nn.Parameter(torch.tensor([0.3, -2.0], dtype=torch.float64))
    sampler = PSGLD([w], lr=0.1, num_data=7, decay=0.8, damping=0.2, burn_in=2, seed=4, temperature=0.5)
    stream = torch.Generator().manual_seed(4)
    expected, v = w.detach().clone(), None
    for i in range(3):
        g = torch.tensor([1.0 + i, -0.1], dtype=torch.float64)
        if i < 2:
            v = g**2 if v is None else 0.8 * v + 0.2 * g**2
        scale = 1 / (0.2 + v.sqrt())
        xi = torch.empty(2, dtype=torch.float64).normal_(generator=stream)
        expected = expected - 0.05 * scale * 7 * g + (0.1 * 0.5 * scale).sqrt() * xi
        w.grad = g
        sampler.step()
    torch.testing.assert_close(w.detach(), expected)


def test_minibatches_add_the_noise_of_their_gradients():
    """S = M S M' + eps T + (eps^2 / 4) C(S), C the covariance of the minibatch gradient of U; all of it measured."""
    rows, batch, units, eps_share = 30, 6, 50, 0.3
    torch.manual_seed(0)
    x = torch.randn(rows, 2, dtype=torch.float64)
    y = x[:, :1] + torch.randn(rows, 1, dtype=torch.float64)
    a = x.T @ x + torch.eye(2)
    centre = torch.linalg.solve(a, x.T @ y)[:, 0]
    residual = x @ centre - y[:, 0]
    eps = eps_share / torch.linalg.eigvalsh(a).max().item()
    full = covariance = torch.zeros(2, 2, dtype=torch.float64)
    m, eye = torch.eye(2) - eps / 2 * a, torch.eye(2, dtype=torch.float64)
    pull = x.T @ residual
    for _ in range(2000):
        spread = ((x @ covariance) * x).sum(1) + residual**2
        c = (x * spread[:, None]).T @ x / rows - (x.T @ x @ covariance @ x.T @ x + pull[:, None] * pull) / rows**2
        c = c * rows**2 / batch * (rows - batch) / (rows - 1)
        covariance = m @ covariance @ m + eps * eye + eps**2 / 4 * c
        full = m @ full @ m + eps * eye
    net = nn.Linear(2, units, bias=False).double()
    net.weight.data = centre.repeat(units, 1)
    loss = cr.MAP(net, cr.likelihoods.Gaussian(scale=1.0), cr.priors.Gaussian(scale=1.0), num_data=rows)
    sampler = SGLD(net.parameters(), lr=eps, num_data=rows, seed=1)
    moments = []
    for i in range(4100):
        chosen = torch.randperm(rows)[:batch]
        sampler.zero_grad()
        loss(x[chosen], y[chosen].expand(-1, units)).backward()
        sampler.step()
        if i >= 100:
            moments.append((net.weight.detach() - centre).square().mean(0))
    blocks = torch.stack(moments).reshape(40, -1, 2).mean(1)
    error = blocks.std(0) / math.sqrt(40)
    assert ((blocks.mean(0) - covariance.diag()).abs() < 3 * error).all()
    assert ((blocks.mean(0) - full.diag()) > 5 * error).all()


@pytest.mark.parametrize("kind", BUILD)
def test_a_seed_decides_and_a_state_goes_on(kind):
    """Six steps are three, a state by way of a file, and three; another seed goes elsewhere."""
    paths = []
    for seed in (1, 1, 2):
        net, loss = problem()
        torch.manual_seed(100 * seed)  # the global stream has no part in it
        walk(loss, BUILD[kind](net, lr=1e-3, num_data=12, seed=seed, momentum=0.5), 6)
        paths.append(flat(net))
    assert torch.equal(paths[0], paths[1])
    assert not torch.allclose(paths[0], paths[2], atol=1e-3)
    net, loss = problem()
    first = BUILD[kind](net, lr=1e-3, num_data=12, seed=1, momentum=0.5)
    walk(loss, first, 2)
    second = BUILD[kind](net, lr=5.0, num_data=12, seed=9, momentum=0.1)
    second.load_state_dict(first.state_dict())
    walk(loss, second, 4)
    assert torch.equal(flat(net), paths[0])


@pytest.mark.parametrize("kind", BUILD)
def test_processes_with_equal_streams_move_alike(kind):
    """Two replicas, the same gradients, the same seed: the noise is the same in both."""
    ends = []
    for global_seed in (3, 4):
        net, loss = problem()
        torch.manual_seed(global_seed)
        walk(loss, BUILD[kind](net, lr=1e-3, num_data=12, seed=0), 4)
        ends.append(flat(net))
    assert torch.equal(*ends)


def test_groups_have_their_own_steps_and_temperatures():
    net, loss = problem()
    groups = [{"params": net[0].parameters(), "temperature": 0.0, "lr": 1e-9}, {"params": net[2].parameters()}]
    before = flat(net[0])
    walk(loss, SGLD(groups, lr=1e-2, num_data=12), 1)
    assert (flat(net[0]) - before).abs().max() < 1e-7


def test_what_has_no_gradient_stays():
    a, b = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    a.grad = torch.zeros(3)
    SGLD([a, b], lr=1.0, num_data=1).step()
    assert (a != 0).all()
    assert (b == 0).all()


def test_a_closure_is_called():
    w = nn.Parameter(torch.ones(1))
    sampler = SGLD([w], lr=1.0, num_data=2, temperature=0.0)

    def closure():
        sampler.zero_grad()
        loss = (w**2).sum() / 2
        loss.backward()
        return loss

    assert sampler.step(closure).item() == 0.5
    assert w.item() == 0.0


def test_hooks_are_called_around_a_step_and_the_profiler_is_told():
    """Torch's wrapper of `step` is left out only where nobody waits for it."""
    w = nn.Parameter(torch.ones(3))
    sampler = SGLD([w], lr=1e-3, num_data=10, seed=0)

    def step():
        w.grad = torch.ones(3)
        sampler.step()

    called = []
    hooks = [
        sampler.register_step_pre_hook(lambda *_: called.append("before")),
        sampler.register_step_post_hook(lambda *_: called.append("after")),
    ]
    step()
    assert called == ["before", "after"]
    for hook in hooks:
        hook.remove()
    step()
    assert len(called) == 2
    hook = register_optimizer_step_post_hook(lambda *_: called.append("any"))
    step()
    hook.remove()
    assert called[2:] == ["any"]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    assert "Optimizer.step#SGLD.step" in {event.key for event in profile.key_averages()}


def test_gradients_are_reset_as_torch_does():
    w, frozen = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    sampler = SGLD([{"params": [w]}, {"params": [frozen]}], lr=1e-3, num_data=10, seed=0)
    w.grad = torch.ones(3)
    sampler.zero_grad(set_to_none=False)
    assert torch.equal(w.grad, torch.zeros(3))
    assert frozen.grad is None
    sampler.zero_grad()
    assert w.grad is None


# -- schedules --------------------------------------------------------------------------------------------------------


def test_schedules_follow_their_formulas():
    w = nn.Parameter(torch.zeros(1))
    w.grad = torch.zeros(1)
    cases = [
        (lambda s: polynomial(s, delay=10, power=0.6), lambda t: 0.2 * 10**0.6 * (10 + t) ** -0.6),
        (lambda s: cyclical(s, period=4), lambda t: 0.1 * (1 + math.cos(math.pi * (t % 4) / 4))),
    ]
    for build, formula in cases:
        sampler = SGLD([w], lr=0.2, num_data=1)
        scheduler = build(sampler)
        for t in range(10):
            assert sampler.param_groups[0]["lr"] == pytest.approx(formula(t))
            sampler.step()
            scheduler.step()


@pytest.mark.parametrize("power", [-0.1, math.nan])
def test_bad_schedules_are_refused(power):
    sampler = SGLD([nn.Parameter(torch.zeros(1))], lr=0.2, num_data=1)
    with pytest.raises(InputError, match="power"):
        polynomial(sampler, delay=1, power=power)
    with pytest.raises(InputError, match="delay"):
        polynomial(sampler, delay=0)
    with pytest.raises(InputError, match="at least one step"):
        cyclical(sampler, period=0)


# -- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BUILD)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_data": 0}, "number of training examples"),
        ({"num_data": 3.5}, "number of training examples"),
        ({"lr": 0.0}, "positive"),
        ({"lr": -1.0}, "positive"),
        ({"lr": math.inf}, "positive"),
        ({"temperature": -0.1}, "1 samples the posterior"),
        ({"temperature": math.nan}, "1 samples the posterior"),
        ({"momentum": 1.0}, "share of velocity"),
    ],
)
def test_bad_input_is_refused(kind, wrong, words):
    with pytest.raises(InputError, match=words):
        BUILD[kind](problem()[0], **({"lr": 0.1, "num_data": 12} | wrong))


@pytest.mark.parametrize("kind", BUILD)
def test_num_data_has_no_default(kind):
    with pytest.raises(TypeError, match="num_data"):
        BUILD[kind](problem()[0], lr=0.1)


def test_burn_in_has_a_step():
    with pytest.raises(InputError, match="at least one step"):
        PSGLD([nn.Parameter(torch.zeros(1))], lr=0.1, num_data=1, burn_in=0)
    with pytest.raises(InputError, match="decay"):
        PSGLD([nn.Parameter(torch.zeros(1))], lr=0.1, num_data=1, decay=1.0)


def test_a_parameter_that_is_first_trained_after_burn_in():
    """RMSprop has no scale for it; without a gradient it may wait as long as it likes."""
    early, late = (nn.Parameter(torch.ones(1)) for _ in range(2))
    sampler = PSGLD([early, late], lr=0.1, num_data=1, burn_in=2)
    for _ in range(3):
        early.grad = torch.ones(1)
        sampler.step()
    late.grad = torch.ones(1)
    with pytest.raises(InputError, match=r"first gradient after the burn-in.*longer burn_in="):
        sampler.step()


def test_num_data_is_any_integer():
    w = nn.Parameter(torch.zeros(1))
    num_data = SGLD([w], lr=0.1, num_data=np.int64(3)).num_data
    assert num_data == 3
    assert type(num_data) is int
    for wrong in (3.0, True, "3", 0, np.int64(0)):
        with pytest.raises(InputError, match="the number of training examples, an integer"):
            SGLD([w], lr=0.1, num_data=wrong)


@pytest.mark.parametrize(
    ("make", "fields"),
    [(lambda o: polynomial(o, delay=3), {"delay": 3, "power": 0.55}), (lambda o: cyclical(o, period=4), {"period": 4})],
)
def test_the_state_of_a_schedule_says_what_it_was_built_with(make, fields):
    sampler = SGLD([nn.Parameter(torch.zeros(1))], lr=0.2, num_data=1)
    assert make(sampler).state_dict()["lr_lambdas"] == [fields]


@pytest.mark.filterwarnings("ignore:draws are kept from step 1 on")  # whether the first steps sample is not asked
@pytest.mark.parametrize("kind", BUILD)
def test_a_step_that_is_too_large_is_named_and_stops(kind, tmp_path):
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    loss = cr.MAP(net, cr.likelihoods.Gaussian(scale=0.1), num_data=12)
    large = 1e18 if kind == "PSGLD" else 1e3  # a step that is divided by the gradient's size takes longer to run away
    sampler = BUILD[kind](net, lr=large, num_data=12, seed=0)
    plan = {"steps": 300, "progress": False, "keep": cr.Thin(after=0.0, every=1), "run_dir": tmp_path}
    with pytest.raises(NonFiniteError, match=r"step \d+.*diverges: write lr="):
        cr.fit(loss, sampler, [(X, X[:, :1])], **plan)
    draws = cr.families.draws.DrawFiles(tmp_path / "draws")
    assert len(draws) >= 1
    assert all(w.isfinite().all() for w in draws[0].values())
