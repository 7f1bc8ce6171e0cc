"""Natural gradients with a budget: Bayes' rule under the first q, and nothing but that."""

import math

import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import CheckpointError, ConvergenceWarning, InputError
from credent.optim import Natural

NOISE, FIRST = 1.0, 0.8
FAMILIES = {"gaussian": cr.families.Gaussian, "radial": cr.families.Radial}


def regression(outputs, n=50, seed=0):
    """Many regressions on the same inputs, at right angles: outputs have weights of their own and one curvature h."""
    g = torch.Generator().manual_seed(seed)
    x = torch.linalg.qr(torch.randn(n, 3, generator=g, dtype=torch.float64)).Q * torch.tensor([15.0, 7.0, 3.0])
    w = torch.randn(3, outputs, generator=g, dtype=torch.float64)
    return x, x @ w + NOISE * torch.randn(n, outputs, generator=g, dtype=torch.float64)


def posterior(x, y, power):
    """Mean (outputs, 3) and precision of w ~ N(0, FIRST^2) under the likelihood to a power."""
    precision = power * x.T @ x / NOISE**2 + torch.eye(3, dtype=torch.float64) / FIRST**2
    return torch.linalg.solve(precision, power * x.T @ y / NOISE**2).T, precision


def annealed(outputs=1, family=cr.families.Gaussian, num_data=50, objective=cr.VI, **options):
    torch.manual_seed(1)
    net = nn.Linear(3, outputs, bias=False).double()
    nn.init.zeros_(net.weight)
    prior = cr.priors.InverseReference("annealed")
    if objective is cr.VI:
        options["family"] = family(initial_scale=FIRST * math.sqrt(3))
    bnn = objective(net, cr.likelihoods.Gaussian(NOISE), prior, num_data=num_data, **options)
    if objective is cr.VL:
        with torch.no_grad():
            bnn.q.scales.rho.fill_(math.log(FIRST))
    return bnn


def train(bnn, optimiser, x, y, steps, size=None):
    size = size or len(x)
    g, order = torch.Generator().manual_seed(5), torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) < size:
            order = torch.randperm(len(x), generator=g)
        rows, order = order[:size], order[size:]
        bnn(x[rows], y[rows]).backward()
        optimiser.step()
        optimiser.zero_grad()


def check(bnn, x, y, power, rtol=0.01):
    """Scales averaged over outputs to 1 %, where one output alone has a Monte-Carlo error of 0.7 / sqrt(steps)."""
    mean, precision = posterior(x, y, power)
    ratio = (bnn.posterior.stddev()["weight"] * precision.diagonal().sqrt()).mean(0)
    torch.testing.assert_close(ratio, torch.ones(3, dtype=torch.float64), rtol=0, atol=rtol)
    return float((bnn.posterior.mean()["weight"] - mean).norm() / mean.norm())


@pytest.mark.parametrize("budget", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_budget_is_a_power_of_the_likelihood(budget, family):
    x, y = regression(outputs=200)
    bnn = annealed(200, family)
    train(bnn, Natural(bnn, budget=budget, steps=300), x, y, 300)
    distance = check(bnn, x, y, budget)
    assert budget != 1.0 or distance < 0.02


@pytest.mark.parametrize("budget", [0.25, pytest.param(1.0, marks=pytest.mark.slow)])
def test_the_gradient_by_log_sigma_is_a_curvature_too(budget):
    x, y = regression(outputs=200)
    bnn, steps = annealed(200), int(2000 * budget)
    train(bnn, Natural(bnn, budget=budget, steps=steps, curvature="reparameterised"), x, y, steps)
    assert check(bnn, x, y, budget) < 0.05
    assert budget != 1.0 or check(bnn, x, y, budget) < 0.02


@pytest.mark.slow
def test_one_radius_for_all_weights_is_noisier():
    """Its square scales every weight's curvature at once, so that outputs do not average it out."""
    x, y = regression(outputs=200)
    bnn = annealed(200, cr.families.Radial)
    train(bnn, Natural(bnn, steps=2000, curvature="reparameterised"), x, y, 2000)
    assert check(bnn, x, y, 1.0, rtol=4 * 0.7 / math.sqrt(2000)) < 0.04


def test_small_batches_give_the_same():
    x, y = regression(outputs=200)
    bnn = annealed(200)
    train(bnn, Natural(bnn, budget=1.0, steps=400), x, y, 400, size=10)
    assert check(bnn, x, y, 1.0) < 0.02


@pytest.mark.parametrize("curvature", ["gauss_newton", "reparameterised"])
def test_vl_has_its_own_curvature(curvature):
    x, y = regression(outputs=200)
    bnn = annealed(200, objective=cr.VL, fraction=1.0)
    train(bnn, Natural(bnn, budget=1.0, steps=400, curvature=curvature), x, y, 400)
    assert check(bnn, x, y, 1.0) < 0.02


def by_the_book(bnn, unit, curvature, fisher):
    """The update of docstring and paper, from the gradients that are there: precision first, then mean."""
    rho, mean = bnn.q.scales.rho.detach(), bnn.net.weight.detach().flatten()
    s = (-2 * rho).exp() if isinstance(bnn.q, cr.families.gaussian.GaussianPosterior) else 3 * (-2 * rho).exp()
    if curvature == "gauss_newton":
        s_new = s + unit * fisher
    else:
        h = bnn.q.scales.rho.grad * s
        s_new = s + unit * h + (unit * h) ** 2 / (2 * s)
    return mean - unit * bnn.net.weight.grad.flatten() / s_new, (s / s_new).sqrt() * rho.exp()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("curvature", ["gauss_newton", "reparameterised"])
def test_one_step_by_the_book(family, curvature):
    x, y = regression(outputs=1)
    bnn = annealed(1, family, samples=3)
    optimiser = Natural(bnn, budget=0.5, steps=10, curvature=curvature)
    for _ in range(4):
        for part in (slice(0, 20), slice(20, 50)):
            (bnn(x[part], y[part]) * len(x[part]) / 50).backward()
        fisher = None if optimiser._squares is None else optimiser._squares / 50
        mean, scale = by_the_book(bnn, 0.05 * 50, curvature, fisher)
        optimiser.step()
        optimiser.zero_grad()
        torch.testing.assert_close(bnn.net.weight.detach().flatten(), mean, rtol=1e-12, atol=0)
        torch.testing.assert_close(bnn.q.scales.sigma().detach(), scale, rtol=1e-12, atol=0)


@pytest.mark.parametrize("parts", [1, 4])
def test_the_fisher_information_is_unbiased(parts):
    """Softmax regression has it in closed form at given weights: sum_n x_i^2 p_k (1 - p_k)."""
    torch.manual_seed(0)
    net, x, y = nn.Linear(2, 3, bias=False).double(), torch.randn(12, 2).double(), torch.zeros(12, dtype=torch.int64)
    prior = cr.priors.InverseReference("annealed")
    family = cr.families.Gaussian(initial_scale=1e-6)  # at the mean
    bnn = cr.VI(net, cr.likelihoods.Categorical(), prior, num_data=12, family=family)
    optimiser = Natural(bnn, steps=10)
    found = []
    for _ in range(600):
        for rows in x.chunk(parts):
            bnn(rows, y[: len(rows)])
        found.append(optimiser._fisher())
    p = net(x).softmax(-1).detach()
    exact = torch.einsum("ni,nk->ki", x.square(), p * (1 - p)).flatten() / 12
    each = torch.stack(found)
    error = each.std(0) / math.sqrt(len(each))
    assert ((each.mean(0) - exact).abs() < 4 * error).all()
    assert (error < 0.1 * exact).all()


# -- the budget --------------------------------------------------------------------------------------------------------


def test_a_budget_is_spent_once():
    x, y = regression(outputs=1)
    bnn = annealed()
    optimiser = Natural(bnn, budget=1.0, steps=7)
    train(bnn, optimiser, x, y, 7)
    assert optimiser.param_groups[0]["spent"] == pytest.approx(1.0)
    before = bnn.net.weight.detach().clone()
    with pytest.raises(InputError, match=r"all of it is spent.*epochs \* len\(loader\)"):
        train(bnn, optimiser, x, y, 1)
    assert torch.equal(bnn.net.weight, before)


def test_a_schedule_moves_the_shares_and_not_the_budget():
    x, y = regression(outputs=1)
    bnn = annealed()
    optimiser = Natural(bnn, budget=1.0, steps=10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: 2.0)
    for _ in range(5):
        train(bnn, optimiser, x, y, 1)
        schedule.step()
    assert optimiser.param_groups[0]["spent"] == pytest.approx(1.0)
    with pytest.raises(InputError, match="all of it is spent"):
        train(bnn, optimiser, x, y, 1)


@pytest.mark.parametrize(("accumulate", "cosine", "spent"), [(2, False, 0.5), (1, True, 0.55)])
def test_a_budget_that_is_not_spent_is_said(accumulate, cosine, spent):
    """Under a cosine over all steps the mean of (1 + cos(pi t / 10)) / 2, t = 0, ..., 9."""
    loader = [regression(outputs=1)] * 5
    bnn = annealed()
    optimiser = Natural(bnn, steps=10) if cosine else Natural(bnn, steps=12)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10) if cosine else None
    options = {"accumulate": accumulate, "scheduler": schedule, "schedule": "step", "progress": False}
    with pytest.warns(ConvergenceWarning, match=rf"{spent:g} of Natural\(budget=1\) is spent.*accumulate"):
        cr.fit(bnn, optimiser, loader, epochs=2, **options)
    assert optimiser.param_groups[0]["spent"] == pytest.approx(spent)


def test_a_second_optimiser_takes_the_place_of_the_first():
    x, y = regression(outputs=1)
    bnn, calls = annealed(), []
    bnn.net.register_forward_hook(lambda *_: calls.append(1))
    first = Natural(bnn, steps=5)
    for curvature, forwards in (("gauss_newton", 2), ("gauss_newton", 2), ("reparameterised", 1)):
        newest = Natural(bnn, steps=5, curvature=curvature)
        calls.clear()
        train(bnn, newest, x, y, 1)
        assert len(calls) == forwards
    bnn(x, y).backward()
    with pytest.raises(InputError, match="second Natural was built"):
        first.step()


def test_a_learnt_noise_trains_beside_it():
    x, y = regression(outputs=3)
    prior, likelihood = cr.priors.InverseReference("annealed"), cr.likelihoods.Gaussian("learnt", outputs=3)
    bnn = cr.VI(nn.Linear(3, 3, bias=False).double(), likelihood.double(), prior, num_data=50)
    with pytest.warns(UserWarning, match=r"does not move likelihood.*optim\.Together\(natural.*Gaussian\(0\.1\)"):
        cr.fit(bnn, Natural(bnn, steps=2), [(x, y)], steps=2, progress=False)
    before = likelihood.log_scale.detach().clone()
    both = cr.optim.Together(Natural(bnn, steps=3), torch.optim.Adam(likelihood.parameters(), lr=0.01))
    cr.fit(bnn, both, [(x, y)], steps=3, progress=False)
    assert (likelihood.log_scale != before).all()
    with pytest.raises(InputError, match=r"clip=1\.0 bounds the gradient and not the curvature"):
        cr.fit(bnn, both, [(x, y)], steps=3, clip=1.0, progress=False)


@pytest.mark.parametrize("other", [{"budget": 2.0}, {"steps": 9}, {"curvature": "reparameterised"}])
def test_a_run_goes_on_with_the_budget_that_it_was_begun_with(tmp_path, other):
    x, y = regression(outputs=1)

    def run(resume, **options):
        bnn = annealed()
        optimiser = Natural(bnn, **{"steps": 3, **options})
        cr.fit(bnn, optimiser, [(x, y)], steps=3, run_dir=tmp_path, resume=resume, progress=False)

    run(False)
    with pytest.raises(CheckpointError, match=rf"its {next(iter(other))} of Natural is"):
        run(True, **other)


def test_evaluation_spends_nothing_and_changes_nothing():
    x, y = regression(outputs=1)
    found = []
    for evaluate in (False, True):
        bnn = annealed()
        optimiser = Natural(bnn, steps=10)
        train(bnn, optimiser, x, y, 2)
        if evaluate:
            bnn.eval()
            state = bnn.q.noise.get_extra_state()
            bnn(x, y)
            bnn.q.noise.set_extra_state(state)
            bnn.train()
        train(bnn, optimiser, x, y, 2)
        found.append(bnn.net.weight.detach().clone())
    assert torch.equal(found[0], found[1])


class Stop(Exception):
    pass


class StopAfter:
    def __init__(self, steps):
        self.every, self.steps, self.seen = 1, steps, 0

    def __call__(self, objective):
        self.seen += 1
        if self.seen == self.steps:
            raise Stop
        return {}


@pytest.mark.parametrize("curvature", ["gauss_newton", "reparameterised"])
def test_a_run_goes_on_bit_for_bit(tmp_path, curvature):
    x, y = regression(outputs=2)

    def run(name, stop, resume):
        loader = cr.data.batches(torch.utils.data.TensorDataset(x, y), 10, shuffle=True, seed=0)
        bnn = annealed(2)
        optimiser = Natural(bnn, budget=1.0, steps=15, curvature=curvature)
        options = {"epochs": 5, "accumulate": 2, "checkpoint_every": 1, "progress": False, "seed": 1}
        return cr.fit(
            bnn, optimiser, loader, run_dir=tmp_path / name, resume=resume, monitors=[StopAfter(stop)], **options
        )

    assert run("whole", 99, False).steps == 15
    with pytest.raises(Stop):
        run("stopped", 8, False)
    run("stopped", 99, True)
    for file in ("posterior.safetensors", "history.jsonl"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


# -- what cannot be ----------------------------------------------------------------------------------------------------


def test_no_other_optimiser_trains_the_annealed_mode():
    x, y = regression(outputs=1)
    loader = [(x, y)]
    with pytest.raises(InputError, match=r"cr\.optim\.Natural\(bnn, budget=1\.0, steps=\.\.\.\)"):
        cr.fit(annealed(), None, loader, steps=1, progress=False)
    with pytest.raises(InputError, match="q was not moved by them"):
        annealed()(x, y)
    bnn = annealed()
    Natural(bnn, steps=10)
    with pytest.raises(InputError, match="q was not moved by them"):
        cr.fit(bnn, torch.optim.Adam(bnn.param_groups(lr=1e-3), fused=True), loader, steps=2, progress=False)
    bnn = annealed()
    Natural(bnn, steps=10)
    others = torch.optim.SGD(bnn.net.parameters(), lr=1e-3)  # also one that leaves the scales alone
    bnn(x, y).backward()
    others.step()
    with pytest.raises(InputError, match="q was not moved by them"):
        bnn(x, y)
    bnn.eval()
    bnn(x, y)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"budget": 0.0, "steps": 5}, "1 is Bayes' rule"),
        ({"budget": math.inf, "steps": 5}, "1 is Bayes' rule"),
        ({"steps": 0}, r"epochs \* len\(loader\)"),
        ({"steps": 10.0}, r"epochs \* len\(loader\)"),
        ({"steps": 5, "curvature": "hessian"}, "'gauss_newton' or 'reparameterised'"),
    ],
)
def test_what_cannot_be_is_said(options, match):
    with pytest.raises(InputError, match=match):
        Natural(annealed(), **options)


def test_natural_wants_the_annealed_prior_and_its_budget_alone():
    net = nn.Linear(3, 1)
    for prior in (cr.priors.Gaussian(), cr.priors.InverseReference("hybrid")):
        bnn = cr.VI(net, cr.likelihoods.Gaussian(NOISE), prior, num_data=100)
        with pytest.raises(InputError, match=r"InverseReference\('annealed'\), num_data=100"):
            Natural(bnn, steps=5)
    bnn = cr.MAP(net, cr.likelihoods.Gaussian(NOISE), cr.priors.InverseReference("annealed"), num_data=100)
    with pytest.raises(InputError, match="in the place of MAP"):
        Natural(bnn, steps=5)
    for beta in (0.0, 0.5, lambda batch: 1.0):
        with pytest.raises(InputError, match="Leave beta=1, and write budget=1/beta"):
            Natural(annealed(beta=beta), steps=5)
    with pytest.raises(InputError, match=r"it moves the q of an objective"):
        Natural(net.parameters(), steps=5)


def test_a_step_without_a_forward_in_training_is_said():
    x, y = regression(outputs=1)
    bnn = annealed()
    optimiser = Natural(bnn, steps=5)
    bnn.eval()
    bnn(x, y).backward()
    with pytest.raises(InputError, match="in training mode before"):
        optimiser.step()


def test_a_step_without_gradients_spends_nothing():
    optimiser = Natural(annealed(), steps=5)
    optimiser.step()
    assert optimiser.param_groups[0]["spent"] == 0
