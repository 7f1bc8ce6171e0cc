"""What every likelihood must satisfy. A new likelihood is one line in MEMBERS."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import nn

from credent.errors import InputError
from credent.likelihoods import Bernoulli, Categorical, Gaussian


def learnt(*scales):
    likelihood = Gaussian("learnt", outputs=len(scales)).double()
    with torch.no_grad():
        likelihood.log_scale.copy_(torch.tensor(scales).log())
    return likelihood


def categorical(f, y):
    each = np.log(np.exp(f) / np.exp(f).sum(-1, keepdims=True))
    return np.take_along_axis(each, y[..., None], -1).reshape(len(y), -1).sum(1)


def logistic(f, y):
    each = 1 / (1 + np.exp(-f))
    each = np.log(each / each.sum(-1, keepdims=True))
    return np.take_along_axis(each, y[..., None], -1).reshape(len(y), -1).sum(1)


def bernoulli(f, y):
    return stats.binom.logpmf(y, 1, 1 / (1 + np.exp(-f))).reshape(len(y), -1).sum(1)


def gaussian(scale):
    return lambda f, y: stats.norm.logpdf(y, f, scale).reshape(len(y), -1).sum(1)


def heteroscedastic(f, y):
    mean, raw = np.split(f, 2, -1)
    return stats.norm.logpdf(y, mean, np.log1p(np.exp(raw)) + 1e-4).reshape(len(y), -1).sum(1)


@dataclass(frozen=True)
class Member:
    """A likelihood, the shape of one datum's outputs, log p(y|f) by other means, and the y of one datum that exist."""

    likelihood: nn.Module
    outputs: tuple[int, ...]
    log_prob: Callable
    support: torch.Tensor
    """All values of one datum's y, or a fine grid over them, (k, ...)."""
    width: float = 1.0
    """The step of the grid."""


GRID = torch.linspace(-30, 30, 6001, dtype=torch.float64)[:, None]
PAIRS = torch.tensor([[a, b] for a in (0, 1) for b in (0, 1)])
TRIPLES = torch.tensor([[a, b] for a in (0, 1, 2) for b in (0, 1, 2)])

MEMBERS = {
    "categorical": Member(Categorical(), (4,), categorical, torch.arange(4)),
    "categorical-sequence": Member(Categorical(), (2, 3), categorical, TRIPLES),
    "categorical-logistic": Member(Categorical(link="logistic"), (4,), logistic, torch.arange(4)),
    "categorical-logistic-sequence": Member(Categorical(link="logistic"), (2, 3), logistic, TRIPLES),
    "bernoulli": Member(Bernoulli(), (1,), bernoulli, torch.tensor([[0], [1]])),
    "bernoulli-pair": Member(Bernoulli(), (2,), bernoulli, PAIRS),
    "gaussian": Member(Gaussian(scale=0.5), (1,), gaussian(0.5), GRID, 0.01),
    "gaussian-learnt": Member(learnt(0.7), (1,), gaussian(0.7), GRID, 0.01),
    "gaussian-heteroscedastic": Member(Gaussian("heteroscedastic"), (2,), heteroscedastic, GRID, 0.01),
}
each_member = pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)


def outputs_of(member, n, seed=0, spread=1.5):
    g = torch.Generator().manual_seed(seed)
    return spread * torch.randn(n, *member.outputs, generator=g, dtype=torch.float64)


def targets_of(member, n, seed=1):
    g = torch.Generator().manual_seed(seed)
    return member.support[torch.randint(len(member.support), (n,), generator=g)]


# -- the law ----------------------------------------------------------------------------------------------------------


@each_member
def test_log_prob_against_scipy(member):
    f, y = outputs_of(member, 50), targets_of(member, 50)
    found = member.likelihood.log_prob(f, y)
    assert found.shape == (50,)
    assert found.detach().numpy() == pytest.approx(member.log_prob(f.numpy(), y.numpy()), rel=1e-6)


@each_member
def test_probabilities_sum_to_one(member):
    for f in outputs_of(member, 3, seed=2):
        each = member.likelihood.log_prob(f.expand(len(member.support), *f.shape), member.support)
        assert (each.exp().sum() * member.width).item() == pytest.approx(1, abs=1e-6)


@each_member
def test_draws_follow_log_prob(member):
    n, f = 20_000, outputs_of(member, 1, seed=3, spread=1.0)
    drawn = member.likelihood.draw(f.expand(n, *member.outputs), torch.Generator().manual_seed(4)).detach()
    assert drawn.shape == (n, *member.support.shape[1:])
    density = member.likelihood.log_prob(f.expand(len(member.support), *member.outputs), member.support).exp()
    if member.width < 1:  # a grid over a continuous y
        cdf = np.cumsum(density.detach().numpy()) * member.width
        at = member.support.flatten().numpy() + member.width / 2
        assert stats.kstest(drawn.flatten().numpy(), lambda v: np.interp(v, at, cdf)).pvalue > 1e-3
    else:
        same = (drawn[:, None].double() == member.support.double()).reshape(n, len(member.support), -1).all(-1)
        counts = same.sum(0).numpy()
        assert counts.sum() == n
        assert stats.chisquare(counts, n * density.detach().numpy()).pvalue > 1e-3


@each_member
def test_draws_are_targets_and_follow_the_generator(member):
    f = outputs_of(member, 40, seed=5).requires_grad_()

    def draw(seed):
        return member.likelihood.draw(f, torch.Generator().manual_seed(seed))

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    if isinstance(member.likelihood, Gaussian):  # they move with their mean
        (moved,) = torch.autograd.grad(draw(0).sum(), f)
        assert torch.equal(moved[..., : draw(0).shape[-1]], torch.ones_like(draw(0)))
    else:
        assert not draw(0).requires_grad
    assert torch.isfinite(member.likelihood.log_prob(f, draw(0))).all()  # observed y are shaped and typed alike
    torch.manual_seed(0)
    first = member.likelihood.draw(f)
    torch.manual_seed(0)
    assert torch.equal(first, member.likelihood.draw(f))


@each_member
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0.0, 50.0, 1e4])
def test_gradients_are_finite_at_extreme_outputs(member, size, dtype):
    f = (size * torch.sign(outputs_of(member, 50, seed=6))).to(dtype).requires_grad_()
    y = targets_of(member, 50, seed=7)
    value = member.likelihood.log_prob(f, y if member.width == 1 else y.to(dtype))
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(f.grad).all()


@each_member
def test_gradients_are_finite_differences(member):
    y = targets_of(member, 4, seed=8)
    f = outputs_of(member, 4, seed=9).requires_grad_()
    assert torch.autograd.gradcheck(lambda value: member.likelihood.log_prob(value, y), f)


@each_member
def test_log_prob_is_one_number_per_datum(member):
    f, y = outputs_of(member, 6, seed=10), targets_of(member, 6, seed=11)
    whole = member.likelihood.log_prob(f, y)
    for i in range(6):
        assert member.likelihood.log_prob(f[i : i + 1], y[i : i + 1]).item() == pytest.approx(
            whole[i].item(), rel=1e-12
        )


@each_member
def test_scores_have_mean_zero_and_the_covariance_of_drawn_labels(member):
    """The Fisher information of f by summing over all y, each entry within five standard errors of 20,000 draws."""
    n, f = 20_000, outputs_of(member, 1, seed=15)
    support = member.support if member.width == 1 else member.support[::10]

    def log_prob(value, y):
        return member.likelihood.log_prob(value.reshape(1, *member.outputs), y[None])[0]

    each = torch.stack([torch.func.grad(log_prob)(f.flatten(), y) for y in support]).detach()
    density = torch.stack([log_prob(f.flatten(), y).exp() for y in support]).detach()
    density = density / density.sum()
    exact = torch.einsum("k,ki,kj->ij", density, each, each)
    outputs = f.expand(n, *member.outputs).clone().requires_grad_()
    drawn = member.likelihood.score(outputs, torch.Generator().manual_seed(16)).detach().reshape(n, -1)
    products = torch.einsum("ni,nj->nij", drawn, drawn)
    error = products.std(0) / n**0.5
    assert ((products.mean(0) - exact).abs() <= 5 * error + 1e-9).all()
    assert (drawn.mean(0).abs() <= 5 * drawn.std(0) / n**0.5 + 1e-9).all()
    assert (error <= 0.05 * exact.abs().max()).all()


# -- predictives ------------------------------------------------------------------------------------------------------

ONE_TARGET = {k: m for k, m in MEMBERS.items() if m.support[0].numel() == 1}
each_single = pytest.mark.parametrize("member", ONE_TARGET.values(), ids=ONE_TARGET)


@each_single
@pytest.mark.parametrize("draws", [1, 2, 7])
def test_predictive_is_the_mixture_of_its_draws(member, draws):
    f = [outputs_of(member, 20, seed=20 + s) for s in range(draws)]
    y = targets_of(member, 20, seed=12)
    pred = member.likelihood.predictive(iter(f))
    naive = special.logsumexp([member.log_prob(each.numpy(), y.numpy()) for each in f], axis=0) - math.log(draws)
    found = pred.log_prob(y)
    assert found.reshape(20).numpy() == pytest.approx(naive, rel=1e-6, abs=1e-9)
    assert pred.num_draws == draws
    assert not found.requires_grad


@each_member
def test_equal_draws_leave_nothing_epistemic(member):
    f = outputs_of(member, 5, seed=13)
    pred = member.likelihood.predictive([f, f, f])
    assert pred.epistemic.abs().max() < 1e-7
    assert pred.mutual_information.abs().max() < 1e-4
    assert pred.mean.detach().numpy() == pytest.approx(member.likelihood.predictive([f]).mean.detach().numpy())


@each_member
def test_no_draws_is_an_error(member):
    with pytest.raises(InputError, match="samples >= 1"):
        member.likelihood.predictive([])


# -- inputs that cannot be meant --------------------------------------------------------------------------------------


@each_member
def test_targets_of_another_shape_are_refused(member):
    f, y = outputs_of(member, 6), targets_of(member, 6)
    wrong = {"short": y[:5], "extra axis": y.unsqueeze(-1), "transposed": y.unsqueeze(0), "scalar": y.flatten()[0]}
    if y.ndim > 1:
        wrong["missing axis"] = y[:, 0]
    for each in wrong.values():
        with pytest.raises(InputError, match="shape") as caught:
            member.likelihood.log_prob(f, each)
        assert str(tuple(each.shape)) in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_categorical_takes_every_integer_type(dtype):
    y = torch.tensor([0, 2, 1], dtype=dtype)
    assert torch.equal(Categorical().log_prob(torch.eye(3), y), Categorical().log_prob(torch.eye(3), y.long()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.complex64])
def test_categorical_needs_integer_labels(dtype):
    with pytest.raises(InputError, match=r"y\.long\(\)"):
        Categorical().log_prob(torch.zeros(2, 3), torch.ones(2, dtype=dtype))


def test_categorical_lists_its_links():
    with pytest.raises(InputError, match="write 'softmax' or 'logistic'"):
        Categorical(link="probit")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logistic_probabilities_of_huge_outputs(dtype):
    """Where exp and the logistic function have no digits left: by hand."""
    likelihood = Categorical(link="logistic")
    f = torch.tensor([[-1e4, -1e4 + 1, -2e4], [1e4, 2e4, 3e4], [-1e4, 1e4, 1e4], [0.0, 1e4, -1e4]], dtype=dtype)
    small, large = 1 / (1 + math.e), math.e / (1 + math.e)
    expected = [[small, large, 0.0], [1 / 3] * 3, [0.0, 0.5, 0.5], [1 / 3, 2 / 3, 0.0]]
    for found, row in zip(likelihood.predictive([f]).probs.tolist(), expected, strict=True):
        assert found == pytest.approx(row, rel=1e-6)
    assert likelihood.log_prob(f[2:3], torch.tensor([0])).item() == pytest.approx(-1e4 - math.log(2), rel=1e-6)
    assert torch.isfinite(likelihood.score(f, torch.Generator().manual_seed(0))).all()


def test_categorical_takes_classes_not_one_hot():
    with pytest.raises(InputError, match=r"y\.argmax\(-1\)"):
        Categorical().log_prob(torch.zeros(3, 3), torch.eye(3).long())
    with pytest.raises(InputError, match=r"labels must have shape \(3,\), and y has \(3, 1\)"):
        Categorical().log_prob(torch.zeros(3, 4), torch.zeros(3, 1, dtype=torch.long))


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [1, 100], [-100, 2]])
def test_categorical_labels_stay_within_the_outputs(labels):
    with pytest.raises(InputError, match=rf"from {min(labels)} to {max(labels)}.*classes are 0 to 2.*more outputs"):
        Categorical().log_prob(torch.zeros(2, 3), torch.tensor(labels))


@pytest.mark.parametrize("value", [2.0, -1.0, 0.5, math.nan])
def test_bernoulli_targets_are_binary(value):
    with pytest.raises(InputError, match=r"Categorical\(\)"):
        Bernoulli().log_prob(torch.zeros(2, 1), torch.tensor([[0.0], [value]]))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.float64])
def test_bernoulli_takes_targets_of_any_type(dtype):
    y = torch.tensor([[0], [1]]).to(dtype)
    assert Bernoulli().log_prob(torch.tensor([[0.0], [1.0]]), y).tolist() == pytest.approx(
        [math.log(0.5), -math.log1p(math.exp(-1))], rel=1e-6
    )


@pytest.mark.parametrize("likelihood", [Bernoulli(), Gaussian(scale=0.5), Gaussian("learnt")], ids=repr)
def test_a_missing_last_axis_would_pair_all_with_all(likelihood):
    with pytest.raises(InputError, match=r"every target with every prediction.*y\.unsqueeze\(-1\)"):
        likelihood.log_prob(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(InputError):
        likelihood.log_prob(torch.zeros(3), torch.zeros(3, 1))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_gaussian_noise_is_positive(scale):
    with pytest.raises(InputError, match="positive number"):
        Gaussian(scale=scale)


def test_gaussian_lists_its_kinds_of_noise():
    with pytest.raises(InputError, match="a positive number, 'learnt' or 'heteroscedastic'"):
        Gaussian(scale="learned")


def test_gaussian_refuses_outputs_that_do_not_fit_its_noise():
    for shape in ((4, 2), (4,)):
        with pytest.raises(InputError, match=r"Gaussian\('learnt', outputs=D\)"):
            Gaussian("learnt", outputs=3).log_prob(torch.zeros(shape), torch.zeros(shape))
    for shape in ((4, 3), (4,)):
        with pytest.raises(InputError, match=r"nn\.Linear\(width, 2 \* D\)"):
            Gaussian("heteroscedastic").log_prob(torch.zeros(shape), torch.zeros(shape))


# -- noise of a Gaussian ----------------------------------------------------------------------------------------------


def test_learnt_noise_is_one_parameter_per_output_and_finds_its_optimum():
    scales = np.array([0.3, 2.0])
    y = torch.from_numpy(np.random.default_rng(0).normal(size=(500, 2)) * scales)
    likelihood = learnt(1.0, 1.0)
    assert [tuple(p.shape) for p in likelihood.parameters()] == [(2,)]
    optimiser = torch.optim.LBFGS(likelihood.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = -likelihood.log_prob(torch.zeros_like(y), y).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    best = y.square().mean(0).sqrt()  # the maximum-likelihood scale
    assert likelihood.log_scale.exp().detach().numpy() == pytest.approx(best.numpy(), rel=1e-4)


@pytest.mark.parametrize("initial", [0.1, 1.0, 4.0])
def test_learnt_noise_starts_where_asked(initial):
    mean, scale = Gaussian("learnt", outputs=2, initial=initial).split(torch.zeros(3, 2))
    assert mean.shape == (3, 2)
    assert scale.tolist() == pytest.approx([initial, initial])


def test_only_a_learnt_noise_is_a_parameter():
    assert not list(Gaussian(0.5).parameters())
    assert not list(Gaussian("heteroscedastic").parameters())


def test_several_outputs_have_noise_of_their_own():
    f, y = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    expected = stats.norm.logpdf(0.5, scale=0.3) + stats.norm.logpdf(-1.0, scale=2.0)
    assert learnt(0.3, 2.0).log_prob(f, y).item() == pytest.approx(expected, rel=1e-6)
    raw = torch.from_numpy(np.log(np.expm1(np.array([[0.3, 2.0]]) - 1e-4)))
    assert Gaussian("heteroscedastic").log_prob(torch.cat([f, raw], 1), y).item() == pytest.approx(expected, rel=1e-9)
    assert learnt(0.3, 2.0).predictive([f, f]).aleatoric.tolist() == [pytest.approx([0.3, 2.0], rel=1e-6)]


def test_extra_axes_are_summed_within_a_datum():
    g = torch.Generator().manual_seed(14)
    f = torch.randn(4, 3, 2, generator=g, dtype=torch.float64)
    y = torch.randn(4, 3, 2, generator=g, dtype=torch.float64)
    assert Gaussian(0.5).log_prob(f, y).numpy() == pytest.approx(gaussian(0.5)(f.numpy(), y.numpy()))
    assert learnt(0.5, 0.5).log_prob(f, y).detach().numpy() == pytest.approx(
        gaussian(0.5)(f.numpy(), y.numpy()), rel=1e-6
    )
    binary = (y > 0).double()
    assert Bernoulli().log_prob(f, binary).numpy() == pytest.approx(bernoulli(f.numpy(), binary.numpy()))
    mixed = Gaussian(0.5).predictive([f, f + 1])
    naive = [gaussian(0.5)(each.numpy(), y.numpy()) for each in (f, f + 1)]
    assert mixed.log_prob(y).numpy() == pytest.approx(special.logsumexp(naive, axis=0) - math.log(2))


def test_a_network_may_return_one_number_per_datum():
    f, y = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.5, 0.5, 0.5])
    likelihood = Gaussian(0.5)
    alone = likelihood.log_prob(f, y)
    assert alone.numpy() == pytest.approx(stats.norm.logpdf(y, f, 0.5), rel=1e-5)
    assert likelihood.predictive([f]).log_prob(y).numpy() == pytest.approx(alone.numpy(), rel=1e-6)


@pytest.mark.parametrize("link", ["softmax", "logistic"])
@pytest.mark.parametrize("shape", [(6,), (6, 3)])
def test_what_a_batch_pays_is_the_mean_of_its_data(link, shape):
    torch.manual_seed(0)
    outputs, y = torch.randn(*shape, 4, dtype=torch.float64, requires_grad=True), torch.randint(4, shape)
    likelihood = Categorical(link)
    paid, naive = likelihood.mean_nll(outputs, y), -likelihood.log_prob(outputs, y).sum() / 6
    assert torch.allclose(paid, naive, rtol=1e-13)
    (found,), (expected,) = (torch.autograd.grad(each, outputs) for each in (paid, naive))
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_a_batch_pays_what_a_subclass_says_of_its_data():
    class Smoothed(Categorical):
        def log_prob(self, outputs, y):
            return 0.9 * super().log_prob(outputs, y) + 0.1 * outputs.log_softmax(-1).mean(-1)

    outputs, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    assert torch.equal(Smoothed().mean_nll(outputs, y), -Smoothed().log_prob(outputs, y).mean())
