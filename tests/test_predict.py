import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from credent import families, likelihoods, predict, priors
from credent.errors import BudgetError, InputError
from credent.families import Draws, Mixture
from credent.layout import Layout
from credent.network import Network
from credent.objectives import VI, VL
from credent.predict import normalised

N = 10


def data(seed=0, n=N):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(*last):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4), *last).double()


def posterior_of(net, family=families.Gaussian(initial_scale=0.5)):  # noqa: B008  (frozen)
    return family.bind(Layout(net))


def snapshot(net):
    return {k: v.clone() for k, v in net.state_dict().items()}


def unchanged(net, before):
    return all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


FAMILIES = [families.Dirac(), families.Gaussian(initial_scale=0.5), families.Radial(initial_scale=0.5)]


# -- the numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_classification_equals_a_naive_loop(family):
    net, x = network(), data()
    q = posterior_of(net, family)
    drawn, probs = q.sample(6, seed=2), []
    for i in range(len(drawn["0.weight"])):
        hidden = functional.relu(functional.linear(x, drawn["0.weight"][i], drawn["0.bias"][i]))
        probs.append(functional.linear(hidden, drawn["2.weight"][i], drawn["2.bias"][i]).softmax(-1))
    pred = predict(net, q, likelihoods.Categorical(), x, samples=6, seed=2)
    assert torch.allclose(pred.probs, torch.stack(probs).mean(0), rtol=1e-12)
    assert torch.allclose(pred.stddev, torch.stack(probs).std(0, correction=0), rtol=1e-8, atol=1e-12)
    assert pred.num_draws == (1 if isinstance(family, families.Dirac) else len(probs))


def test_regression_keeps_every_draw():
    net, x = network(), data()
    q = posterior_of(net)
    pred = predict(net, q, likelihoods.Gaussian(0.3), x, samples=5, seed=3)
    drawn = q.sample(5, seed=3)
    for i in range(5):
        f = torch.func.functional_call(net, {k: w[i] for k, w in drawn.items()}, (x,))
        assert torch.allclose(pred.means[i], f, rtol=1e-12)
    assert pred.aleatoric.unique().tolist() == [pytest.approx(0.3)]


def test_draws_are_averaged_all_or_in_part():
    net = nn.Linear(1, 1, bias=False)
    q = Draws([{"weight": torch.tensor([[float(i)]])} for i in range(4)])
    x = torch.tensor([[2.0]])

    def means(**options):
        return predict(net, q, likelihoods.Gaussian(1.0), x, **options).means.flatten().tolist()

    assert means() == means(samples=None) == means(samples=4) == [0, 2, 4, 6]
    assert means(samples=2, seed=None) == [0, 4]
    assert means(samples=1, seed=None) == [0]


@pytest.mark.parametrize("size", [1, 3, N, 1000])
def test_the_batch_size_does_not_matter(size):
    net, x = network(nn.BatchNorm1d(4, dtype=torch.float64)), data()
    q = posterior_of(net)
    options = {"samples": 4, "statistics": [x]}
    whole = predict(net, q, likelihoods.Categorical(), x, **options)
    parts = predict(net, q, likelihoods.Categorical(), x, batch_size=size, **options)
    assert torch.allclose(whole.probs, parts.probs, rtol=1e-12)


def test_running_statistics_that_fit_no_draw_are_warned_of():
    """A mixture of two trained networks was at chance behind BatchNorm, and nothing was said."""
    net, x = network(nn.BatchNorm1d(4, dtype=torch.float64)), data()
    q, likelihood = posterior_of(net), likelihoods.Categorical()
    with pytest.warns(UserWarning, match="fit no single draw.*statistics=loader"):
        predict(net, q, likelihood, x, samples=2)
    other = network(nn.BatchNorm1d(4, dtype=torch.float64))
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    with pytest.warns(UserWarning, match="fit no single draw"):  # a mean that is no network's own
        predict(net, Mixture([q, posterior_of(other)]), likelihood, x, how="mean")
    predict(net, q, likelihood, x, samples=2, statistics=[x])
    predict(net, q, likelihood, x, how="mean")


def test_at_most_batch_size_inputs_go_through_at_once():
    sizes = []

    class Recorder(nn.Linear):
        def forward(self, x):
            sizes.append(len(x))
            return super().forward(x)

    net = Recorder(3, 2).double()
    predict(net, posterior_of(net), likelihoods.Categorical(), data(), samples=2, batch_size=4)
    assert sizes == [4, 4, 2, 4, 4, 2]


def test_the_seed_fixes_the_numbers():
    net, x = network(), data()
    q = posterior_of(net)

    def probs(seed):
        return predict(net, q, likelihoods.Categorical(), x, samples=3, seed=seed).probs

    assert torch.equal(probs(0), probs(0))
    assert not torch.equal(probs(0), probs(1))
    assert not torch.equal(probs(None), probs(None))
    assert torch.equal(predict(net, q, likelihoods.Categorical(), x, samples=3).probs, probs(0))


def test_an_objective_predicts_alike():
    net, x = network(), data()
    bnn = VI(net, likelihoods.Categorical(), priors.Gaussian(), num_data=100)
    alone = predict(net, bnn.posterior, bnn.likelihood, x, samples=3, seed=4)
    assert torch.equal(bnn.predict(x, samples=3, seed=4).probs, alone.probs)


def test_parameters_that_are_not_random_stay_the_networks():
    net, x = network(), data()
    q = families.Gaussian(0.5).bind(Layout(net, random="2.*"))
    drawn = q.sample(2, seed=5)
    hidden = functional.relu(net[0](x))
    naive = torch.stack(
        [functional.linear(hidden, drawn["2.weight"][i], drawn["2.bias"][i]).softmax(-1) for i in range(2)]
    )
    pred = predict(net, q, likelihoods.Categorical(), x, samples=2, seed=5)
    assert torch.allclose(pred.probs, naive.mean(0), rtol=1e-12)


# -- what it leaves behind --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:BatchNorm follows random weights")
def test_the_network_comes_back_as_it_was():
    net, x = network(nn.BatchNorm1d(4, dtype=torch.float64), nn.Dropout(0.5)), data()
    net.train()
    net[0].eval()  # modes are kept for each submodule apart
    modes, before, own = [m.training for m in net.modules()], snapshot(net), dict(net.named_parameters())
    pred = predict(net, posterior_of(net), likelihoods.Categorical(), x, samples=3)
    assert [m.training for m in net.modules()] == modes
    assert unchanged(net, before)
    assert all(p is own[k] for k, p in net.named_parameters())
    assert not pred.probs.requires_grad


def test_dropout_is_off():
    net, x = network(nn.Dropout(0.9)), data()
    net.train()
    q = Draws([{k: p.detach().clone() for k, p in net.named_parameters()}])
    pred = predict(net, q, likelihoods.Gaussian(1.0), x)
    assert torch.allclose(pred.mean, net[:3](x).detach(), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:BatchNorm follows random weights")
@pytest.mark.parametrize("statistics", [None, "given"])
def test_an_exception_leaves_the_network_as_it_was(statistics):
    class Fragile(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 3:
                raise ZeroDivisionError
            return x

    net, x = network(nn.BatchNorm1d(4, dtype=torch.float64), Fragile()), data()
    net.train()
    net[0].eval()
    modes, before, own = [m.training for m in net.modules()], snapshot(net), dict(net.named_parameters())
    momentum = net[3].momentum
    given = None if statistics is None else [x, x, x, x]
    with pytest.raises(ZeroDivisionError):
        predict(net, posterior_of(net), likelihoods.Categorical(), x, samples=5, statistics=given)
    assert [m.training for m in net.modules()] == modes
    assert unchanged(net, before)
    assert all(p is own[k] for k, p in net.named_parameters())
    assert net[3].momentum == momentum


# -- running statistics -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:BatchNorm follows random weights")
def test_batchnorm_uses_the_networks_own_statistics():
    net, x = network(nn.BatchNorm1d(4, dtype=torch.float64)), data()
    with torch.no_grad():
        net[3].running_mean.copy_(torch.arange(4))
        net[3].running_var.fill_(4.0)
    q = posterior_of(net)
    drawn = {k: w[0] for k, w in q.sample(1, seed=6).items()}
    inner = torch.func.functional_call(net[:3], {k: drawn[k] for k in drawn if not k.startswith("3")}, (x,))
    naive = (inner - torch.arange(4)) / math.sqrt(4 + net[3].eps) * drawn["3.weight"] + drawn["3.bias"]
    pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=1, seed=6)
    assert torch.allclose(pred.mean, naive.detach(), rtol=1e-12)


def test_statistics_are_estimated_anew_for_each_draw():
    net, x = network(nn.BatchNorm1d(4, dtype=torch.float64)), data()
    with torch.no_grad():
        net[3].running_mean.fill_(100.0)  # not to be used
    batches = [data(seed, n=16) for seed in (7, 8, 9)]
    before = snapshot(net)
    q = posterior_of(net)
    pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=3, seed=10, statistics=batches, batch_size=3)
    drawn = q.sample(3, seed=10)
    for i in range(3):
        w = {k: v[i] for k, v in drawn.items()}

        def inner(inputs, w=w):
            return functional.linear(
                functional.relu(functional.linear(inputs, w["0.weight"], w["0.bias"])), w["2.weight"], w["2.bias"]
            )

        mean = torch.stack([inner(b).mean(0) for b in batches]).mean(0)
        variance = torch.stack([inner(b).var(0) for b in batches]).mean(0)  # unbiased, as BatchNorm keeps it
        naive = (inner(x) - mean) / (variance + net[3].eps).sqrt() * w["3.weight"] + w["3.bias"]
        assert torch.allclose(pred.means[i], naive, rtol=1e-9)
    assert unchanged(net, before)
    assert net[3].momentum == 0.1


# -- inputs -----------------------------------------------------------------------------------------------------------


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, a, b, scale=None):
        f = self.left(a) - self.right(b)
        return f if scale is None else f * scale


def test_tuples_lists_and_dicts_of_inputs():
    torch.manual_seed(11)
    net = Two().double()
    q = posterior_of(net)
    a, b = data(12), data(13)
    drawn = q.sample(2, seed=0)
    naive = torch.stack(
        [
            a @ drawn["left.weight"][i].T
            + drawn["left.bias"][i]
            - b @ drawn["right.weight"][i].T
            - drawn["right.bias"][i]
            for i in range(2)
        ]
    )
    for x in ((a, b), [a, b], {"a": a, "b": b}, {"b": b, "a": a}):
        pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=2, batch_size=3)
        assert torch.allclose(pred.means, naive, rtol=1e-9)
    scaled = {"a": a, "b": b, "scale": torch.full((N, 1), 2.0, dtype=torch.float64)}
    pred = predict(net, q, likelihoods.Gaussian(1.0), scaled, samples=2, batch_size=3)
    assert torch.allclose(pred.means, 2 * naive, rtol=1e-9)


def test_more_bytes_than_allowed_are_refused():
    net, x = network(), data()
    q, need = posterior_of(net), 5 * N * 4 * 8
    with pytest.raises(BudgetError, match=rf"5 draws.*{need:,} bytes.*fewer samples, or allow {need:,}"):
        predict(net, q, likelihoods.Gaussian(1.0), x, samples=5, max_bytes=need - 1)
    assert predict(net, q, likelihoods.Gaussian(1.0), x, samples=5, max_bytes=need).num_draws == 5


def test_the_refusal_comes_after_one_draw():
    calls = []
    net = network()
    net.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(BudgetError):
        predict(net, posterior_of(net), likelihoods.Gaussian(1.0), data(), samples=10**9, max_bytes=10**6)
    assert len(calls) == 1


@pytest.mark.parametrize("samples", [0, -3])
def test_no_samples_is_an_error(samples):
    net = network()
    with pytest.raises(InputError, match=r"at least one draw; the mean network is how"):
        predict(net, posterior_of(net), likelihoods.Categorical(), data(), samples=samples)


def test_a_second_input_is_not_a_number_of_draws():
    net = network()
    with pytest.raises(InputError, match=r"several inputs are one tuple, predict\(\(u, v\)\)"):
        predict(net, posterior_of(net), likelihoods.Categorical(), data(), samples=data())


@pytest.mark.parametrize(
    "x", [data()[:0], (data()[:0], data()[:0]), {"a": data()[:0]}], ids=["tensor", "tuple", "dict"]
)
def test_no_inputs_is_an_error(x):
    net = network()
    with pytest.raises(InputError, match="x has length 0"):
        predict(net, posterior_of(net), likelihoods.Categorical(), x)


@pytest.mark.parametrize(
    "x", [data().numpy(), [1.0, 2.0], 3.0, torch.tensor(1.0), "x"], ids=["array", "list", "number", "scalar", "text"]
)
def test_inputs_are_tensors_with_a_batch_axis(x):
    net = network()
    with pytest.raises(InputError, match=r"batch axis.*torch\.as_tensor\(x\)"):
        predict(net, posterior_of(net), likelihoods.Categorical(), x)


def test_a_batch_size_is_positive():
    net = network()
    with pytest.raises(InputError, match="at least one input"):
        predict(net, posterior_of(net), likelihoods.Categorical(), data(), batch_size=0)


def test_draws_of_another_network_are_named():
    with pytest.raises(InputError, match=r"'w'.*another network"):
        predict(nn.Linear(1, 1), Draws([{"w": torch.zeros(1)}]), likelihoods.Gaussian(scale=1.0), torch.zeros(1, 1))


def test_a_generator_of_statistics_is_refused():
    """It would serve the first draw only, and the others would normalise with nothing."""
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    q = posterior_of(net, families.Gaussian())
    with pytest.raises(InputError, match="give a list"):
        predict(net, q, likelihoods.Gaussian(scale=1.0), torch.zeros(2, 2), statistics=iter([torch.zeros(4, 2)]))


def test_statistics_come_to_the_networks_device(monkeypatch):
    """Read from a loader in the main memory, with their targets, for a network that is elsewhere."""
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to("meta")
    monkeypatch.setattr(Network, "statistics_of", lambda self, params, batches: list(batches))
    x, y = torch.zeros(4, 2), torch.zeros(4)
    assert [b.device.type for b in normalised(Network(net), {}, [x, (x, y)], x)] == ["meta", "meta"]
    assert [len(b) for b in normalised(Network(net), {}, [(x, x, y)], (x, x))] == [2]
    assert [b["a"].device.type for b in normalised(Network(net), {}, [{"a": x}, ({"a": x}, y)], {"a": x})] == [
        "meta"
    ] * 2


def test_all_stored_draws_count_against_the_budget():
    draws = Draws([{"weight": torch.zeros(1, 1)}] * 3)
    net = nn.Linear(1, 1, bias=False)
    with pytest.raises(BudgetError, match="2 draws"):
        predict(net, draws, likelihoods.Gaussian(scale=1.0), torch.zeros(10, 1), samples=None, max_bytes=40)


# -- the network's tangent, and its mean ------------------------------------------------------------------------------


def curved(*last):
    torch.manual_seed(2)
    layers = (nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 4, 5), nn.Tanh(), nn.Linear(5, 2))
    return nn.Sequential(*layers, *last).double()


def images(n=N):
    return torch.randn(n, 1, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def by_jacobian(net, drawn, x):
    """f(mu) + J (w - mu) for each draw, with the Jacobian in memory."""
    mean = {k: p.detach() for k, p in net.named_parameters() if k in drawn}
    jacobian = torch.func.jacrev(lambda p: torch.func.functional_call(net, p, (x,)))(mean)
    moved = [
        sum((jacobian[k] * (drawn[k][i] - mean[k])).flatten(2).sum(2) for k in mean)
        for i in range(len(next(iter(drawn.values()))))
    ]
    return net(x).detach() + torch.stack(moved).detach()


def test_the_linearised_network_is_its_tangent():
    net, x = curved(), images()
    q = posterior_of(net)
    drawn = q.sample(4, seed=7)
    expected = by_jacobian(net, drawn, x)
    pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=4, seed=7, how="linearised")
    torch.testing.assert_close(pred.means, expected, rtol=1e-9, atol=1e-11)
    sampled = predict(net, q, likelihoods.Gaussian(1.0), x, samples=4, seed=7).means
    assert (sampled - expected).abs().max() > 0.1  # far enough out to tell them apart
    single = predict(net.float(), posterior_of(net), likelihoods.Gaussian(1.0), x.float(), samples=4, how="linearised")
    drawn = {k: w.double() for k, w in posterior_of(net).sample(4, seed=0).items()}
    torch.testing.assert_close(single.means.double(), by_jacobian(net.double(), drawn, x), rtol=1e-5, atol=1e-5)


def test_classes_of_the_linearised_network():
    net, x = curved(), images()
    q = posterior_of(net)
    expected = by_jacobian(net, q.sample(4, seed=7), x).softmax(-1)
    pred = predict(net, q, likelihoods.Categorical(), x, samples=4, seed=7, how="linearised")
    torch.testing.assert_close(pred.probs, expected.mean(0), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("objective", [VI, VL])
def test_linearised_prediction_of_a_trained_posterior(objective):
    net, x = curved(), images()
    bnn = objective(net, likelihoods.Gaussian(1.0), priors.Gaussian(), num_data=100)
    pred = bnn.predict(x, 3, seed=8, how="linearised")
    torch.testing.assert_close(pred.means, by_jacobian(net, bnn.posterior.sample(3, seed=8), x), rtol=1e-9, atol=1e-11)


def test_linearised_prediction_on_a_linear_network_is_bayesian_linear_regression():
    """Mean within 3 standard errors, epistemic standard deviation within 3 of its own."""
    n, dim, noise = 3000, 4, 0.5
    g = torch.Generator().manual_seed(4)
    x = torch.linalg.qr(torch.randn(30, dim, generator=g, dtype=torch.float64)).Q * torch.arange(2, 2 + dim)
    y = x @ torch.randn(dim, 1, generator=g, dtype=torch.float64) + noise * torch.randn(30, 1, generator=g).double()
    precision = x.T @ x / noise**2 + torch.eye(dim, dtype=torch.float64)  # diagonal: mean field is exact
    mean = torch.linalg.solve(precision, x.T @ y / noise**2)
    net = nn.Linear(dim, 1, bias=False).double()
    bnn = VL(net, likelihoods.Gaussian(noise), priors.Gaussian(scale=1.0), num_data=30)
    with torch.no_grad():
        net.weight.copy_(mean.T)
        bnn.q.scales.rho.copy_(precision.diag().rsqrt().log())
    at = torch.randn(6, dim, generator=g, dtype=torch.float64)
    pred = bnn.predict(at, n)
    scale = (at @ torch.linalg.inv(precision) * at).sum(1, keepdim=True).sqrt()
    assert ((pred.mean - at @ mean).abs() < 3 * scale / math.sqrt(n)).all()
    assert ((pred.epistemic / scale - 1).abs() < 3 / math.sqrt(2 * n)).all()
    torch.testing.assert_close(pred.aleatoric, torch.full((6, 1), noise, dtype=torch.float64))
    torch.testing.assert_close(pred.means, bnn.predict(at, n, how="sampled").means)  # a line is its own tangent


def test_the_mean_network_is_the_network():
    net, x = curved(), images()
    pred = predict(net, posterior_of(net), likelihoods.Gaussian(1.0), x, samples=50, how="mean")
    assert pred.num_draws == 1
    assert torch.equal(pred.mean, net(x).detach())
    draws = Draws([{"weight": torch.tensor([[1.0]])}, {"weight": torch.tensor([[4.0]])}])
    line, at = nn.Linear(1, 1, bias=False), torch.ones(1, 1)
    assert predict(line, draws, likelihoods.Gaussian(1.0), at, how="mean").mean.item() == 2.5
    assert predict(line, draws, likelihoods.Gaussian(1.0), at, how="linearised").means.flatten().tolist() == [1, 4]


@pytest.mark.parametrize("how", ["linearised", "mean"])
@pytest.mark.parametrize("size", [1, 3, N, 1000])
def test_chunks_do_not_matter_there_either(how, size):
    net, x = curved(), images()
    q = posterior_of(net)
    options = {"samples": 3, "seed": 5, "how": how}
    whole = predict(net, q, likelihoods.Gaussian(1.0), x, **options)
    parts = predict(net, q, likelihoods.Gaussian(1.0), x, **options, batch_size=size)
    torch.testing.assert_close(parts.means, whole.means, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("how", ["linearised", "mean"])
def test_statistics_are_the_networks_and_the_network_comes_back(how):
    net, x = curved(nn.BatchNorm1d(2, dtype=torch.float64), nn.Dropout(0.5)), images()
    with torch.no_grad():
        net[6].running_mean.copy_(torch.tensor([1.0, -1.0]))
        net[6].running_var.fill_(4.0)
    q, before, own = posterior_of(net), snapshot(net), dict(net.named_parameters())
    pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=3, seed=6, how=how)
    assert all(m.training for m in net.modules())
    assert unchanged(net, before)
    assert all(p is own[k] for k, p in net.named_parameters())
    net.eval()
    expected = by_jacobian(net, q.sample(3, seed=6), x) if how == "linearised" else net(x)[None].detach()
    torch.testing.assert_close(pred.means, expected, rtol=1e-9, atol=1e-11)


def test_statistics_on_request_are_those_of_the_mean_network():
    """The tangent is taken at the means, so that is where the batches are normalised."""
    net, x = curved(nn.BatchNorm1d(2, dtype=torch.float64)), images()
    q = posterior_of(net)
    inner = net[:6](x).detach()
    pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=3, seed=6, how="linearised", statistics=[x])
    with torch.no_grad():
        net[6].running_mean.copy_(inner.mean(0))
        net[6].running_var.copy_(inner.var(0))
    torch.testing.assert_close(pred.means, by_jacobian(net.eval(), q.sample(3, seed=6), x), rtol=1e-9, atol=1e-11)


def test_the_tangent_in_random_parameters_alone():
    net, x = curved(), images()
    q = families.Gaussian(0.5).bind(Layout(net, random="3.*"))
    pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=3, seed=5, how="linearised")
    torch.testing.assert_close(pred.means, by_jacobian(net, q.sample(3, seed=5), x), rtol=1e-9, atol=1e-11)


def test_tangents_of_several_inputs():
    torch.manual_seed(11)
    net, a, b = Two().double(), data(12), data(13)
    q = posterior_of(net)
    expected = predict(net, q, likelihoods.Gaussian(1.0), (a, b), samples=2).means  # linear
    for x in ((a, b), {"b": b, "a": a}):
        pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=2, how="linearised", batch_size=3)
        torch.testing.assert_close(pred.means, expected, rtol=1e-9, atol=1e-11)


def test_inference_mode_keeps_the_uncertainty():
    net, x = curved(), images()
    bnn = VL(net, likelihoods.Gaussian(1.0), priors.Gaussian(), num_data=100)
    expected = bnn.predict(x, 4).means
    with torch.inference_mode():
        torch.testing.assert_close(bnn.predict(x, 4).means, expected)


class Attending(nn.Module):
    """A network with a layer that torch fuses in evaluation mode, or runs in a library without forward mode."""

    def __init__(self, kind):
        super().__init__()
        self.up, self.head = nn.Linear(1, 4), nn.Linear(4, 2)
        if kind == "encoder":
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        elif kind == "attention":
            self.layer = nn.MultiheadAttention(4, 2, batch_first=True)
        else:
            self.layer = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        h = self.up(x[:, :, None])
        h = self.layer(h, h, h)[0] if isinstance(self.layer, nn.MultiheadAttention) else self.layer(h)
        return self.head((h if isinstance(h, torch.Tensor) else h[0])[:, -1])


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # in the reference's vmap
@pytest.mark.parametrize("kind", ["encoder", "attention", "lstm"])
def test_layers_that_torch_fuses_have_tangents_too(kind):
    torch.manual_seed(0)
    net, x = Attending(kind), data(n=4).float()
    q = posterior_of(net, families.Gaussian(0.05))
    pred = predict(net, q, likelihoods.Gaussian(1.0), x, samples=2, how="linearised")
    torch.testing.assert_close(pred.means, by_jacobian(net, q.sample(2, seed=0), x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("how", ["linearized", "nonsense", None])
def test_an_unknown_way_is_named(how):
    net = network()
    with pytest.raises(InputError, match=r"'sampled', 'linearised' or 'mean'"):
        predict(net, posterior_of(net), likelihoods.Categorical(), data(), how=how)
