"""How far scales can move, and where they still pull, against optima that are known."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    ReduceLROnPlateau,
    SequentialLR,
)

import credent as cr
from credent.errors import ConvergenceWarning, InputError
from credent.training.convergence import convergence, reach

N, D, NOISE = 64, 3, 0.5


def problem(method, **options):
    """Linear regression with known noise: the optimal scales are 1 / sqrt(1/s^2 + sum x^2 / noise^2)."""
    torch.manual_seed(0)
    x = torch.randn(N, D, dtype=torch.float64) * torch.tensor([0.5, 1.0, 2.0])
    net = nn.Linear(D, 1, bias=False).double()
    y = net(x).detach() + NOISE * torch.randn(N, 1, dtype=torch.float64)
    bnn = method(net, cr.likelihoods.Gaussian(scale=NOISE), cr.priors.Gaussian(scale=1.0), num_data=N, **options)
    optimal = (1 + x.square().sum(0) / NOISE**2 / options.get("beta", 1.0)).rsqrt()
    return bnn, [(x, y)], optimal


@pytest.mark.parametrize("method", [cr.VL, cr.VI])
@pytest.mark.parametrize("beta", [1.0, 0.1])
@pytest.mark.parametrize(("factor", "pull"), [(1.0, 0.0), (math.sqrt(2), 1.0), (math.sqrt(0.5), -0.5)])
def test_the_pull_is_the_variance_over_its_optimum_less_one(method, beta, factor, pull):
    bnn, batches, optimal = problem(method, beta=beta)
    with torch.no_grad():
        bnn.posterior.scales.rho.copy_((factor * optimal).log())
    (found,) = convergence(bnn, batches, count=600)
    assert found.error < 0.15
    assert found.pull == pytest.approx(pull, abs=3.5 * found.error)
    assert found.converged == (pull == 0)
    assert (found.moving == 0) == (pull == 0)
    assert found.log_ratio == pytest.approx((factor * optimal).log().mean().item())
    assert (found.name, found.size) == ("weight", D)


def test_nothing_moves():
    net = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    bnn = cr.VI(net, cr.likelihoods.Categorical(), num_data=N)
    bnn.eval()
    x, y = torch.randn(16, D), torch.randint(2, (16,))
    before = copy.deepcopy(bnn.state_dict())
    convergence(bnn, [(x, y)], count=3)
    after = bnn.state_dict()
    tensors = [k for k, v in before.items() if isinstance(v, torch.Tensor)]
    assert all(torch.equal(before[k], after[k]) for k in tensors)
    assert torch.equal(before["q.noise._extra_state"]["state"], after["q.noise._extra_state"]["state"])
    assert not bnn.training
    assert all(p.grad is None for p in bnn.parameters())


@pytest.mark.parametrize("options", [{"beta": 0.0}, {"prior": cr.penalties.L2(1.0)}])
def test_scales_that_nothing_holds_up_have_no_optimum(options):
    bnn = cr.VI(nn.Linear(D, 1), cr.likelihoods.Gaussian(), num_data=N, **options)
    with pytest.raises(InputError, match="holds the scales up"):
        convergence(bnn, [(torch.zeros(2, D), torch.zeros(2, 1))])


@pytest.mark.parametrize("prior", [cr.priors.InverseReference("hybrid"), cr.priors.SelfStabilizing()])
def test_of_what_holds_scales_up_without_a_density_nothing_false_is_said(prior):
    bnn = cr.VI(nn.Linear(D, 1), cr.likelihoods.Gaussian(), prior, num_data=N)
    with pytest.raises(InputError, match=r"a prior with a density.*is none.*ScaleRatio") as raised:
        convergence(bnn, [(torch.zeros(2, D), torch.zeros(2, 1))])
    assert "shrink" not in str(raised.value)


def test_without_a_standard_deviation_there_is_no_ratio_to_it():
    bnn = cr.VI(nn.Linear(D, 1), cr.likelihoods.Gaussian(), cr.priors.Horseshoe(), num_data=N)
    found = convergence(bnn, [(torch.zeros(2, D), torch.zeros(2, 1))], count=2)
    assert len(found) == 2
    assert all(math.isnan(each.log_ratio) and math.isfinite(each.pull) for each in found)


def test_a_point_mass_has_no_scales():
    net = nn.Linear(D, 1)
    with pytest.raises(InputError, match="has none"):
        convergence(cr.MAP(net, cr.likelihoods.Gaussian(), num_data=N), [(torch.zeros(2, D), torch.zeros(2, 1))])
    with pytest.raises(InputError, match="no batches"):
        convergence(cr.VI(net, cr.likelihoods.Gaussian(), num_data=N), [])


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: CosineAnnealingLR(o, 50),
        lambda o: MultiStepLR(o, [10, 30], gamma=0.1),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, [0.1, 0.2], 50),
        lambda o: SequentialLR(o, [LinearLR(o, 0.1, total_iters=5), CosineAnnealingLR(o, 45)], [5]),
        lambda o: ChainedScheduler([LinearLR(o, 0.1, total_iters=5), ExponentialLR(o, 0.9)], o),
    ],
)
def test_reach_is_the_sum_of_the_rates_to_come(schedule):
    def build():
        groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.1, 0.2)]
        optimizer = torch.optim.Adam(groups)
        return optimizer, schedule(optimizer)

    optimizer, scheduler = build()
    rates = []
    for _ in range(50):
        rates.append(optimizer.param_groups[1]["lr"])
        optimizer.step()
        scheduler.step()
    optimizer, scheduler = build()
    assert reach(optimizer, scheduler, 1, 50) == pytest.approx(sum(rates))
    after = []
    for _ in range(50):
        after.append(optimizer.param_groups[1]["lr"])
        optimizer.step()
        scheduler.step()
    assert after == rates  # the real schedule has not moved


def test_a_plateau_may_stay_where_it_is():
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.1)
    assert reach(optimizer, ReduceLROnPlateau(optimizer), 0, 7) == pytest.approx(0.7)


def fitted(scale_lr, **options):
    bnn, batches, _ = problem(cr.VL)
    optimizer = torch.optim.Adam(bnn.param_groups(lr=1e-3, scale_lr=scale_lr))
    scheduler = options.pop("scheduler")(optimizer) if "scheduler" in options else None
    cr.fit(bnn, optimizer, batches, progress=False, scheduler=scheduler, **options)


def test_fit_warns_when_the_scales_cannot_come_back_to_the_prior():
    with pytest.warns(ConvergenceWarning, match=r"starts 3\.0 below the prior's, and in 20 steps .* at most 2\.0"):
        fitted(0.1, epochs=20)
    with pytest.warns(ConvergenceWarning, match=r"at most 1\.5"):  # 10 steps at 0.1, 5 at 0.05, 5 at 0.05
        fitted(0.1, epochs=20, scheduler=lambda o: MultiStepLR(o, [10], gamma=0.5))


def test_fit_is_silent_when_they_can_or_when_nobody_knows():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(0.2, epochs=20)
        bnn, batches, _ = problem(cr.VL)
        cr.fit(bnn, torch.optim.SGD(bnn.param_groups(lr=1e-3)), batches, epochs=2, progress=False)
