"""Attacks against closed forms, naive float64 references and each other; what they may never do."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import credent as cr
from credent.attacks import FGSM, PGD, Averaged, Ball, Box
from credent.errors import InputError, NonFiniteError
from credent.families import Draws
from credent.families.posterior import Posterior
from credent.likelihoods import Bernoulli, Categorical, Gaussian
from credent.network import Network

NOWHERE = Box(-math.inf, math.inf)


def draws_around(net: nn.Module, count: int, scale: float, seed: int = 0) -> Draws:
    generator = torch.Generator().manual_seed(seed)
    own = {k: p.detach() for k, p in net.named_parameters()}
    return Draws(
        [{k: p + scale * torch.randn(p.shape, generator=generator).to(p) for k, p in own.items()} for _ in range(count)]
    )


def mlp(outputs: int, inputs: int = 5, hidden: int = 12) -> nn.Module:
    torch.manual_seed(0)
    return cr.models.MLP(inputs, outputs, (hidden,), nn.Tanh)


def naive_log_prob(net, posterior, log_prob_of_one_draw, x):
    """log of the mean over draws, with the whole graph held at once."""
    network = Network(net)
    each = torch.stack([log_prob_of_one_draw(network(params, x)) for params in posterior.draws()])
    return each.exp().mean(0).log()


def normal(mean, scale, y):
    return (-0.5 * ((y - mean) / scale) ** 2 - torch.log(scale) - 0.5 * math.log(2 * math.pi)).sum(-1)


CLASSES = torch.tensor([0, 2, 1, 2, 0, 1, 1])
REALS = torch.linspace(-1, 1, 14).reshape(7, 2)
YES_NO = torch.tensor([[1.0], [0.0], [1.0], [1.0], [0.0], [0.0], [1.0]])


CASES = {
    "categorical": (Categorical(), 3, CLASSES, lambda f: f.log_softmax(-1)[torch.arange(7), CLASSES]),
    "bernoulli": (Bernoulli(), 1, YES_NO, lambda f: torch.where(YES_NO > 0, f, -f).sigmoid().log()[:, 0]),
    "gaussian": (Gaussian(scale=0.5), 2, REALS, lambda f: normal(f, torch.tensor(0.5).double(), REALS.double())),
    "learnt": (Gaussian("learnt", 2, initial=0.25), 2, REALS, lambda f: normal(f, torch.tensor(0.25).double(), REALS)),
    "heteroscedastic": (
        Gaussian("heteroscedastic"),
        4,
        REALS,
        lambda f: normal(f[:, :2], torch.nn.functional.softplus(f[:, 2:]) + 1e-4, REALS.double()),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch_size", [2, 100])
def test_the_gradient_is_that_of_the_log_of_the_mean_prediction(case, batch_size):
    likelihood, outputs, y, log_prob = CASES[case]
    net = mlp(outputs).double()
    posterior = draws_around(net, 6, scale=0.5)
    x = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    value = naive_log_prob(net, posterior, log_prob, x)
    (expected,) = torch.autograd.grad(value.sum(), x)
    averaged = Averaged(net, posterior, likelihood, samples=None, batch_size=batch_size)
    prediction, gradient = averaged.gradient(x, y)
    torch.testing.assert_close(gradient, expected, rtol=1e-6 if case == "learnt" else 1e-10, atol=1e-12)
    torch.testing.assert_close(prediction.log_prob(y), value.detach(), rtol=1e-6, atol=1e-6)

    each = torch.stack([log_prob(Network(net)(p, x)) for p in posterior.draws()]).mean(0)
    (wrong,) = torch.autograd.grad(each.sum(), x)  # of the mean of the logs: what the average is not
    assert (wrong - expected).abs().max() > 0.005

    single = Averaged(net.float(), draws_around(net, 6, 0.5), likelihood, samples=None)
    close = single.gradient(x.detach().float(), y)[1]
    torch.testing.assert_close(close, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_a_temperature_is_in_the_prediction_and_not_in_the_gradient():
    net = mlp(3).double()
    posterior = draws_around(net, 6, scale=0.5)
    x = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    plain, tempered = Categorical(), Categorical()
    tempered.temperature.fill_(3.0)
    raw, expected = Averaged(net, posterior, plain, samples=None).gradient(x, CLASSES)
    found, gradient = Averaged(net, posterior, tempered, samples=None).gradient(x, CLASSES)
    assert torch.equal(gradient, expected)
    torch.testing.assert_close(found.log_probs, (raw.log_probs / 3).log_softmax(-1))


def test_the_gradient_of_a_sure_network_does_not_vanish():
    """p(y) = 1 - 1e-13: float32 softmax has lost the loss, and all but a wrong direction of its gradient."""
    weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    x, y = torch.tensor([[10.0, 0.0]]), torch.tensor([0])
    averaged = Averaged(nn.Linear(2, 2, bias=False), Draws([{"weight": weight}]), Categorical())
    _, gradient = averaged.gradient(x, y)
    other = 1 / (1 + math.exp(30))
    torch.testing.assert_close(gradient, other * torch.tensor([[3.0, -4.0]]).double(), rtol=1e-2, atol=0)

    far = 200 * x  # the gradient is 1e-2605 in theory: no float has it, and nothing breaks
    attacked = PGD(steps=3)(averaged, far, y, 0.1, NOWHERE)
    assert attacked.isfinite().all()


def test_far_apart_draws_do_not_underflow():
    """Log-likelihoods of -2e6 and -8e6: only the likelier draw counts, first or last, and nothing is 0 / 0."""
    x, y = torch.tensor([[3000.0]]), torch.tensor([[1000.0]])
    for weights in ([1.0, -1.0], [-1.0, 1.0]):
        posterior = Draws([{"weight": torch.tensor([[w]])} for w in weights])
        averaged = Averaged(nn.Linear(1, 1, bias=False), posterior, Gaussian(scale=1.0))
        assert averaged.gradient(x, y)[1].item() == -2000.0  # y - x of the draw of weight 1


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("attack", [FGSM, lambda norm: PGD(norm, steps=30)])
def test_the_optimum_of_a_linear_model_is_reached(norm, attack):
    """log p = -softplus(-(w pixels + b)): least where w (pixels' - pixels) = -epsilon ||w||, by the dual norm."""
    torch.manual_seed(1)
    mean, std = torch.randn(6).double(), torch.rand(6).double() + 0.3
    net = nn.Linear(6, 1).double()
    box = Box(-math.inf, math.inf, mean, std)
    x, epsilon = torch.randn(40, 6).double(), 0.3
    y = (torch.rand(40, 1) > 0.5).double()
    averaged = Averaged(net, Draws([dict(net.named_parameters())]), Bernoulli())
    attacked = attack(norm)(averaged, x, y, epsilon, box)
    by_pixel = net.weight[0] / std
    dual = by_pixel.abs().sum() if norm == "linf" else by_pixel.square().sum().sqrt()
    logit = (2 * y - 1) * net(x) - epsilon * dual
    torch.testing.assert_close(averaged.predict(attacked).log_prob(y), -nn.functional.softplus(-logit)[:, 0])
    lengths = ((attacked - x) * std).norm(dim=1, p=math.inf if norm == "linf" else 2)
    torch.testing.assert_close(lengths, torch.full((40,), epsilon).double())


def test_the_box_cuts_the_linear_optimum_where_it_must():
    """In an linf ball the pixels do not bargain with each other: each goes as far as ball and box allow."""
    net = nn.Linear(3, 1, bias=False)
    averaged = Averaged(net, Draws([{"weight": torch.tensor([[1.0, -1.0, 2.0]])}]), Bernoulli())
    attacked = FGSM()(averaged, torch.tensor([[0.05, 0.5, 0.3]]), torch.ones(1, 1), 0.1)
    torch.testing.assert_close(attacked, torch.tensor([[0.0, 0.6, 0.2]]))


def test_an_attack_on_the_average_sees_through_the_noise_of_draws():
    """Weights +-5 of the first input average out; the second moves every draw, and the attack finds it."""
    weights = [torch.tensor([[0.0, 0.0], [sign * 5.0, 1.0]]) for sign in (1.0, -1.0)]
    averaged = Averaged(nn.Linear(2, 2, bias=False), Draws([{"weight": w} for w in weights]), Categorical())
    x, y = torch.tensor([[0.0, 0.5]]), torch.tensor([1])
    attacked = FGSM("l2")(averaged, x, y, 0.2)
    torch.testing.assert_close(attacked, torch.tensor([[0.0, 0.3]]))
    one = FGSM("l2")(Averaged(nn.Linear(2, 2, bias=False), Draws([{"weight": weights[0]}]), Categorical()), x, y, 0.2)
    assert one[0, 0] == 0  # cut by the box: the single draw sent it after the noise
    assert one[0, 1] > 0.45


@st.composite
def situations(draw):
    channels = draw(st.integers(1, 3))
    low = draw(st.floats(-2, 0.5))
    return {
        "box": Box(
            low,
            low + draw(st.floats(0.1, 3)),
            torch.tensor([draw(st.floats(-1, 1)) for _ in range(channels)])[:, None, None],
            torch.tensor([draw(st.floats(0.05, 4)) for _ in range(channels)])[:, None, None],
        ),
        "shape": (3, channels, 2, 2),
        "epsilon": draw(st.sampled_from([0.0, 1e-4, 1e-3, 8 / 255, 0.5, 10.0])),
        "norm": draw(st.sampled_from(["linf", "l2"])),
        "seed": draw(st.integers(0, 10_000)),
        "pgd": draw(st.booleans()),
    }


@given(situations())
@settings(max_examples=80, deadline=None)
def test_attacks_stay_in_the_box_and_in_the_ball(case):
    box, shape, epsilon = case["box"], case["shape"], case["epsilon"]
    generator = torch.Generator().manual_seed(case["seed"])
    pixels = box.low + (box.high - box.low) * torch.rand(shape, generator=generator)
    pixels[0, :, 0, 0], pixels[1, :, 1, 1] = box.low, box.high  # in a corner
    x = ((pixels - box.mean) / box.std).float()
    net = nn.Sequential(nn.Flatten(), mlp(3, shape[1] * 4))
    averaged = Averaged(net, draws_around(net, 2, 0.3), Categorical())
    attack = PGD(case["norm"], steps=3, step=0.7, restarts=2) if case["pgd"] else FGSM(case["norm"])
    attacked = attack(averaged, x, torch.tensor([0, 1, 2]), epsilon, box)
    assert attacked.shape == x.shape
    low, high = (box.low - box.mean) / box.std, (box.high - box.mean) / box.std
    rounding = 4e-7 * (1 + x.abs().amax())
    assert (attacked >= low - rounding).all()
    assert (attacked <= high + rounding).all()
    moved = ((attacked.double() - x.double()) * box.std).flatten(1)
    size = moved.norm(dim=1, p=math.inf if case["norm"] == "linf" else 2)
    slack = 4e-7 * float((x.abs() * box.std).amax() + 1) * (1 if case["norm"] == "linf" else math.sqrt(moved.shape[1]))
    assert (size <= epsilon * (1 + 1e-6) + slack).all()
    if epsilon == 0:
        assert torch.equal(attacked, x)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_random_starts_fill_the_ball(norm):
    x, epsilon, size = torch.zeros(20_000, 3), 0.7, 20_000
    moved = Ball(x, epsilon, norm, NOWHERE).draw(torch.Generator().manual_seed(0)).double()
    error = 4 / math.sqrt(12 * size)
    if norm == "linf":
        share = (moved / epsilon + 1) / 2  # uniform in each pixel
        assert ((share.mean(0) - 0.5).abs() < error).all()
        assert (share.var(0) - 1 / 12).abs().max() < 0.002
        assert moved.abs().max() <= epsilon
    else:
        share = (moved.norm(dim=1) / epsilon) ** 3  # the volume inside, uniform
        assert (share.mean() - 0.5).abs() < error
        assert (share.var() - 1 / 12).abs() < 0.002
        assert (moved.mean(0).abs() < 4 * epsilon / math.sqrt(5 * size)).all()  # in no direction more


def wiggly() -> tuple[Averaged, torch.Tensor, torch.Tensor]:
    """A rough network whose gradient misleads within the ball."""
    torch.manual_seed(3)
    net = cr.models.MLP(6, 4, (24, 24), nn.Tanh)
    for p in net.parameters():
        p.data *= 4
    x = torch.rand(60, 6)
    averaged = Averaged(net, draws_around(net, 3, 0.2), Categorical(), samples=None)
    return averaged, x, averaged.predict(x).label


def verdict(averaged, x, y):
    prediction = averaged.predict(x)
    return prediction.label != y, -prediction.log_prob(y)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("options", [{}, {"steps": 1, "step": 5.0}, {"steps": 3, "restarts": 0}])
@pytest.mark.parametrize("epsilon", [0.02, 0.2, 1.0])
def test_pgd_is_never_weaker_than_fgsm_on_any_input(norm, options, epsilon):
    averaged, x, y = wiggly()
    wrong, nll = verdict(averaged, FGSM(norm)(averaged, x, y, epsilon), y)
    wrong_pgd, nll_pgd = verdict(averaged, PGD(norm, **options)(averaged, x, y, epsilon), y)
    assert (wrong_pgd >= wrong).all()
    same = wrong_pgd == wrong
    assert (nll_pgd[same] >= nll[same] - 1e-5).all()
    clean = verdict(averaged, x, y)
    assert (wrong_pgd >= clean[0]).all()
    assert (nll_pgd >= clean[1] - 1e-5).all()


def test_pgd_finds_more_than_fgsm_and_restarts_find_more():
    averaged, x, y = wiggly()
    found = {
        name: verdict(averaged, attack(averaged, x, y, 0.2), y)
        for name, attack in {"fgsm": FGSM(), "pgd": PGD(), "more": PGD(restarts=4)}.items()
    }
    assert found["pgd"][0].sum() > found["fgsm"][0].sum() + 3
    assert (found["more"][0] >= found["pgd"][0]).all()  # their first walks are the same
    same = found["more"][0] == found["pgd"][0]
    assert (found["more"][1][same] >= found["pgd"][1][same] - 1e-5).all()


def test_restarts_leave_a_point_without_a_gradient():
    """A parabola's top: FGSM sees nothing to follow, and the walk from the input neither."""

    class Parabola(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * (x - 0.5) ** 2

    averaged = Averaged(Parabola(), Draws([{"scale": torch.ones(())}]), Gaussian(scale=1.0))
    x, y = torch.full((4, 1), 0.5), torch.zeros(4, 1)
    for attack in (FGSM(), FGSM("l2"), PGD(restarts=0)):
        assert torch.equal(attack(averaged, x, y, 0.25), x)
    torch.testing.assert_close((PGD(steps=40)(averaged, x, y, 0.25) - x).abs(), torch.full((4, 1), 0.25))


def test_pgd_without_restarts_is_its_recursion():
    """Written again in plain torch on one deterministic network: the worst point along the same path."""
    torch.manual_seed(0)
    net = mlp(3, 8)
    x, y, epsilon = torch.rand(30, 8), torch.randint(3, (30,)), 0.05
    averaged = Averaged(net, Draws([dict(net.named_parameters())]), Categorical())
    attacked = PGD(steps=6, step=0.4, restarts=0)(averaged, x, y, epsilon)

    def loss(points):
        return nn.functional.cross_entropy(net(points), y, reduction="none")

    def slope(points):
        points = points.clone().requires_grad_()
        return torch.autograd.grad(loss(points).sum(), points)[0]

    point = x
    seen = [x, (x + epsilon * slope(x).sign()).clamp(0, 1)]
    for _ in range(6):
        point = point + 0.4 * epsilon * slope(point).sign()
        point = torch.clamp(torch.clamp(point, x - epsilon, x + epsilon), 0, 1)
        seen.append(point)
    with torch.no_grad():
        losses = torch.stack([loss(points) for points in seen])
        wrong = torch.stack([net(points).argmax(1) != y for points in seen])
        order = losses + 1e3 * wrong
        expected = torch.stack(seen)[order.argmax(0), torch.arange(30)]
        values = loss(attacked)
    torch.testing.assert_close(values, loss(expected).detach(), rtol=1e-5, atol=1e-6)
    assert ((attacked - expected).abs().amax(1) < 1e-6).float().mean() > 0.9  # ties aside


def state_of(net: nn.Module):
    return (
        {k: v.clone() for k, v in net.state_dict().items()},
        {k: (p.requires_grad, None if p.grad is None else p.grad.clone()) for k, p in net.named_parameters()},
        [m.training for m in net.modules()],
        [id(p) for p in net.parameters()],
    )


def assert_same(before, after):
    for k, v in before[0].items():
        assert torch.equal(v, after[0][k]), k
    for k, (needs, grad) in before[1].items():
        assert after[1][k][0] == needs
        assert (grad is None) == (after[1][k][1] is None)
        assert grad is None or torch.equal(grad, after[1][k][1])
    assert before[2:] == after[2:]


def test_the_network_is_never_touched():
    torch.manual_seed(0)
    net = cr.models.ResNet20(3, width=4)
    net(torch.randn(8, 3, 8, 8)).sum().backward()  # some gradients, some statistics
    net.body[1].eval()
    net.head.weight.requires_grad_(False)
    x, y = torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    x.requires_grad_()
    averaged = Averaged(net, draws_around(net, 2, 0.05), Categorical(), statistics=[torch.rand(8, 3, 8, 8)])
    before, clean, rng = state_of(net), x.detach().clone(), torch.get_rng_state()
    with torch.no_grad():  # an attack brings its own gradients
        attacked = PGD(steps=2)(averaged, x, y, 0.05)
    with torch.inference_mode():
        PGD(steps=2)(averaged, clean.clone(), y, 0.05)
    assert not attacked.requires_grad
    assert not torch.equal(attacked, clean)
    assert_same(before, state_of(net))
    assert torch.equal(x.detach(), clean)
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), rng)
    with pytest.raises(NonFiniteError, match="not finite"):
        FGSM()(replace(averaged, posterior=Draws([{"head.bias": torch.full((3,), torch.nan)}])), x, y, 0.1)
    assert_same(before, state_of(net))


@pytest.mark.filterwarnings("ignore:BatchNorm follows random weights")
def test_statistics_are_those_of_predict():
    torch.manual_seed(0)
    net = cr.models.ResNet20(3, width=4)
    x, y = torch.rand(10, 3, 8, 8), torch.randint(3, (10,))
    batches = [(torch.rand(16, 3, 8, 8), torch.zeros(16)), (torch.rand(16, 3, 8, 8), torch.zeros(16))]
    averaged = Averaged(net, draws_around(net, 3, 0.1), Categorical(), statistics=batches, batch_size=4)
    prediction = averaged.gradient(x, y)[0]
    torch.testing.assert_close(prediction.log_probs, averaged.predict(x).log_probs)
    with pytest.warns(UserWarning, match="BatchNorm follows random weights"):
        own = replace(averaged, statistics=None)  # the network's own, though it is in training mode
    plain, before = own.gradient(x, y)[0], state_of(net)
    torch.testing.assert_close(plain.log_probs, own.predict(x).log_probs)
    assert_same(before, state_of(net))
    assert int(net.body[1].num_batches_tracked) == 0
    assert (plain.log_probs - prediction.log_probs).abs().max() > 0.05


def with_batch_norm(objective):
    """Some steps of a network whose draws disagree about their statistics."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.randn(64, 4) + 3.0
    y = (x[:, 0] > x[:, 1]).long()
    bnn = objective(net)
    for i in range(0, 64, 16):
        bnn(x[i : i + 16], y[i : i + 16])
    return bnn, x, y


def vi(net):
    return cr.VI(net, Categorical(), num_data=64, family=cr.families.Gaussian(initial_scale=1.0))


@pytest.mark.parametrize(
    "objective",
    [
        vi,
        lambda net: cr.MAP(net, Categorical(), num_data=64),
        lambda net: cr.VL(net, Categorical(), num_data=64),
    ],
)
def test_of_an_objective_it_is_what_the_objective_predicts(objective):
    bnn, x, y = with_batch_norm(objective)
    for seed in (0, 3):
        averaged = Averaged.of(bnn, samples=8, seed=seed)
        said = bnn.predict(x, 8, seed=seed).log_probs
        torch.testing.assert_close(averaged.predict(x).log_probs, said)
        torch.testing.assert_close(averaged.gradient(x, y)[0].log_probs, said, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:BatchNorm follows random weights")
def test_running_statistics_of_random_weights_are_spoken_of():
    bnn, x, _ = with_batch_norm(vi)
    with pytest.warns(UserWarning, match=r"fit no single draw.*Averaged.of\(bnn\)"):
        running = Averaged(bnn.net, bnn.posterior, bnn.likelihood, samples=8)
    assert (running.predict(x).log_probs - Averaged.of(bnn, 8).predict(x).log_probs).abs().max() > 0.05
    Averaged(bnn.net, bnn.posterior, bnn.likelihood, how="mean")  # the network's own weights: warnings are errors
    Averaged(bnn.net, Draws([{k: p.detach() for k, p in bnn.net.named_parameters()}]), bnn.likelihood)
    Averaged(bnn.net, Draws([{"3.bias": torch.zeros(2)}, {"3.bias": torch.ones(2)}]), bnn.likelihood)
    fresh = vi(bnn.net)
    with pytest.warns(UserWarning, match="statistics="):
        Averaged.of(fresh)


def test_draws_are_let_go_one_by_one():
    """The memory of one draw, however many there are."""
    import weakref

    alive: list[weakref.ref] = []
    most = 0

    class Stream(Posterior):
        def mean(self):
            raise AssertionError

        stddev = mean

        def draws(self, n=None, seed=None) -> Iterator[dict[str, torch.Tensor]]:
            nonlocal most
            for _ in range(n):
                weight = torch.randn(3, 5)
                alive.append(weakref.ref(weight))
                most = max(most, sum(ref() is not None for ref in alive))
                yield {"weight": weight}

    averaged = Averaged(nn.Linear(5, 3, bias=False), Stream(), Categorical(), samples=50)
    averaged.gradient(torch.rand(4, 5), torch.tensor([0, 1, 2, 0]))
    assert len(alive) == 50
    assert most <= 2


def test_every_posterior_can_be_attacked():
    torch.manual_seed(0)
    x, y = torch.rand(64, 6), torch.randint(3, (64,))
    for make in (cr.MAP, cr.VI, cr.VL):
        net = cr.models.MLP(6, 3, (8,), nn.Softplus)
        bnn = make(net, Categorical(), cr.priors.Gaussian(), num_data=64)
        bnn(x, y).backward()
        averaged = Averaged(net, bnn.posterior, bnn.likelihood, samples=4, how=bnn.how)
        attacked = PGD(steps=3)(averaged, x, y, 0.05)
        after, before = (averaged.predict(z).log_prob(y) for z in (attacked, x))
        assert (after < before).all(), make
        torch.testing.assert_close(averaged.predict(x).log_probs, bnn.predict(x, samples=4, seed=0).log_probs)
        assert torch.equal(attacked, PGD(steps=3)(averaged, x, y, 0.05))  # the same draws


def test_the_seed_fixes_the_draws_of_an_attack():
    net = mlp(3)
    bnn = cr.VI(net, Categorical(), cr.priors.Gaussian(), num_data=10, family=cr.families.Gaussian(3.0))
    x, y = torch.rand(7, 5), CLASSES
    one, same, other = (Averaged(net, bnn.posterior, Categorical(), 4, seed=s).gradient(x, y)[1] for s in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other, rtol=0.01)


def test_the_mean_network_can_be_attacked():
    net = mlp(3).double()
    posterior = draws_around(net, 5, 0.5)
    x = torch.rand(7, 5, dtype=torch.float64, requires_grad=True)
    log_prob = Network(net)(posterior.mean(), x).log_softmax(1)[torch.arange(7), CLASSES]
    (expected,) = torch.autograd.grad(log_prob.sum(), x)
    gradient = Averaged(net, posterior, Categorical(), how="mean").gradient(x, CLASSES)[1]
    torch.testing.assert_close(gradient, expected)


def test_errors_teach():
    net = mlp(3)
    averaged = Averaged(net, draws_around(net, 2, 0.1), Categorical())
    x = torch.rand(7, 5)
    with pytest.raises(InputError, match=r"outside of.*Box\(mean=data.mean, std=data.std\)"):
        FGSM()(averaged, 4 * x - 2, CLASSES, 0.1)
    with pytest.raises(InputError, match="real inputs"):
        FGSM()(averaged, torch.ones(7, 5, dtype=torch.long), CLASSES, 0.1)
    with pytest.raises(InputError, match=r"real inputs, .* x is tuple"):
        FGSM()(averaged, (x, x), CLASSES, 0.1)
    with pytest.raises(InputError, match="label for each input"):
        FGSM()(averaged, x, CLASSES[:3], 0.1)
    with pytest.raises(InputError, match=r"'linf'.*or 'l2'"):
        FGSM("l1")(averaged, x, CLASSES, 0.1)
    with pytest.raises(InputError, match="radius"):
        FGSM()(averaged, x, CLASSES, -0.1)
    with pytest.raises(InputError, match="restarts=0"):
        PGD(restarts=-1)
    with pytest.raises(InputError, match="at least one step"):
        PGD(steps=0)
    with pytest.raises(InputError, match="below the highest"):
        Box(1.0, 0.0)
    with pytest.raises(InputError, match="std"):
        Box(std=0.0)
    with pytest.raises(InputError, match="how='mean'"):
        replace(averaged, how="linearised")
    with pytest.raises(InputError, match="seed=0"):
        replace(averaged, seed=None)
    with pytest.raises(InputError, match="at least one draw"):
        replace(averaged, samples=0)
    with pytest.raises(InputError, match="used up"):
        replace(averaged, statistics=iter([x]))
