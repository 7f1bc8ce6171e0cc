"""The last posterior as a prior: what its KL is, when it refreshes, and where training goes under each reading."""

import itertools
import math

import pytest
import torch
from torch import distributions, nn

import credent as cr
from credent.errors import InputError
from credent.layout import Layout

FAMILIES = {"gaussian": cr.families.Gaussian, "radial": cr.families.Radial}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
NOISE = 0.5


def regression(n=60, dim=3, seed=0):
    """Features at right angles, so that weights do not pull on each other; h is the curvature of all data's loss."""
    g = torch.Generator().manual_seed(seed)
    x = torch.linalg.qr(torch.randn(n, dim, generator=g, dtype=torch.float64)).Q * torch.tensor([8.0, 4.0, 2.0])[:dim]
    y = x @ torch.tensor([[1.0], [-0.5], [0.8]], dtype=torch.float64)[:dim]
    y = y + NOISE * torch.randn(n, 1, generator=g, dtype=torch.float64)
    return x, y, x.square().sum(0) / NOISE**2


def mlp(dtype=torch.float64):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)


def vi(prior, net=None, num_data=60, likelihood=None, **options):
    torch.manual_seed(3)
    net = mlp() if net is None else net
    return cr.VI(net, likelihood or cr.likelihoods.Gaussian(NOISE), prior, num_data=num_data, **options)


def bound(prior, net, family=cr.families.Gaussian, **options):
    layout = Layout(net)
    return prior.bind(layout), family(**options).bind(layout)


def exact_noise(bnn, spread):
    """Noise that runs through the 2D points +-spread e_i, mirrored by the family itself: with samples=2D, exact."""
    axes = itertools.cycle(spread * torch.eye(bnn.layout.num_params, dtype=torch.float64))
    bnn.q.standard = lambda noise, like: next(axes)


def state(bnn):
    return torch.cat([p.detach().flatten().clone() for p in bnn.parameters()])


def step(bnn, optimiser, x, y, parts=1):
    for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
        (bnn(a, b) * len(b) / len(y)).backward()
    optimiser.step()
    optimiser.zero_grad()


# -- one_step: as printed ----------------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("beta", [1.0, 1e4])
@pytest.mark.parametrize("parts", [1, 3])
def test_as_printed_it_is_no_prior_at_all_step_by_step(family, beta, parts):
    x, y, _ = regression()
    runs = []
    for prior, weight in ((cr.priors.InverseReference("one_step"), beta), (cr.priors.Gaussian(), 0.0)):
        bnn = vi(prior, family=family(), beta=weight)
        bnn.q.noise.seed(7)
        runs.append((bnn, torch.optim.Adam(bnn.param_groups(lr=0.02, scale_lr=0.05), fused=True)))
    start = state(runs[0][0])
    for _ in range(20):
        for bnn, optimiser in runs:
            step(bnn, optimiser, x, y, parts)
        torch.testing.assert_close(state(runs[0][0]), state(runs[1][0]), rtol=1e-14, atol=1e-15)
    assert runs[0][0].last.penalty == 0
    assert (state(runs[0][0]) - start).norm() > 0.2


def test_under_vl_it_is_no_prior_either():
    x, y, _ = regression()
    found = []
    for prior, beta in ((cr.priors.InverseReference("one_step"), 1.0), (cr.priors.Gaussian(), 0.0)):
        torch.manual_seed(4)
        net = mlp()
        vl = cr.VL(net, cr.likelihoods.Gaussian(NOISE), prior, num_data=60, beta=beta)
        vl.noise.seed(5)
        with torch.no_grad():
            vl.q.scales.rho.fill_(-3.0)
        optimiser = torch.optim.Adam(vl.param_groups(lr=0.02, scale_lr=0.05))
        for _ in range(10):
            step(vl, optimiser, x, y)
        found.append(state(vl))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-13)


def test_the_ablation_is_one_word():
    """beta=0 takes the KL out of every mode that any optimiser may train, also the one that has a gradient."""
    x, y, _ = regression()
    found = []
    for prior in (cr.priors.InverseReference("hybrid"), cr.priors.InverseReference("one_step")):
        bnn = vi(prior, beta=0.0)
        optimiser = torch.optim.SGD(bnn.param_groups(lr=0.01))
        for _ in range(5):
            step(bnn, optimiser, x, y)
        found.append(state(bnn))
    assert torch.equal(found[0], found[1])


# -- the KL ------------------------------------------------------------------------------------------------------------


def away(prior, q, shift, stretch):
    """The prior after one look at q, and q moved on from there."""
    prior(q)
    with torch.no_grad():
        for p in q.layout.params().values():
            p.add_(shift)
        q.scales.rho.add_(stretch)


def test_inner_is_the_kl_of_two_gaussians_with_its_natural_gradient():
    net = nn.Linear(4, 2).double()
    prior, q = bound(cr.priors.InverseReference("inner", every=5), net, initial_scale=0.3)
    before = {k: distributions.Normal(q.mean()[k].clone(), q.stddev()[k].clone()) for k in q.mean()}
    torch.manual_seed(1)
    stretch = 0.3 * torch.randn(10, dtype=torch.float64)
    away(prior, q, 0.05, stretch)
    means = {k: p.detach().clone().requires_grad_() for k, p in net.named_parameters()}
    log_sigma = {k: s.log().requires_grad_() for k, s in q.stddev().items()}
    now = {k: distributions.Normal(means[k], log_sigma[k].exp()) for k in means}
    exact = sum(distributions.kl_divergence(now[k], before[k]).sum() for k in means)
    exact.backward()
    value = prior(q)
    value.backward()
    assert value.item() == pytest.approx(exact.item(), rel=1e-12)
    for k, p in net.named_parameters():
        torch.testing.assert_close(p.grad, q.stddev()[k].square() * means[k].grad)
    by_rho = q.layout.unflatten(q.scales.rho.grad)
    for k in means:
        torch.testing.assert_close(by_rho[k], 0.5 * log_sigma[k].grad)


def radial_kl(dim, shift, stretch, draws=1500):
    net = nn.Linear(dim, 1, bias=False).double()
    prior, q = bound(cr.priors.InverseReference("inner", every=5), net, cr.families.Radial)
    prior.noise.seed(0)
    with torch.no_grad():
        q.scales.rho.zero_()
    away(prior, q, shift / math.sqrt(dim), stretch)
    prior.eval()
    with torch.no_grad():
        each = torch.stack([prior(q) for _ in range(draws)])
    return each.mean().item(), each.std().item() / math.sqrt(draws)


@pytest.mark.parametrize("dim", [1, 100])
def test_a_stretched_radial_has_the_kl_of_one_gaussian(dim):
    stretch = 0.8
    value, error = radial_kl(dim, 0.0, stretch)
    exact = (math.exp(2 * stretch) - 1) / 2 - stretch
    assert abs(value - exact) < 4 * error
    assert error < 0.1 * exact


@pytest.mark.parametrize(("dim", "exact"), [(2, 0.0853), (100, 11.9)])
def test_a_shifted_radial_has_a_cone(dim, exact):
    """At a shift of a tenth of sigma, from an independent Monte Carlo run; a bowl would give 0.005 in both."""
    value, error = radial_kl(dim, 0.1, 0.0, draws=3000)
    assert abs(value - exact) < 4 * error + 0.01 * exact
    assert error < 0.15 * exact


def test_a_radials_slope_is_the_path_derivative_in_natural_form():
    """Against densities of other means: log q - log q_t at a draw, with q's parameters held."""
    net = nn.Linear(3, 1, bias=False).double()
    prior, q = bound(cr.priors.InverseReference("inner", every=9), net, cr.families.Radial, initial_scale=0.5)
    m, s = net.weight.detach().clone(), q.scales.sigma().detach().clone()
    away(prior, q, 0.2, 0.4)
    noise = prior.noise.get_extra_state()
    prior(q).backward()
    prior.noise.set_extra_state(noise)
    e = q.standard(prior.noise, s).view(1, 3)
    mu, rho = net.weight.detach().clone().requires_grad_(), q.scales.rho.detach().clone().requires_grad_()
    w = mu + rho.exp() * e

    def log_density(mean, scale):
        t = ((w - mean) / scale).norm()
        return -scale.log().sum() - t**2 / 2 - 2 * t.log()

    (log_density(mu.detach(), rho.exp().detach()) - log_density(m, s)).backward()
    torch.testing.assert_close(net.weight.grad, rho.exp().detach() ** 2 / 3 * mu.grad)
    torch.testing.assert_close(q.scales.rho.grad, 0.5 * rho.grad)


@pytest.mark.parametrize("dim", [2, 5, 40])
def test_far_from_the_last_q_a_radial_widens_by_half_of_hybrids_slope(dim):
    """All 2D mirrored directions give the expectation; what is left is of order (sigma / shift)^2."""
    net = nn.Linear(dim, 1, bias=False).double()
    prior, q = bound(cr.priors.InverseReference("inner", every=5), net, cr.families.Radial)
    axes = itertools.cycle(1.3 * torch.cat([torch.eye(dim), -torch.eye(dim)]).double())
    away(prior, q, 1e5 * q.scales.sigma()[0].item(), 0.0)
    far = net.weight.detach() - prior.mean.view(1, dim)
    q.standard = lambda noise, like: next(axes)
    torch.stack([prior(q) for _ in range(2 * dim)]).mean().backward()
    slope = torch.full((dim,), -0.5 * (1 - 1 / dim), dtype=torch.float64)
    torch.testing.assert_close(q.scales.rho.grad, slope, rtol=1e-7, atol=0)
    torch.testing.assert_close(net.weight.grad, far / dim, rtol=1e-7, atol=0)  # of a Gaussian's pull, far itself


@each_family
def test_hybrid_always_widens(family):
    """At every step its slope is -(1 - 1/D) in log sigma, and nothing in the means."""
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)).double()
    prior, q = bound(cr.priors.InverseReference("hybrid"), net, family)
    value = prior(q)
    value.backward()
    sizes = {k: p.numel() for k, p in net.named_parameters()}
    assert value.item() == pytest.approx(-sum(0.5 * (d - 1) for d in sizes.values()), abs=1e-12)
    for k, slope in q.layout.unflatten(q.scales.rho.grad).items():
        torch.testing.assert_close(slope, torch.full_like(slope, -(1 - 1 / sizes[k])), rtol=0, atol=1e-14)
    assert all(not p.grad.any() for p in net.parameters())


# -- where it goes -----------------------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_hybrid_is_variational_inference_under_a_flat_prior(family, beta):
    x, y, h = regression()
    for dim in (2, 3) if beta == 1.0 else (3,):
        net = nn.Linear(dim, 1, bias=False).double()
        bnn = vi(cr.priors.InverseReference("hybrid"), net, family=family(), samples=2 * dim, beta=beta)
        exact_noise(bnn, math.sqrt(dim) if family is cr.families.Gaussian else 1.0)
        rates = {"lr": 60 / float(h.max()), "scale_lr": 60 / 4 / beta}
        optimiser = torch.optim.SGD(bnn.param_groups(**rates))
        for _ in range(120):
            step(bnn, optimiser, x[:, :dim], y)
        limit = (beta * (1 - 1 / dim) / h[:dim]).sqrt()
        torch.testing.assert_close(bnn.posterior.stddev()["weight"][0], limit, rtol=0.002, atol=0)
        likely = torch.linalg.lstsq(x[:, :dim], y).solution.flatten()
        torch.testing.assert_close(net.weight.detach().flatten(), likely, rtol=0.002, atol=0.001)


def test_hybrid_under_vl_goes_there_too():
    x, y, h = regression()
    net = nn.Linear(3, 1, bias=False).double()
    prior = cr.priors.InverseReference("hybrid")
    vl = cr.VL(net, cr.likelihoods.Gaussian(NOISE), prior, num_data=60, curvature="hessian")
    optimiser = torch.optim.SGD(vl.param_groups(lr=60 / float(h.max()), scale_lr=15.0))
    for _ in range(100):
        step(vl, optimiser, x, y)
    torch.testing.assert_close(vl.posterior.stddev()["weight"][0], (2 / 3 / h).sqrt(), rtol=0.002, atol=0)


@each_family
def test_inner_slows_training_and_a_gaussian_still_goes_to_maximum_likelihood_with_no_spread(family):
    """Stable all the way down, where the plain gradient (mu - mu_t) / sigma_t^2 blows up."""
    x, y, h = regression()
    distance, spread = {}, {}
    likely = torch.linalg.lstsq(x, y).solution.flatten()
    for beta in (0.0, 60.0):
        net = nn.Linear(3, 1, bias=False).double()
        nn.init.zeros_(net.weight)
        prior = cr.priors.InverseReference("inner", every=20)
        bnn = vi(prior, net, family=family(initial_scale=0.5), samples=4, beta=beta)
        optimiser = torch.optim.SGD(bnn.param_groups(lr=0.3 * 60 / float(h.max()), scale_lr=0.2))
        distance[beta], spread[beta] = [], []
        for _ in range(400):
            distance[beta].append(float((net.weight.detach().flatten() - likely).norm()))
            spread[beta].append(bnn.posterior.stddev()["weight"].mean().item())
            step(bnn, optimiser, x, y)
    assert distance[60.0][30] > 1.05 * distance[0.0][30]
    assert spread[60.0][30] > 1.05 * spread[0.0][30]
    if family is cr.families.Gaussian:  # a radial's KL holds scales up
        assert distance[60.0][-1] < 0.3 * distance[60.0][0]
        assert spread[60.0][-1] < 0.6 * spread[60.0][0]
    assert math.isfinite(distance[60.0][-1] + spread[60.0][-1])


def test_inner_follows_a_loop_written_out():
    """Without noise in the weights, refreshed every 4 steps."""
    x, y, _ = regression()
    net = nn.Linear(3, 1, bias=False).double()
    bnn = vi(cr.priors.InverseReference("inner", every=4), net, beta=90.0)
    bnn.q.standard = lambda noise, like: torch.zeros_like(like)
    optimiser = torch.optim.SGD(bnn.param_groups(lr=0.05, scale_lr=0.1))
    mu, rho = net.weight.detach().flatten().clone(), bnn.q.scales.rho.detach().clone()
    rho[1] = bnn.q.scales.rho.data[1] = -1.0
    for i in range(11):
        if i % 4 == 0:
            m, r = mu.clone(), rho.clone()
        by_mu = -(x.T @ (y.flatten() - x @ mu)) / NOISE**2 / 60 + 90 / 60 * (2 * rho - 2 * r).exp() * (mu - m)
        by_rho = 90 / 60 * 0.5 * ((2 * rho - 2 * r).exp() - 1)
        mu, rho = mu - 0.05 * by_mu, rho - 0.1 * by_rho
        step(bnn, optimiser, x, y)
        torch.testing.assert_close(net.weight.detach().flatten(), mu, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(bnn.q.scales.rho.detach(), rho, rtol=1e-12, atol=1e-14)


# -- refreshes count optimiser steps -----------------------------------------------------------------------------------


def by_hand(parameters, lr):
    """An optimiser of the kind that writes to .data, which no version counter sees."""

    class ByHand:
        def step(self):
            for p in parameters:
                p.data.sub_(lr * p.grad)

        def zero_grad(self):
            for p in parameters:
                p.grad = None

    return ByHand()


OPTIMISERS = {
    "sgd": lambda bnn: torch.optim.SGD(bnn.param_groups(lr=1e-2)),
    "fused": lambda bnn: torch.optim.Adam(bnn.param_groups(lr=1e-2), fused=True),
    "foreach": lambda bnn: torch.optim.AdamW(bnn.param_groups(lr=1e-2), foreach=True),
    "tiny": lambda bnn: torch.optim.Adam(bnn.param_groups(lr=1e-6)),
    "by hand": lambda bnn: by_hand(list(bnn.parameters()), 1e-2),
}


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("objective", ["vi", "vl"])
@pytest.mark.parametrize("parts", [1, 3])
def test_refreshes_count_optimiser_steps(make, objective, parts):
    """Not accumulated batches, nor draws, nor evaluation, nor curvature's extra passes."""
    x, y, _ = (t.float() for t in regression())
    net, prior = mlp(torch.float32), cr.priors.InverseReference("inner", every=3)
    if objective == "vi":
        bnn = vi(prior, net, samples=2)
    else:
        bnn = cr.VL(net, cr.likelihoods.Gaussian(NOISE), prior, num_data=60)
    optimiser, history = make(bnn), []
    for i in range(8):
        history.append((bnn.layout.flatten(bnn.q.mean()).clone(), bnn.q.scales.rho.detach().clone()))
        step(bnn, optimiser, x, y, parts)
        mean, log_scale = history[i - i % 3]
        assert torch.equal(bnn.penalty.mean, mean)
        assert torch.equal(bnn.penalty.log_scale, log_scale)
        bnn.eval()
        with torch.no_grad():
            bnn(x, y)
        bnn.predict(x, samples=2)
        bnn.train()
    assert int(bnn.penalty.steps) == 8


def test_opposite_changes_are_a_step():
    """Within a binade these change the bits of two weights by the same number, up and down."""
    net = nn.Linear(2, 1, bias=False)
    prior, q = bound(cr.priors.InverseReference("inner", every=1), net)
    up = torch.tensor([[1.25, 1.5]])
    by = torch.tensor([[1.2832, 1.4668]]) - up
    for k in range(6):
        with torch.no_grad():
            net.weight.copy_(up + k * by)
        prior(q)
        assert int(prior.steps) == k + 1
        assert torch.equal(prior.mean.view(1, 2), net.weight)


@pytest.mark.parametrize("mode", ["one_step", "annealed"])
def test_a_kl_that_is_zero_draws_nothing(mode, monkeypatch):
    prior, q = bound(cr.priors.InverseReference(mode), nn.Linear(2, 1), cr.families.Radial)
    monkeypatch.setattr(q, "standard", lambda *_: pytest.fail("drew noise"))
    assert prior.eval()(q).item() == 0


def test_an_evaluation_before_training_meets_no_memory():
    x, y, _ = regression()
    bnn = vi(cr.priors.InverseReference("inner", every=3)).eval()
    bnn(x, y)
    assert bnn.last.penalty == 0
    assert int(bnn.penalty.steps) == 0


class Stop(Exception):
    pass


class StopAfter:
    """A monitor that ends the run."""

    def __init__(self, steps):
        self.every, self.steps, self.seen = 1, steps, 0

    def __call__(self, objective):
        self.seen += 1
        if self.seen == self.steps:
            raise Stop
        return {}


@pytest.mark.parametrize("mode", ["one_step", "inner", "hybrid"])
@each_family
def test_a_run_goes_on_bit_for_bit(tmp_path, mode, family):
    """Stopped between two refreshes, with steps of two batches."""
    x, y, _ = regression()
    loader = cr.data.batches(torch.utils.data.TensorDataset(x, y), 10)

    def run(name, stop, resume):
        prior = cr.priors.InverseReference(mode, every=5 if mode == "inner" else None)
        bnn = vi(prior, family=family(), beta=20.0)
        options = {"epochs": 6, "accumulate": 2, "checkpoint_every": 1, "progress": False, "seed": 1}
        optimiser = torch.optim.Adam(bnn.param_groups(lr=1e-2, scale_lr=1e-2))
        return cr.fit(
            bnn, optimiser, loader, run_dir=tmp_path / name, resume=resume, monitors=[StopAfter(stop)], **options
        )

    run("whole", 99, False)
    with pytest.raises(Stop):
        run("stopped", 9, False)
    run("stopped", 99, True)
    for file in ("posterior.safetensors", "history.jsonl"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"mode": "printed"}, "write 'hybrid', 'one_step', 'inner' or 'annealed'"),
        ({"mode": "inner"}, r"every=len\(loader\)"),
        ({"mode": "inner", "every": 0}, "steps between two refreshes"),
        ({"mode": "inner", "every": 2.5}, "steps between two refreshes"),
        ({"mode": "inner", "every": True}, "steps between two refreshes"),
        ({"mode": "hybrid", "every": 5}, "belongs to mode='inner'"),
    ],
)
def test_what_cannot_be_is_said(arguments, match):
    with pytest.raises(InputError, match=match):
        cr.priors.InverseReference(**arguments)


def test_a_point_has_no_spread_to_take():
    x, y, _ = regression()
    bnn = cr.MAP(mlp(), cr.likelihoods.Gaussian(NOISE), cr.priors.InverseReference(), num_data=60)
    with pytest.raises(InputError, match=r"has no spread to take: write cr\.VI"):
        bnn(x, y)


@pytest.mark.parametrize("options", [{"num_data": 0}, {"num_data": 60.0}, {"beta": -1.0}])
def test_the_objective_checks_its_own(options):
    with pytest.raises(InputError, match="|".join(options)):
        vi(cr.priors.InverseReference(), **options)
