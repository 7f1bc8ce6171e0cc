import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from credent import MAP, VI, VL, families, likelihoods, predict, priors
from credent.errors import InputError
from credent.likelihoods import Categorical
from credent.network import Network
from credent.objectives import Annealed, PerBatch
from credent.penalty import Penalty

N = 40


def data(seed=0, n=N):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, dtype=torch.float64, generator=g)
    return x, (x[:, :1] * x[:, 1:2]).tanh() + 0.1 * torch.randn(n, 1, dtype=torch.float64, generator=g)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)).double()


def vi(net=None, likelihood=None, **options):
    options = {"num_data": N, "prior": priors.Gaussian(scale=0.8), **options}
    return VI(net or network(), likelihood or likelihoods.Gaussian(0.3), **options)


def point(net=None, likelihood=None, **options):
    options = {"num_data": N, "prior": priors.Gaussian(scale=0.8), **options}
    return MAP(net or network(), likelihood or likelihoods.Gaussian(0.3), **options)


BOTH = pytest.mark.parametrize("objective", [vi, point])


class Failing(nn.Linear):
    """A layer that fails on its second call."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 2:
            raise ArithmeticError("second call")
        return super().forward(x)


# -- the loss and its parts -------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_parts_add_up_to_the_loss(objective, beta):
    bnn = objective(beta=beta)
    x, y = data()
    assert bnn.last is None
    loss = bnn(x[:8], y[:8])
    last = bnn.last
    assert (last.beta, last.num_data) == (beta, N)
    assert loss.item() == last.loss.item() == pytest.approx((last.nll + beta / N * last.penalty).item(), rel=1e-14)
    assert last.outputs.shape == (8, 1)
    assert not any(t.requires_grad for t in (last.nll, last.penalty, last.outputs, last.loss))
    z = (y[:8] - last.outputs) / 0.3
    expected = (0.5 * z**2).mean() + math.log(0.3 * math.sqrt(2 * math.pi))
    assert last.nll.item() == pytest.approx(expected.item(), rel=1e-12)


def test_maps_penalty_is_minus_the_log_prior():
    bnn = point()
    bnn(*data())
    squares = sum((p**2).sum().item() for p in bnn.net.parameters())
    count = sum(p.numel() for p in bnn.net.parameters())
    expected = squares / (2 * 0.8**2) + count * math.log(0.8 * math.sqrt(2 * math.pi))
    assert bnn.last.penalty.item() == pytest.approx(expected, rel=1e-12)


def test_maps_gradient_is_weight_decays():
    bnn, (x, y) = point(), data()
    bnn(x, y).backward()
    plain = copy.deepcopy(bnn.net)
    plain.zero_grad()
    (0.5 * ((y - plain(x)) / 0.3) ** 2).mean().backward()
    for p, q in zip(bnn.net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad + p.detach() / 0.8**2 / N, rtol=1e-10, atol=1e-12)


def test_a_dirac_family_makes_vi_map():
    x, y = data()
    one, other = vi(family=families.Dirac(), samples=2), point()
    assert one(x, y).item() == pytest.approx(other(x, y).item(), rel=1e-14)


def test_beta_may_depend_on_the_batch():
    bnn, (x, y) = vi(beta=Annealed(batches=4)), data()
    betas, losses = [], []
    for _ in range(6):
        losses.append(bnn(x, y).item())
        betas.append(bnn.last.beta)
        assert losses[-1] == pytest.approx((bnn.last.nll + betas[-1] / N * bnn.last.penalty).item(), rel=1e-14)
    assert betas == [0, 0.25, 0.5, 0.75, 1, 1]
    assert vi(beta=lambda batch: 0.1)(x, y) is not None


def test_only_training_batches_are_counted():
    bnn, (x, y) = point(beta=float), data()
    for training, beta in [(True, 0), (False, 1), (False, 1), (True, 1), (True, 2)]:
        bnn.train(training)
        bnn(x, y)
        assert bnn.last.beta == beta


@pytest.mark.parametrize("weights", [PerBatch.geometric(5, 0.5), PerBatch((0.2,) * 5), PerBatch((0, 0, 0.9, 0, 0.1))])
def test_over_an_epoch_the_kl_counts_once(weights):
    """The sum of B times the loss over an epoch is the data's sum plus one KL."""
    bnn, (x, y) = vi(beta=weights), data()
    total = nll = 0.0
    for xs, ys in zip(x.split(8), y.split(8), strict=True):
        total += 8 * bnn(xs, ys).item()
        nll += 8 * bnn.last.nll.item()
    assert total - nll == pytest.approx(bnn.last.penalty.item(), rel=1e-10)


def test_the_count_of_batches_is_part_of_the_state():
    bnn, (x, y) = vi(beta=Annealed(batches=10)), data()
    for _ in range(3):
        bnn(x, y)
    other = vi(network(1), beta=Annealed(batches=10))
    other.load_state_dict(bnn.state_dict())
    assert other(x, y).item() == pytest.approx(bnn(x, y).item(), rel=1e-14)
    assert other.last.beta == bnn.last.beta == pytest.approx(0.3)


def test_the_state_survives_a_file_that_holds_tensors_only(tmp_path):
    bnn, (x, y) = vi(), data()
    bnn(x, y)
    torch.save(bnn.state_dict(), tmp_path / "state.pt")
    other = vi(network(1))
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert other(x, y).item() == pytest.approx(bnn(x, y).item(), rel=1e-14)


def test_a_state_that_does_not_fit_is_refused():
    state = vi().state_dict()
    del state["q.scales.rho.0.weight"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "q.scales.rho.0.weight"'):
        vi().load_state_dict(state)
    wider = vi(nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 1)).double())
    with pytest.raises(RuntimeError, match=r"q\.scales\.rho\.0\.weight has shape \(6, 3\), another network's"):
        wider.load_state_dict(vi().state_dict())


class SumOfScales(Penalty):
    """A penalty without a density."""

    def forward(self, q):
        return q.scales.sigma().sum()


class Tax:
    def bind(self, layout):
        return SumOfScales()


def test_any_penalty_of_q_may_stand_for_the_kl():
    bnn, (x, y) = vi(prior=Tax()), data()
    bnn(x, y).backward()
    assert bnn.last.penalty.item() == pytest.approx(sum(s.sum().item() for s in bnn.posterior.stddev().values()))
    with pytest.raises(InputError, match="this penalty has no density"):
        vi(prior=Tax(), estimator="path")


# -- arguments --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("num_data", [0, -3, 10.0, True, None, "all"])
def test_num_data_is_a_count(objective, num_data):
    with pytest.raises(InputError, match=r"number of training examples, len\(dataset\), not of batches"):
        objective(num_data=num_data)


@BOTH
def test_num_data_may_be_an_integer_of_numpy(objective):
    bnn = objective(num_data=np.int64(N))
    assert type(bnn.num_data) is int
    assert bnn.num_data == N


@BOTH
@pytest.mark.parametrize("beta", [-0.1, float("nan")])
def test_beta_is_not_negative(objective, beta):
    with pytest.raises(InputError, match="1 is Bayes' rule, 0 no penalty"):
        objective(beta=beta)


@BOTH
def test_batches_that_cannot_be_are_refused(objective):
    bnn, (x, y) = objective(num_data=10), data()
    with pytest.raises(InputError, match="a batch of 11 is larger than num_data=10"):
        bnn(x[:11], y[:11])
    with pytest.raises(InputError, match=r"the batch is empty: y has shape \(0, 1\)"):
        bnn(x[:0], y[:0])
    with pytest.raises(InputError, match=r"the batch is empty: y has shape \(\)"):
        bnn(x, torch.tensor(1.0))
    assert bnn.last is None


# -- parameters and optimisers ----------------------------------------------------------------------------------------


def partly_random(likelihood="learnt"):
    """A frozen layer, a trained one, a random one, and learnt noise."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    net[0].requires_grad_(False)
    return vi(net, likelihoods.Gaussian(likelihood).double(), random="4.*")


def ids(parameters):
    return [id(p) for p in parameters]


def test_param_groups_name_every_trainable_parameter_once():
    bnn = partly_random()
    means, scales, rest = bnn.param_groups(lr=0.1, scale_lr=0.5)
    assert [(g["name"], g["lr"]) for g in (means, scales, rest)] == [("means", 0.1), ("scales", 0.5), ("rest", 0.1)]
    assert ids(means["params"]) == ids([bnn.net[4].weight, bnn.net[4].bias])
    assert ids(scales["params"]) == ids([bnn.q.scales.rho])
    assert sorted(ids(rest["params"])) == sorted(ids([*bnn.net[2].parameters(), bnn.likelihood.log_scale]))
    everything = ids(p for g in (means, scales, rest) for p in g["params"])
    assert sorted(everything) == sorted(ids(p for p in bnn.parameters() if p.requires_grad))
    assert means["weight_decay"] == scales["weight_decay"] == 0
    assert "weight_decay" not in rest  # the optimiser's own


def test_param_groups_leave_out_what_is_empty():
    assert [g["name"] for g in point().param_groups(lr=0.1)] == ["means"]
    assert [g["name"] for g in vi().param_groups(lr=0.1)] == ["means", "scales"]
    assert [g["lr"] for g in vi().param_groups(lr=0.1)] == [0.1, 0.1]
    assert [g["lr"] for g in vi().param_groups(lr=0.1, scale_lr=0.0)] == [0.1, 0.0]


def radial(**options):
    return vi(family=families.Radial(), **options)


def laplace(**options):
    return VL(network(), likelihoods.Gaussian(0.3), priors.Gaussian(scale=0.8), num_data=N, **options)


@pytest.mark.parametrize("objective", [vi, radial, laplace])
@pytest.mark.parametrize("ratio", [0.1, 10.0])
def test_one_ratio_sets_the_scales_apart_and_schedules_keep_it(objective, ratio):
    (x, y), bnn = data(), objective()
    optimizer = torch.optim.SGD(bnn.param_groups(lr=1e-3, ratio=ratio))
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([1e-3, ratio * 1e-3], rel=1e-12)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    means, scales = ([p.detach().clone() for p in g["params"]] for g in optimizer.param_groups)
    for _ in range(3):
        optimizer.zero_grad()
        bnn(x, y).backward()
        rates = [g["lr"] for g in optimizer.param_groups]
        before = optimizer.param_groups[1]["params"][0].detach().clone()
        optimizer.step()
        (moved, *_) = optimizer.param_groups[1]["params"]
        torch.testing.assert_close(moved.detach(), before - rates[1] * moved.grad)
        assert rates[1] == pytest.approx(ratio * rates[0], rel=1e-12)
        schedule.step()
    assert optimizer.param_groups[0]["lr"] < 1e-3
    for old, group in zip((means, scales), optimizer.param_groups, strict=True):
        assert not torch.equal(old[0], group["params"][0])


def test_a_ratio_is_given_alone_and_not_negative():
    with pytest.raises(InputError, match=r"twice: write param_groups\(lr=0.1, scale_lr=0.2\) or .*ratio=3"):
        vi().param_groups(lr=0.1, scale_lr=0.2, ratio=3.0)
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(InputError, match=r">= 0, such as 0\.1"):
            vi().param_groups(lr=0.1, ratio=wrong)


def test_weight_decay_spares_what_has_a_prior():
    """One AdamW step with decay and one without differ in the rest alone, by the decay."""
    torch.manual_seed(0)
    bnn, (x, y) = partly_random(), data()
    twin = copy.deepcopy(bnn)
    for each, decay in ((bnn, 0.5), (twin, 0.0)):
        optimiser = torch.optim.AdamW(each.param_groups(lr=0.1), weight_decay=decay)
        before = each.net[2].weight.detach().clone()
        each(x, y).backward()
        optimiser.step()
    assert torch.equal(bnn.net[0].weight, twin.net[0].weight)
    assert torch.equal(bnn.net[4].weight, twin.net[4].weight)
    assert torch.equal(bnn.q.scales.rho, twin.q.scales.rho)
    torch.testing.assert_close(bnn.net[2].weight, twin.net[2].weight - 0.1 * 0.5 * before, rtol=1e-10, atol=1e-12)


def test_an_sgd_step_moves_means_scales_and_noise_against_their_gradients():
    torch.manual_seed(0)
    bnn, (x, y) = partly_random(), data()
    optimiser = torch.optim.SGD(bnn.param_groups(lr=0.1, scale_lr=0.01))
    trainable = {k: p for k, p in bnn.named_parameters() if p.requires_grad}
    before = {k: p.detach().clone() for k, p in trainable.items()}
    bnn(x, y).backward()
    optimiser.step()
    for k, p in trainable.items():
        lr = 0.01 if "rho" in k else 0.1
        assert p.grad.abs().max() > 0
        torch.testing.assert_close(p.detach(), before[k] - lr * p.grad, rtol=1e-12, atol=0)


@pytest.mark.parametrize("optimiser", [torch.optim.AdamW, torch.optim.SGD])
@BOTH
def test_training_lowers_the_loss(objective, optimiser):
    torch.manual_seed(0)
    bnn, (x, y) = objective(), data()
    opt = optimiser(bnn.param_groups(lr=0.02))
    losses = []
    for _ in range(150):
        loss = bnn(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-20:]) / 20 < 0.8 * sum(losses[:5]) / 5


def test_lbfgs_minimises_map():
    torch.manual_seed(0)
    bnn, (x, y) = point(), data()
    opt = torch.optim.LBFGS(bnn.param_groups(lr=1.0), max_iter=300, line_search_fn="strong_wolfe", tolerance_change=0)

    def closure():
        opt.zero_grad()
        loss = bnn(x, y)
        loss.backward()
        return loss

    opt.step(closure)
    closure()
    assert max(p.grad.abs().max().item() for p in bnn.net.parameters()) < 1e-6


# -- the network stays the user's -------------------------------------------------------------------------------------


def test_an_exception_in_the_forward_leaves_the_means_and_the_count():
    """The second draw fails, while drawn weights are in the network."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), Failing(4, 1)).double()
    bnn, (x, y) = vi(net, samples=3, beta=Annealed(10)), data()
    own, before = list(net.parameters()), {k: p.detach().clone() for k, p in net.named_parameters()}
    with pytest.raises(ArithmeticError, match="second call"):
        bnn(x, y)
    assert all(a is b for a, b in zip(net.parameters(), own, strict=True))
    assert all(torch.equal(p, before[k]) for k, p in net.named_parameters())
    assert bnn.last is None
    assert net[1].num_batches_tracked == 1
    bnn(x, y).backward()  # and the next step is as any other: nothing of the failed one is kept
    assert bnn.last.beta == 0
    bnn.predict(x)


def test_a_failed_step_does_not_keep_old_scales():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), Failing(4, 1)).double()
    bnn, (x, y) = vi(net, samples=2), data()
    with pytest.raises(ArithmeticError):
        bnn(x, y)
    with torch.no_grad():
        bnn.q.scales.rho.add_(1.0)
    expected = bnn.q.scales.rho.detach().exp()
    assert torch.equal(bnn.q.scales.sigma().detach(), expected)


def test_objectives_may_be_built_on_one_network_in_turn():
    torch.manual_seed(0)
    net, (x, y) = network(), data()

    def run(objective):
        opt = torch.optim.SGD(objective.param_groups(lr=0.05))
        for _ in range(5):
            objective(x, y).backward()
            opt.step()
            opt.zero_grad()
        return {k: p.detach().clone() for k, p in net.named_parameters()}

    first, second = point(net), vi(net)
    start = {k: p.detach().clone() for k, p in net.named_parameters()}
    after_map = run(first)
    assert not any(torch.equal(after_map[k], start[k]) for k in start)
    assert all(torch.equal(m, after_map[k]) for k, m in second.posterior.mean().items())  # VI starts where MAP ended
    loss = first(x, y).item()
    second(x, y)
    assert first(x, y).item() == loss  # a draw of the one is not seen by the other
    after_vi = run(second)
    assert all(torch.equal(m, after_vi[k]) for k, m in first.posterior.mean().items())
    third = point(net, random="2.*")
    assert first(x, y).item() != loss
    torch.testing.assert_close(third(x, y) - first(x, y), (third.last.penalty - first.last.penalty) / N)


def test_conversion_takes_the_network_and_the_scales_along():
    bnn, (x, y) = vi(), data()
    bnn.float()
    assert bnn(x.float(), y.float()).dtype == torch.float32
    bnn.net.double()
    with pytest.raises(InputError, match="convert the objective, which holds both"):
        bnn(x, y)


def test_the_same_seed_gives_the_same_training():
    x, y = data()

    def losses():
        bnn = vi(network(3))
        opt = torch.optim.Adam(bnn.param_groups(lr=0.01))
        found = []
        for _ in range(4):
            loss = bnn(x, y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            found.append(loss.item())
        return found

    assert losses() == losses()


def test_other_draws_from_torchs_generator_do_not_shift_the_noise():
    x, y = data()
    one, two = vi(network(3)), vi(network(3))
    first = one(x, y).item()
    torch.randn(7)
    assert two(x, y).item() == first


def test_predict_takes_the_options_of_credents_predict():
    bnn, (x, _) = vi(), data()
    a = bnn.predict(x, samples=4, seed=3)
    b = bnn.predict(x, samples=4, seed=3, batch_size=7)
    torch.testing.assert_close(a.means, b.means, rtol=1e-12, atol=1e-14)
    assert a.num_draws == 4
    assert not torch.allclose(a.means, bnn.predict(x, samples=4, seed=4).means)
    assert point().predict(x).num_draws == 1


def compiled(net):
    return torch.compile(net, backend="aot_eager")  # traces as the default does, without its minute of C++


def compiled_in_place(net):
    net.compile(backend="eager")
    return net


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's own
@pytest.mark.parametrize("compile_net", [compiled, compiled_in_place])
def test_a_compiled_network_trains_as_a_plain_one(compile_net):
    torch.manual_seed(0)
    torch._dynamo.reset()
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double()
    net, (x, y) = copy.deepcopy(plain), data()
    torch.manual_seed(1)
    one = vi(plain, samples=2)
    torch.manual_seed(1)
    other = vi(compile_net(net), samples=2)
    for _ in range(2):  # the second step runs what the first has traced, with other weights
        losses = [bnn(x, y) for bnn in (one, other)]
        for bnn, loss in zip((one, other), losses, strict=True):
            bnn.zero_grad()
            loss.backward()
        torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(dict(net.named_buffers()), dict(plain.named_buffers()))
    torch.testing.assert_close(other.predict(x, samples=3).means, one.predict(x, samples=3).means)


# -- BatchNorm behind random weights -----------------------------------------------------------------------------------


def batch_norm_case():
    """A network whose draws disagree about their statistics: noise on weights whose scale BatchNorm cancels."""
    torch.manual_seed(0)
    first, second = ([nn.Linear(d, 16), nn.BatchNorm1d(16), nn.ReLU()] for d in (4, 16))
    net = nn.Sequential(*first, *second, nn.Linear(16, 2))
    x = torch.randn(256, 4) + 3.0
    y = (x[:, 0] > x[:, 1]).long()
    bnn = VI(net, Categorical(), num_data=256, beta=0.01, family=families.Gaussian(initial_scale=1.0))
    optimizer = torch.optim.Adam(bnn.param_groups(lr=1e-2, scale_lr=0.0))
    for _ in range(300):
        bnn(x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return bnn, x, y


@pytest.mark.filterwarnings("ignore:BatchNorm follows random weights")
def test_draws_are_normalised_by_their_own_statistics():
    bnn, x, y = batch_norm_case()
    assert (bnn.predict(x).label == y).float().mean() > 0.9
    alone = [(bnn.predict(x, 1, seed=s), predict(bnn.net, bnn.posterior, bnn.likelihood, x, samples=1, seed=s))
             for s in range(20)]  # fmt: skip
    own, running = (sum((each[k].label == y).float().mean().item() for each in alone) / 20 for k in (0, 1))
    assert running < own - 0.05  # averages over draws fit no single one
    given = bnn.predict(x, statistics=[(x, y)])  # a loader's pairs
    assert torch.allclose(given.probs, bnn.predict(x).probs, atol=1e-6)  # the same batch, four times over


def test_without_a_batch_to_normalise_by_it_says_so():
    bnn, x, _ = batch_norm_case()
    fresh = VI(copy.deepcopy(bnn.net), Categorical(), num_data=256)
    with pytest.warns(UserWarning, match="statistics=loader"):
        fresh.predict(x)
    fresh.load_state_dict(bnn.state_dict())
    assert torch.equal(fresh.predict(x).probs, bnn.predict(x).probs)


def test_only_statistics_behind_random_weights_are_of_concern():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    assert Network(net).normalises_after(["0.weight"])
    assert not Network(net).normalises_after(["2.weight", "2.bias"])
    assert not Network(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))).normalises_after(["0.weight"])
