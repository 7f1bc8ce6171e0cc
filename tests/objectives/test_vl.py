import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import credent as cr
from credent import MAP, VL, likelihoods, priors
from credent.data import batches
from credent.errors import InputError, NonFiniteError
from credent.families.diagonal_gaussian import DiagonalGaussian
from credent.layout import Layout
from credent.network import Network
from credent.objectives import Annealed, curvature
from credent.penalties import L2
from credent.training.convergence import convergence

N = 32
WAYS = ["exact", "finite_difference", "hessian"]
FISHER = ["exact", "finite_difference"]


def data(n=N, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, dtype=torch.float64, generator=g)
    return x, (x @ torch.randn(3, 3, dtype=torch.float64, generator=g)).argmax(-1)


def network(*middle, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 6), *middle, nn.Softplus(), nn.Linear(6, 3)).double()


def vl(net=None, likelihood=None, **options):
    options = {"labels": "model", "num_data": N, **options}
    return VL(net or network(), likelihood or likelihoods.Categorical(), **options)


def grads(objective):
    return {k: p.grad for k, p in objective.named_parameters() if p.grad is not None}


# -- the loss ---------------------------------------------------------------------------------------------------------


def test_scales_begin_three_below_the_priors():
    for prior, spread in ((priors.Gaussian(scale=0.7), 0.7), (priors.Laplace(scale=0.7), 0.7 * math.sqrt(2))):
        found = vl(prior=prior).posterior.stddev()
        assert all(torch.allclose(s, torch.tensor(spread * math.exp(-3)).double()) for s in found.values())
    found = vl().posterior.stddev()  # 1/sqrt(fan_in) for weights, 1 for biases
    assert found["2.weight"][0, 0].item() == pytest.approx(math.exp(-3) / math.sqrt(6))
    assert found["2.bias"][0].item() == pytest.approx(math.exp(-3))


def test_without_spread_it_is_map():
    x, y = data()
    bnn, point = vl(beta=0.0), MAP(network(), likelihoods.Categorical(), num_data=N, beta=0.0)
    with torch.no_grad():
        bnn.q.scales.rho.fill_(-40.0)
    for objective in (bnn, point):
        objective(x, y).backward()
    assert bnn(x, y).item() == pytest.approx(point(x, y).item(), rel=1e-14)
    for k, g in grads(point).items():
        torch.testing.assert_close(grads(bnn)[k], g, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_the_parts_add_up(way):
    x, y = data()
    bnn = vl(curvature=way, beta=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = bnn(x, y)
    last = bnn.last
    assert loss.item() == pytest.approx((last.nll + 0.3 / N * last.penalty).item(), rel=1e-14)
    assert torch.equal(last.outputs, bnn.net(x))
    assert not any(t.requires_grad for t in (last.nll, last.penalty, last.outputs))


def test_beta_may_change():
    bnn, (x, y) = vl(beta=Annealed(batches=2)), data()
    assert [bnn(x, y) is not None and bnn.last.beta for _ in range(3)] == [0, 0.5, 1]


@pytest.mark.parametrize("way", WAYS)
def test_without_gradients_the_value_is_the_same(way):
    x, y = data()
    bnn = vl(curvature=way, beta=300.0)
    state = copy.deepcopy(bnn.state_dict())
    value = bnn(x, y)
    bnn.load_state_dict(state)
    with torch.no_grad():
        alone = bnn(x, y)
    assert value.item() == alone.item()
    assert value.requires_grad
    assert not alone.requires_grad


@pytest.mark.parametrize("way", FISHER)
def test_the_curvature_rises_above_the_mean_networks_loss(way):
    x, y = data()
    bnn = vl(curvature=way, beta=0.0)
    assert bnn(x, y) > likelihoods.Categorical().log_prob(bnn.net(x), y).mean().neg()


def test_the_same_stream_gives_the_same_loss_and_another_does_not():
    x, y = data()
    a, b = (vl() for _ in range(2))
    assert a(x, y).item() == b(x, y).item()  # both seeded by torch's generator after the same network
    assert a(x, y).item() != a(x, y).item()


# -- the network's own state ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.25, 1.0])
@pytest.mark.parametrize("way", WAYS)
def test_running_statistics_follow_the_batch_once(way, fraction):
    x, y = data()
    net = network(nn.BatchNorm1d(6))
    plain = copy.deepcopy(net)
    bnn = vl(net, curvature=way, fraction=fraction, beta=300.0)
    for _ in range(3):
        bnn(x, y).backward()
        plain(x)
    assert net[1].num_batches_tracked == 3
    assert torch.equal(net[1].running_mean, plain[1].running_mean)
    assert torch.equal(net[1].running_var, plain[1].running_var)
    if way != "hessian":
        before = copy.deepcopy(net.state_dict())
        bnn.curvature_error(x, y)
        assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


@pytest.mark.parametrize("size", [2, 9, 11])
@pytest.mark.parametrize("way", FISHER)
def test_batchnorm_takes_the_small_last_batch_of_an_epoch(way, size):
    """An eighth of it would be one row, and one row has no variance."""
    x, y = data(size)
    bnn = vl(network(nn.BatchNorm1d(6)), curvature=way)
    assert torch.isfinite(bnn(x, y))


def test_batchnorm_of_the_whole_batch_is_that_of_the_batch():
    """The finite difference normalises by the statistics of the rows, as the double backward does."""
    x, y = data()
    assert vl(network(nn.BatchNorm1d(6))).curvature_error(x, y) < 1e-4


@pytest.mark.parametrize("kind", [nn.Dropout(0.5), nn.AlphaDropout(0.3)], ids=str)
def test_both_passes_have_the_same_dropout_masks(kind):
    """The gradient is that of the network with these masks, which a second generator finds from the same state."""
    x, y = data()
    bnn = vl(network(kind), fraction=1.0)
    bnn.noise.seed(0)
    torch.manual_seed(7)
    with bnn.q.cached():
        bnn._by_finite_difference(x, y, slice(None))()[0].backward()
    after = torch.get_rng_state()
    hidden = network()[0](x)
    torch.manual_seed(7)
    masked = kind(hidden)
    assert torch.equal(torch.get_rng_state(), after)  # the generator went on by one forward's masks

    class Masked(nn.Module):
        def forward(self, h):
            return masked.detach() - hidden.detach() * slope + h * slope  # linear in h, with the masks' slope

    torch.manual_seed(7)
    leaf = hidden.detach().requires_grad_()
    (slope,) = torch.autograd.grad(kind(leaf).sum(), leaf)
    same = vl(network(Masked()), curvature="exact", fraction=1.0)
    same.noise.seed(0)
    with same.q.cached():
        same._by_double_backward(x, y, slice(None))[0].backward()
    for k, g in grads(same).items():
        torch.testing.assert_close(grads(bnn)[k], g, rtol=1e-5, atol=1e-6)


def test_training_masks_go_on():
    """Each step sees masks of its own."""
    x, y = data()
    bnn, seen = vl(network(nn.Dropout(0.5)), every=1), []
    bnn.net[1].register_forward_hook(lambda _, i, o: seen.append(o.detach() == 0))
    for _ in range(3):
        bnn(x, y)
    assert len(seen) == 9  # the batch, and the curvature's two passes
    for before, moved, batch in zip(seen[::3], seen[1::3], seen[2::3], strict=True):
        assert torch.equal(before, moved)
        assert batch.shape[0] == N > before.shape[0]
    assert not torch.equal(seen[0], seen[3])
    assert not torch.equal(seen[2], seen[5])


def test_an_exception_leaves_the_network_as_it_was():
    class Fragile(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 3:
                raise ZeroDivisionError
            return x

    x, y = data()
    net = network(nn.BatchNorm1d(6), Fragile())
    own = dict(net.named_parameters())
    bnn = vl(net)
    with pytest.raises(ZeroDivisionError):
        bnn(x, y)
    assert all(p is own[k] for k, p in net.named_parameters())
    assert net[1].running_mean is not None
    assert net[1].num_batches_tracked == 1


# -- the Hessian ------------------------------------------------------------------------------------------------------


def residuals(size):
    """A regression far from its targets: the residual times the network's own curvature outweighs the Fisher."""
    x, _ = data()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1)).double()
    return net, x, net(x).detach() + size


def test_the_hessians_pathology_is_announced():
    net, x, y = residuals(50.0)
    bnn = vl(net, likelihoods.Gaussian(0.5), curvature="hessian")
    with pytest.warns(UserWarning, match=r"(\d+) of 21 weights.*H > beta/s\^2.*grow without bound.*Fisher") as caught:
        bnn(x, y)
    _, diagonal = curvature.hessian(bnn.layout, bnn.q.scales.sigma(), -bnn.likelihood.log_prob(net(x), y).mean())
    by_name = bnn.layout.unflatten(diagonal)
    wrong = {k: int((N * h < -1 / bnn.penalty.stddev()[k] ** 2).sum()) for k, h in by_name.items()}
    assert str(caught[0].message).split(": ")[1].startswith(f"{sum(wrong.values())} of 21")
    assert repr(max(wrong, key=wrong.get)) in str(caught[0].message)
    assert 0 < sum(wrong.values()) < 21


def test_it_is_silent_where_all_is_well():
    net, x, y = residuals(0.0)
    vl(net, likelihoods.Gaussian(0.5), curvature="hessian")(x, y)


def test_a_stronger_prior_holds_it():
    """The threshold is beta / s^2."""
    net, x, y = residuals(50.0)
    vl(net, likelihoods.Gaussian(0.5), prior=priors.Gaussian(scale=1e-3), curvature="hessian")(x, y)
    vl(net, likelihoods.Gaussian(0.5), curvature="hessian", beta=1e7)(x, y)


def test_where_it_is_announced_the_scale_does_grow_without_bound():
    net, x, y = residuals(50.0)
    bnn = vl(net, likelihoods.Gaussian(0.5), curvature="hessian")
    with pytest.warns(UserWarning, match="without bound"):
        bnn(x, y).backward()
    wrong = bnn.q.scales.rho.grad < 0
    with torch.no_grad():
        bnn.q.scales.rho[wrong] += 5
    _, diagonal = curvature.hessian(bnn.layout, bnn.q.scales.sigma(), -bnn.likelihood.log_prob(net(x), y).mean())
    flat = bnn.layout.flatten({k: torch.full(s, bnn.penalty.stddev()[k] ** -2) for k, s in bnn.layout.shapes.items()})
    broken = N * diagonal < -flat
    (again,) = torch.autograd.grad(bnn(x, y), bnn.q.scales.rho)  # it has been said, and once is enough
    assert broken.any()
    assert (again[broken] < 0).all()  # still downhill, far above the prior


def test_the_hessian_is_for_small_networks():
    with pytest.raises(InputError, match=r"5,050 parameters.*at most 5,000.*finite_difference"):
        vl(nn.Linear(100, 50), curvature="hessian")


# -- how good the finite difference is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "outputs", "bound"),
    [
        (likelihoods.Categorical(), 3, 0.01),
        (likelihoods.Gaussian(0.5), 3, 0.06),  # its curvature is all in the network's own bend, which is slight
        (likelihoods.Gaussian("heteroscedastic"), 6, 0.02),
    ],
    ids=["categorical", "known", "heteroscedastic"],
)
def test_the_finite_differences_error_is_small(likelihood, outputs, bound):
    """In float32 round-off leaves per cents at most; in float64 next to nothing."""
    x, y = data()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, outputs))
    for dtype, limit in ((torch.float32, bound), (torch.float64, 1e-4)):
        targets = y if isinstance(likelihood, likelihoods.Categorical) else torch.randn(N, 3).to(dtype)
        bnn = vl(net.to(dtype), likelihood)
        assert 0 < bnn.curvature_error(x.to(dtype), targets) < limit
        assert all(p.grad is None for p in bnn.parameters())


def test_the_error_that_is_reported_is_the_error():
    """A step that is far too long shows."""
    x, y = data()
    bnn = vl()
    small = bnn.curvature_error(x, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(curvature._STEP, torch.float64, 1.0)
        bnn.noise.seed(0)
        error = bnn.curvature_error(x, y)
        ways = []
        for way in (lambda *given: bnn._by_finite_difference(*given)(), bnn._by_double_backward):
            bnn.noise.seed(0)
            g = torch.autograd.grad(way(x, y, slice(None))[0], list(bnn.net.parameters()))
            ways.append(torch.cat([t.flatten() for t in g]))
    assert error > 1000 * small
    assert error == pytest.approx(((ways[0] - ways[1]).norm() / ways[1].norm()).item(), rel=1e-9)


def test_relu_has_a_finite_difference():
    x, y = data()
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    bnn = vl(net)
    bnn(x, y).backward()
    assert all(torch.isfinite(g).all() for g in grads(bnn).values())


# -- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", FISHER)
def test_a_loop_written_by_hand(way):
    x, y = (t.float() if t.is_floating_point() else t for t in data())
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 3))
    bnn = vl(net, curvature=way)
    groups = {g["name"]: g for g in bnn.param_groups(lr=1e-2, scale_lr=3e-2)}
    assert set(groups) == {"means", "scales"}
    assert groups["scales"]["params"] == [bnn.q.scales.rho]
    assert (groups["means"]["lr"], groups["scales"]["lr"]) == (1e-2, 3e-2)
    optimiser, losses = torch.optim.Adam(list(groups.values())), []
    for _ in range(150):
        loss = bnn(x, y)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    assert bnn.predict(x).log_prob(y).mean() > -1.0  # log 3 is what an untrained one says


@pytest.mark.parametrize("way", FISHER)
def test_stopped_and_resumed_it_is_the_same_run(way, tmp_path):
    x, y = (t.float() if t.is_floating_point() else t for t in data())

    def run(directory, epochs):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Softplus(), nn.Linear(6, 3))
        bnn = vl(net, curvature=way, fraction=0.5)
        optimiser = torch.optim.Adam(bnn.param_groups(lr=1e-2))
        loader = batches(TensorDataset(x, y), 8, shuffle=True, seed=1)
        options = {"epochs": epochs, "run_dir": directory, "resume": True, "seed": 3, "progress": False}
        cr.fit(bnn, optimiser, loader, **options)
        return bnn.state_dict()

    whole = run(tmp_path / "whole", 2)
    run(tmp_path / "parts", 1)
    parts = run(tmp_path / "parts", 2)
    for k, v in whole.items():
        if isinstance(v, torch.Tensor):
            assert torch.equal(v, parts[k]), k
    assert torch.equal(whole["noise._extra_state"]["state"], parts["noise._extra_state"]["state"])


def test_its_state_travels_noise_included():
    x, _ = data()
    likelihood = likelihoods.Gaussian("learnt", outputs=3).double()
    targets = torch.randn(N, 3, dtype=torch.float64)
    one = vl(likelihood=likelihood)
    one(x, targets)
    torch.manual_seed(99)
    other = vl(network(seed=5), likelihoods.Gaussian("learnt", outputs=3, initial=0.1).double())
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for _ in range(2):
        for bnn in (one, other):
            bnn.zero_grad()
            bnn(x, targets).backward()
        assert one.last.loss.item() == other.last.loss.item()
        for k, g in grads(one).items():
            assert torch.equal(g, grads(other)[k])


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, a, b):
        return torch.tanh(self.left(a)) + self.right(b)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_inputs_of_several_tensors(way, fraction):
    (a, y), (b, _) = data(), data(seed=1)
    losses = []
    for x in ((a, b), [a, b], {"a": a, "b": b}, {"b": b, "a": a}):
        torch.manual_seed(0)
        bnn = vl(Pair().double(), curvature=way, fraction=fraction, beta=300.0)
        losses.append(bnn(x, y).item())
    assert len(set(losses)) == 1


@pytest.mark.parametrize("way", WAYS)
def test_only_the_last_layer_random(way):
    x, y = data()
    bnn = vl(curvature=way, random="2.*", beta=300.0)
    assert bnn.layout.names == ("2.weight", "2.bias")
    assert set(bnn.posterior.stddev()) == {"2.weight", "2.bias"}
    bnn(x, y).backward()
    assert all(p.grad.abs().max() > 0 for p in bnn.parameters())
    assert {g["name"] for g in bnn.param_groups(lr=1.0)} == {"means", "scales", "rest"}


@pytest.mark.parametrize("way", WAYS)
def test_frozen_parameters_stay(way):
    x, y = data()
    net = network()
    net[0].requires_grad_(False)
    bnn = vl(net, curvature=way, beta=300.0)
    bnn(x, y).backward()
    assert bnn.layout.names == ("2.weight", "2.bias")
    assert net[0].weight.grad is None
    assert net[2].weight.grad.abs().max() > 0


def test_a_network_that_is_all_frozen():
    with pytest.raises(InputError, match="no trainable parameter"):
        vl(network().requires_grad_(False))


def test_a_smaller_part_takes_less():
    """The rows that pass through the network beside the batch."""
    x, y = data()
    for fraction, rows in ((1 / 8, 4), (1 / 4, 8), (1.0, 32), (1e-6, 1)):
        bnn, seen = vl(fraction=fraction), []
        bnn.net.register_forward_hook(lambda _, i, o, seen=seen: seen.append(len(o)))
        bnn(x, y)
        assert seen == [rows, rows, 32]


BATCHNORM = nn.BatchNorm1d(6)


@pytest.mark.parametrize(
    ("middle", "options", "rows"),
    [
        ((), {}, [4, 0]),  # of 32
        ((BATCHNORM,), {}, [8, 0]),
        ((), {"every": 1}, [2, 2]),
        ((BATCHNORM,), {"every": 1}, [4, 4]),
        ((), {"every": 3}, [6, 0, 0]),
        ((), {"every": 40}, [32] + 39 * [0]),
        ((), {"fraction": 1 / 4}, [8, 8]),
        ((), {"fraction": 1 / 4, "every": 2}, [8, 0]),
    ],
)
def test_which_batches_have_curvature_and_on_how_many_rows(middle, options, rows):
    x, y = data()
    assert len(x) == 32
    bnn, seen = vl(network(*middle), **options), []
    bnn.net.register_forward_hook(lambda _, i, o: seen.append(len(o)))
    for _ in range(2):
        for expected in rows:
            seen.clear()
            bnn(x, y)
            assert seen == ([expected, expected, 32] if expected else [32])


@pytest.mark.parametrize("way", WAYS)
def test_the_curvature_of_a_batch_counts_for_those_between(way):
    """Of three batches in turn, one has a curvature, three times: the sum is that of three with one each."""
    x, y = data()
    thrice, once = (vl(curvature=way, fraction=1.0, every=every) for every in (3, 1))
    once.load_state_dict(thrice.state_dict())
    losses = [thrice(x, y) for _ in range(3)]
    sum(losses).backward()
    every_time = once(x, y)  # the first draws the same labels
    (3 * every_time).backward()
    assert sum(losses).item() == pytest.approx(3 * every_time.item(), rel=1e-9)
    assert losses[0].item() > every_time.item() > losses[1].item() == losses[2].item()
    for k, g in grads(once).items():
        torch.testing.assert_close(grads(thrice)[k], g, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("prior", [priors.Gaussian(), priors.Laplace(), priors.InverseReference("one_step"), L2()])
def test_scales_have_a_gradient_at_every_batch(way, prior):
    x, y = data()
    bnn = vl(prior=prior, curvature=way, fraction=1.0, every=2)
    for _ in range(2):
        bnn.zero_grad()
        bnn(x, y).backward()
        assert all(p.grad is not None for p in bnn.parameters())


@pytest.mark.parametrize("way", WAYS)
def test_which_batch_is_next_is_in_the_state(way):
    x, y = data()
    first, second = (vl(curvature=way, fraction=1.0, every=2, labels="empirical") for _ in range(2))
    second.load_state_dict(first.state_dict())
    one, other = first(x, y).item(), first(x, y).item()
    assert one > other
    second(x, y)
    third = vl(curvature=way, fraction=1.0, every=2, labels="empirical")
    third.load_state_dict(second.state_dict())
    assert third(x, y).item() == pytest.approx(other)


def test_who_compares_batches_sees_the_curvature_of_each():
    """One draw, of labels that are observed: batches that take turns would have a variance of their own."""
    x, y = data()
    bnn = vl(fraction=1.0, every=2, labels="empirical")
    each = vl(fraction=1.0, labels="empirical")
    each.load_state_dict(bnn.state_dict())
    found = cr.objectives.gradient_noise(bnn, (x, y), draws=3)["scales"]
    expected = cr.objectives.gradient_noise(each, (x, y), draws=3)["scales"]
    torch.testing.assert_close(found.mean, expected.mean)
    assert found.variance.max() < 1e-20
    one, other = (convergence(objective, [(x, y)], count=1) for objective in (bnn, each))
    assert [tensor.pull for tensor in one] == pytest.approx([tensor.pull for tensor in other])
    assert bnn.every == 2


@pytest.mark.parametrize("way", WAYS)
def test_where_nothing_is_learnt_every_batch_has_its_curvature_once(way):
    x, y = data()
    bnn = vl(curvature=way, fraction=1.0, every=2, labels="empirical").eval()
    each = vl(curvature=way, fraction=1.0, labels="empirical").eval()
    each.load_state_dict(bnn.state_dict())
    found = [bnn(x, y).item() for _ in range(3)]
    assert found == pytest.approx(3 * [each(x, y).item()])


def test_the_exact_way_shares_the_batchs_forward():
    x, y = data()
    for fraction, expected in ((1.0, [32]), (0.25, [32, 8])):
        bnn, seen = vl(curvature="exact", fraction=fraction), []
        bnn.net.register_forward_hook(lambda _, i, o, seen=seen: seen.append(len(o)))
        bnn(x, y)
        assert seen == expected


@pytest.mark.parametrize("way", FISHER)
def test_mixed_precision_leaves_the_curvature_in_full(way):
    """bfloat16 has three digits; the gradient of the curvature keeps more than that."""
    x, y = (t.float() if t.is_floating_point() else t for t in data())
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 3))
    found = []
    for enabled in (False, True):
        bnn = vl(copy.deepcopy(net), curvature=way, fraction=1.0, beta=0.0)
        bnn.noise.seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = bnn(x, y)
        assert loss.dtype == torch.float32
        loss.backward()
        found.append(bnn.q.scales.rho.grad)
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-9)


# -- bad input --------------------------------------------------------------------------------------------------------


class Heavy(priors.ScaleMixture):
    """A prior that has no variance."""

    @property
    def standard_deviation(self):
        return math.inf


class Unknown(priors.Gaussian):
    """A prior that does not say what its variance is."""

    def bind(self, layout):
        bound = super().bind(layout)
        bound.stddev = lambda: None
        return bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": -0.1}, "not negative"),
        ({"beta": math.nan}, "not negative"),
        ({"fraction": 0.0}, "above 0 and up to 1"),
        ({"fraction": 1.5}, "above 0 and up to 1"),
        ({"fraction": math.nan}, "above 0 and up to 1"),
        ({"every": 0}, "a whole number, 1 or more"),
        ({"every": 2.0}, "a whole number, 1 or more"),
        ({"curvature": "fisher"}, "'fisher'.*'finite_difference', 'exact' or 'hessian'"),
        ({"labels": "observed"}, "'observed'.*'model' draws them"),
        ({"prior": priors.ScaleMixture()}, r"closed form.*ScaleMixture.*priors\.Gaussian or priors\.Laplace.*VI"),
        ({"prior": Heavy()}, r"E\[w\^2\].*no variance.*priors\.Gaussian"),
        ({"prior": Unknown()}, r"E\[w\^2\].*no variance.*priors\.Gaussian"),
        ({"num_data": 0}, "number of training examples"),
        ({"random": "3.*"}, "matches no parameter"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        vl(**options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_too_coarse_a_type(dtype):
    with pytest.raises(InputError, match=rf"{dtype} is too coarse.*net\.float\(\).*autocast"):
        vl(network().to(dtype))


@pytest.mark.parametrize("way", WAYS)
def test_targets_of_the_wrong_shape(way):
    x, y = data()
    for likelihood, wrong in (
        (likelihoods.Categorical(), y[:, None]),
        (likelihoods.Categorical(), y[:-1]),
        (likelihoods.Gaussian(1.0), torch.zeros(N, dtype=torch.float64)),
        (likelihoods.Categorical(), y[:0]),
    ):
        with pytest.raises(InputError):
            vl(likelihood=likelihood, curvature=way)(x, wrong)


# -- prediction -------------------------------------------------------------------------------------------------------


def test_classes_are_predicted_by_the_mean_network_and_numbers_by_the_linearised_one():
    x, _ = data()
    bnn = vl()
    torch.testing.assert_close(bnn.predict(x).probs, bnn.net(x).softmax(-1).detach())
    assert bnn.predict(x).num_draws == 1
    regression = vl(network(), likelihood=likelihoods.Gaussian(0.3))
    assert torch.equal(regression.predict(x, 5).means, regression.predict(x, 5, how="linearised").means)
    assert not torch.equal(regression.predict(x, 5).means, regression.predict(x, 5, how="sampled").means)


@pytest.mark.parametrize("random", ["2.*", "*bias"])
def test_weights_that_start_at_zero_have_a_curvature_too(random):
    x, y = data()
    net = network().float()
    with torch.no_grad():
        net[2].weight.zero_()
        for layer in (net[0], net[2]):
            layer.bias.zero_()
    bnn = vl(net, random=random)
    assert bnn.curvature_error(x.float(), y) < 0.05


def test_a_batch_that_is_not_finite_is_named_by_fit():
    x, y = data()
    x[0, 0] = torch.nan
    bnn = vl(num_data=len(x))
    with pytest.raises(NonFiniteError, match="row 0"):
        cr.fit(bnn, None, [(x, y)], steps=1, progress=False)


def test_inputs_may_hold_more_than_tensors():
    class Flagged(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, flag):
            assert flag is None
            return self.net(x)

    x, y = data()
    bnn = vl(Flagged(), fraction=0.5)
    assert torch.isfinite(bnn({"x": x, "flag": None}, y))


def test_doubt_behind_batchnorm_is_too_much_and_is_announced():
    x, y = data()
    net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Softplus(), nn.Linear(6, 3)).double()
    bnn = vl(net)
    bnn(x, y).backward()
    with pytest.warns(UserWarning, match="BatchNorm follows random weights"):
        bnn.predict(x, 2, how="linearised")
    vl(net, random="3.*").predict(x, 2, how="linearised")  # nothing random stands before the norm layer


@pytest.mark.parametrize("wrong", [{"likelihood": "categorical"}, {"prior": cr.penalties.L1}, {"prior": None}])
def test_what_is_no_likelihood_or_prior_is_refused(wrong):
    with pytest.raises(InputError, match=r"write (one of credent\.likelihoods|a prior such as)"):
        vl(**wrong)


def test_one_draw_says_nothing_of_their_spread():
    x, _ = data()
    bnn = vl(network(), likelihood=likelihoods.Gaussian(0.1))
    with torch.no_grad():
        bnn.q.scales.rho.fill_(0.0)
    bnn.predict(x, 1, how="sampled")  # warnings are errors


def test_the_statistics_of_batchnorm_are_no_disagreement():
    x, y = data()
    net = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Softplus(), nn.Linear(6, 3)).double()
    bnn = vl(net)
    bnn(x, y).backward()
    with torch.no_grad():
        bnn.q.scales.rho.fill_(-8.0)
    bnn.predict(x, 16, how="sampled")


def test_the_reported_error_is_of_smooth_networks_and_draws_nothing():
    x, y = data()
    for layer in (nn.ReLU(), nn.Dropout(0.5)):
        with pytest.raises(InputError, match="differentiates the network twice"):
            vl(network(layer)).curvature_error(x, y)
    bnn = vl()
    before = bnn.noise.get_extra_state()["state"]
    bnn.curvature_error(x, y)
    assert torch.equal(before, bnn.noise.get_extra_state()["state"])


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [(likelihoods.Categorical(), 3), (likelihoods.Bernoulli(), 2), (likelihoods.Gaussian(0.1), 2)],
    ids=str,
)
def test_draws_that_leave_the_quadratic_are_announced(likelihood, outputs):
    x, _ = data()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.Softplus(), nn.Linear(6, outputs)).double()
    bnn = vl(net, likelihood, random="0.*")
    with torch.no_grad():
        net[2].weight.mul_(4)
        if isinstance(likelihood, likelihoods.Gaussian):
            net[2].weight.abs_()  # all hidden units push the same way
        bnn.q.scales.rho.fill_(-8.0)
    bnn.predict(x, 512, how="sampled")  # a warning would be an error
    with torch.no_grad():
        bnn.q.scales.rho.fill_(1.5)
    with pytest.warns(UserWarning, match=r"disagree.*more than the draws' noise.*how='mean'"):
        bnn.predict(x, 512, how="sampled")
    bnn.predict(x, 64)
    bnn.predict(x, how="mean")


def test_noise_alone_is_not_announced():
    """A linear network has no other region: few draws differ from the mean by their noise only."""
    x, _ = data()
    torch.manual_seed(0)
    bnn = vl(nn.Linear(3, 2).double(), likelihoods.Gaussian(0.1))
    with torch.no_grad():
        bnn.q.scales.rho.fill_(0.0)
    for seed in range(10):
        bnn.predict(x, 8, how="sampled", seed=seed)


def test_no_warning_about_statistics_that_are_not_used():
    """The mean network normalises by its own statistics."""
    x, _ = data()
    vl(network(nn.BatchNorm1d(6))).predict(x, how="mean")


def test_a_layout_and_a_network_of_ones_own():
    """The functions beneath take a network that no objective holds."""
    x, _ = data()
    net = network()
    layout = Layout(net)
    sigma = torch.full((layout.num_params,), 0.4, dtype=torch.float64)
    rho = sigma.log().requires_grad_()
    prior = DiagonalGaussian(dict.fromkeys(layout.names, 0.0), dict.fromkeys(layout.names, 1.0)).on(layout)
    likelihood, g = likelihoods.Categorical(), torch.Generator()

    def score(f):
        return likelihood.score_at(f, likelihood.draw(f, g.manual_seed(0)))

    for _ in range(2):
        first, diagonal = curvature.exact(layout, sigma, net(x), score)
        other, _ = curvature.finite_difference(Network(net), prior, rho, likelihood, x, score)()
        assert first.item() == pytest.approx(other.item(), rel=1e-12)
        assert first.item() == pytest.approx(0.4**2 * diagonal.sum().item() / 2, rel=1e-12)
        (by_rho,) = torch.autograd.grad(other, rho, retain_graph=True)
        torch.testing.assert_close(by_rho, 0.4**2 * diagonal, rtol=1e-12, atol=1e-15)
        moved, alone = (torch.autograd.grad(c, net[0].weight)[0] for c in (other, first))
        torch.testing.assert_close(moved, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("prior", [priors.Gaussian(0.7), priors.Laplace(0.7), cr.penalties.L1(0.3)], ids=repr)
def test_the_scales_gradient_is_that_of_the_curvature_and_of_the_penalty(prior):
    x, y = data()
    bnn = vl(curvature="hessian", prior=prior, beta=3.0)
    loss = bnn(x, y)
    loss.backward()
    found, rho = bnn.q.scales.rho.grad.clone(), bnn.q.scales.rho.detach().clone().requires_grad_()

    def nll(w):
        return nn.functional.cross_entropy(torch.func.functional_call(bnn.net, bnn.layout.unflatten(w), x), y)

    means = bnn.layout.flatten(bnn.layout.params()).detach()
    diagonal = torch.func.jacrev(torch.func.jacrev(nll))(means).diag()
    rise = ((2 * rho).exp() * diagonal).sum() / 2
    bnn.zero_grad(set_to_none=False)  # L1 has no gradient by the scales
    penalty = bnn.penalty(bnn.q)
    (3.0 / N * penalty).backward()
    torch.testing.assert_close(found, torch.autograd.grad(rise, rho)[0] + bnn.q.scales.rho.grad, rtol=1e-9, atol=1e-12)
    assert loss.item() == pytest.approx((nll(means) + rise + 3.0 / N * penalty).item(), rel=1e-10)


def test_a_second_derivative_of_a_finite_difference_is_refused():
    x, y = data()
    bnn = vl()
    with pytest.raises(InputError, match="curvature='exact'"):
        torch.autograd.grad(bnn(x, y), list(bnn.parameters()), create_graph=True)


@pytest.mark.parametrize("labels", ["model", "moving", "empirical"])
def test_weights_that_are_not_finite_make_the_loss_so(labels):
    x, y = data()
    bnn = vl(labels=labels)
    with torch.no_grad():
        next(bnn.net.parameters()).fill_(torch.nan)
    assert not bnn(x, y).isfinite()
