"""A KL from many draws: equal to the sum with all graphs held, at the memory of one."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from credent import VI, families, likelihoods, priors
from credent.errors import InputError
from credent.layout import Layout
from credent.objectives import sampled_kl as module
from credent.objectives.sampled_kl import kl_at, sampled_kl

ESTIMATORS = ("path", "total", "score")
PRIORS = {
    "gaussian": priors.Gaussian(scale=0.7),
    "laplace": priors.Laplace(),
    "mixture": priors.ScaleMixture(),
    "horseshoe": priors.Horseshoe(),
    "learnt": priors.Horseshoe(0.5, learnt=True),
    "nodes": priors.NodeHorseshoe(),
}
FAMILIES = {"gaussian": families.Gaussian(0.5), "radial": families.Radial(0.5)}


def pair(prior, family, dtype=torch.float64):
    """q and p on a small network with a norm layer, whose gains rest at one."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 2)).to(dtype)
    layout = Layout(net)
    q, p = family.bind(layout), prior.bind(layout)
    q.noise.seed(3)
    return q, p, [*layout.params().values(), *q.parameters(), *p.parameters()]


def gradients(value, leaves):
    return [
        torch.zeros_like(p) if g is None else g
        for p, g in zip(leaves, torch.autograd.grad(value, leaves, allow_unused=True), strict=True)
    ]


def naive(q, p, estimator, samples):
    return torch.stack([kl_at(q, p, q.rsample(), estimator) for _ in range(samples)]).mean()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize(("dtype", "relative"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_value_and_gradients_are_those_of_the_naive_sum(prior, family, estimator, dtype, relative):
    if dtype == torch.float32 and family is FAMILIES["radial"] and estimator != "path":
        pytest.skip("a radial's log-density has terms that nearly cancel: float32 says little about it")
    for samples in (1, 2, 5):
        results = []
        for way in (sampled_kl, naive):
            q, p, leaves = pair(prior, family, dtype)
            value = way(q, p, estimator, samples)
            results.append([value.detach(), *gradients(value, leaves)])
        mine, theirs = results
        for a, b in zip(mine, theirs, strict=True):
            assert (a - b).norm() <= relative * b.norm().clamp(min=1.0 if dtype == torch.float32 else 1e-3)
        assert mine[-1].norm() > 0
        assert mine[1].norm() > 0


def test_regrouped_moments_are_used_where_both_are_quadratic(monkeypatch):
    """No draw of the weights is made for a Gaussian prior and family."""
    monkeypatch.setattr(families.gaussian.GaussianPosterior, "rsample", lambda self: pytest.fail("drew weights"))
    q, p, leaves = pair(PRIORS["gaussian"], FAMILIES["gaussian"])
    value, closed = sampled_kl(q, p, "path", 1000), q.kl(p)
    # 500 mirrored pairs: the first moments of the noise vanish, and the second have variance 2 / 500
    scale = q.layout.flatten({k: torch.full_like(w, p.scale[k]) for k, w in q.mean().items()})
    error = ((q.scales.sigma().detach() / scale).square() - 1).abs() * math.sqrt(2 / 500)  # of the slope in log sigma
    assert abs(value.item() - closed.item()) < 4 * 0.5 * error.norm()
    *by_mean, by_rho = [a - b for a, b in zip(gradients(value, leaves), gradients(closed, leaves), strict=True)]
    assert all(each.abs().max() < 1e-9 for each in by_mean)
    z = by_rho / error
    assert z.abs().max() < 4.5
    assert abs(z.square().mean() - 1) < 4 * math.sqrt(2 / len(z))


def test_many_draws_come_near_the_expectation():
    """The horseshoe's KL for equal weights, whose expectation a fine sum over w gives."""
    mu, sigma, n, samples = 0.4, 0.3, 200, 250
    net = nn.Linear(n, 1, bias=False).double()
    nn.init.constant_(net.weight, mu)
    layout = Layout(net)
    q, p = families.Gaussian(sigma * math.sqrt(n)).bind(layout), priors.Horseshoe(0.2).bind(layout)
    q.noise.seed(0)
    w = torch.linspace(mu - 9 * sigma, mu + 9 * sigma, 200_001, dtype=torch.float64)
    log_q = -0.5 * ((w - mu) / sigma) ** 2 - math.log(sigma * math.sqrt(2 * math.pi))
    each = log_q - (p.density.log_density(w / 0.2) - math.log(0.2))
    share = log_q.exp() * (w[1] - w[0])
    expected = n * (each * share).sum().item()
    error = math.sqrt(n / samples * ((each - expected / n) ** 2 * share).sum().item())
    value = sampled_kl(q, p, "path", samples)
    assert abs(value.item() - expected) < 4 * error
    assert error < 0.01 * expected


def held(prior, samples, way):
    """The most bytes that graphs hold at a time, by the tensors that autograd saves for its backward pass."""
    q, p, leaves = pair(prior, FAMILIES["gaussian"])
    alive = most = 0

    class Saved:
        def __init__(self, tensor):
            nonlocal alive, most
            # detached, as an output that a function saves would hold the function and never go
            self.tensor, self.size = tensor.detach(), tensor.numel() * tensor.element_size()
            alive += self.size
            most = max(most, alive)

        def __del__(self):
            nonlocal alive
            alive -= self.size

    with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
        value = way(q, p, "path", samples)
    gradients(value, leaves)
    return most


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_graphs_are_held_one_at_a_time(prior):
    one = held(prior, 1, sampled_kl)
    # beyond the one graph there is the sum of gradients, which M = 1 has only after its graph is gone
    sums = sum(p.numel() * p.element_size() for p in pair(prior, FAMILIES["gaussian"])[2])
    assert held(prior, 2, sampled_kl) == held(prior, 40, sampled_kl) <= one + sums
    if prior is not PRIORS["gaussian"]:
        assert held(prior, 40, naive) > 30 * held(prior, 1, naive)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_draws_take_the_memory_of_one_on_resnet18():
    path = Path(__file__).resolve().parents[2] / "bench" / "kl_samples.py"
    spec = importlib.util.spec_from_file_location("kl_samples", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    _, one = bench.in_process("horseshoe", 1, naive=False)
    _, twenty = bench.in_process("horseshoe", 20, naive=False)
    assert twenty <= 1.1 * one


# -- in VI ------------------------------------------------------------------------------------------------------------


def objective(prior=PRIORS["horseshoe"], **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    return VI(net, likelihoods.Gaussian(1.0), prior, num_data=30, **options)


@pytest.mark.parametrize("estimator", ["closed", *ESTIMATORS])
def test_the_loss_takes_draws_of_its_own_for_the_kl(estimator):
    bnn, other = (objective(estimator=estimator, kl_samples=6) for _ in range(2))
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
    for _ in range(2):  # the second backward adds to the first
        bnn(x, y).backward()
        kl = torch.stack([kl_at(other.q, other.penalty, other.q.rsample(), estimator) for _ in range(6)]).mean()
        nll = -likelihoods.Gaussian(1.0).log_prob(other.network(other.q.rsample(), x), y).mean()
        (nll + kl / 30).backward()
        assert bnn.last.penalty.item() == pytest.approx(kl.item(), rel=1e-12)
        assert bnn.last.nll.item() == pytest.approx(nll.item(), rel=1e-12)
    for mine, theirs in zip(bnn.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-13)


def test_a_closed_form_needs_no_draws(monkeypatch):
    monkeypatch.setattr(module, "sampled_kl", lambda *_: pytest.fail("drew"))
    bnn = objective(priors.Gaussian(), kl_samples=1000)
    bnn(torch.zeros(1, 4, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    assert bnn.last.penalty.item() == pytest.approx(bnn.q.kl(bnn.penalty).item(), rel=1e-12)


def test_without_gradients_it_is_a_number():
    bnn = objective(kl_samples=5)
    with torch.no_grad():
        loss = bnn(torch.zeros(1, 4, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    assert not loss.requires_grad
    assert torch.isfinite(loss)


def test_no_draws_are_refused():
    with pytest.raises(InputError, match=r"kl_samples=0\): at least one draw"):
        objective(kl_samples=0)
