"""Penalties on gradients against naive float64 references: explicit sums, and differences of their values."""

import copy
import math

import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import InputError
from credent.likelihoods import Categorical, Gaussian
from credent.objectives import FisherPenalty, InputGradient

N = 40


def network(activation=nn.Tanh, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 6), activation(), nn.Linear(6, 3)).double()


def data(n=8):
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, dtype=torch.float64, generator=g), torch.randint(3, (n,), generator=g)


def gradients(loss, net):
    return torch.autograd.grad(loss, list(net.parameters()))


def minibatch_norm(net, x, labels):
    """|(1/B) sum of single gradients|^2, one backward pass each."""
    total = [torch.zeros_like(p) for p in net.parameters()]
    for xi, yi in zip(x, labels, strict=True):
        g = gradients(net(xi[None]).log_softmax(-1)[0, yi], net)
        total = [t + gi / len(x) for t, gi in zip(total, g, strict=True)]
    return sum(t.square().sum() for t in total)


def input_norm(net, x, y):
    """(1/B) sum_i |d log p(y_i | x_i) / dx_i|^2, one backward pass each."""
    total = 0.0
    for xi, yi in zip(x, y, strict=True):
        leaf = xi[None].clone().requires_grad_()
        total += torch.autograd.grad(net(leaf).log_softmax(-1)[0, yi], leaf)[0].square().sum() / len(x)
    return total


def by_differences(value, net, step=1e-6):
    """The gradient of value(net), entry by entry."""
    net = copy.deepcopy(net)
    found = []
    for p in net.parameters():
        g = torch.zeros_like(p)
        for i in range(p.numel()):
            ends = []
            for sign in (1, -1):
                p.data.view(-1)[i] += sign * step
                ends.append(value(net))
                p.data.view(-1)[i] -= sign * step
            g.view(-1)[i] = (ends[0] - ends[1]) / (2 * step)
        found.append(g)
    return found


def drawn_labels(objective, x):
    """The labels that the next call will draw."""
    stream = torch.Generator()
    stream.set_state(objective.noise.generator(torch.device("cpu")).get_state())
    return objective.likelihood.draw(objective.net(x).detach(), stream)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_the_fisher_penalty_and_its_gradient(activation):
    net, (x, y) = network(activation), data()
    plain = cr.MAP(copy.deepcopy(net), Categorical(), num_data=N)
    penalised = FisherPenalty(net, Categorical(), num_data=N, weight=0.7)
    labels = drawn_labels(penalised, x)
    assert not torch.equal(labels, y)
    loss, base = penalised(x, y), plain(x, y)
    assert (loss - base).item() == pytest.approx(0.7 * minibatch_norm(net, x, labels).item(), rel=1e-10)
    extra = [a - b for a, b in zip(gradients(loss, net), gradients(base, plain.net), strict=True)]
    expected = by_differences(lambda net: 0.7 * minibatch_norm(net, x, labels), net)
    for a, b in zip(extra, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    assert max(g.abs().max() for g in expected) > 1e-3  # also behind ReLU there is something to compare


def test_its_expectation_is_the_trace_over_the_batch_size():
    net, (x, _) = network(), data()
    penalised = FisherPenalty(net, Categorical(), num_data=N, weight=1.0)
    outputs = net(x)
    found = torch.tensor([penalised.squared_norm(outputs).item() for _ in range(1500)])
    probabilities = outputs.softmax(-1).detach()
    exact = 0.0
    for i in range(8):
        for k in range(3):
            g = gradients(net(x[i : i + 1]).log_softmax(-1)[0, k], net)
            exact += probabilities[i, k].item() * sum(t.square().sum().item() for t in g) / 8
    error = found.std().item() / math.sqrt(1500)
    assert abs(found.mean().item() - exact / 8) < 3 * error
    assert error < 0.05 * exact / 8


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_the_input_gradient_and_its_gradient(activation):
    net, (x, y) = network(activation), data()
    plain = cr.MAP(copy.deepcopy(net), Categorical(), num_data=N)
    penalised = InputGradient(net, Categorical(), num_data=N, weight=0.7)
    loss, base = penalised(x, y), plain(x, y)
    assert (loss - base).item() == pytest.approx(0.7 * input_norm(net, x, y).item(), rel=1e-10)
    extra = [a - b for a, b in zip(gradients(loss, net), gradients(base, plain.net), strict=True)]
    for a, b in zip(extra, by_differences(lambda net: 0.7 * input_norm(net, x, y), net), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    assert not x.requires_grad


def test_input_gradient_of_several_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(5, 3).double(), nn.Linear(3, 1, bias=False).double()

        def forward(self, number, x, unused):
            return self.head(self.embedding(number) + x)

    net = Two()
    penalised = InputGradient(net, Gaussian(scale=1.0), num_data=N, weight=2.0, beta=0.0)
    number, x, unused = torch.tensor([0, 3]), torch.randn(2, 3).double(), torch.randn(2, 1).double()
    y = torch.zeros(2, 1).double()
    loss = penalised({"number": number, "x": x, "unused": unused}, y)
    f = net(number, x, unused)
    expected = (f**2 / 2).mean() + math.log(2 * math.pi) / 2 + 2 * (f**2 * net.head.weight.square().sum()).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    with pytest.raises(InputError, match="floating point"):
        InputGradient(nn.Sequential(nn.Embedding(5, 3), nn.Flatten()), Categorical(), num_data=N, weight=1.0)(
            torch.tensor([[0], [1]]), torch.tensor([0, 1])
        )


def test_weight_zero_is_map():
    net, (x, y) = network(), data()
    expected = cr.MAP(net, Categorical(), num_data=N)(x, y).item()
    for kind in (FisherPenalty, InputGradient):
        assert kind(net, Categorical(), num_data=N, weight=0.0)(x, y).item() == pytest.approx(expected, rel=1e-14)


def test_every_so_many_batches():
    net, (x, y) = network(), data()
    plain = cr.MAP(net, Categorical(), num_data=N)(x, y).item()
    penalised = FisherPenalty(net, Categorical(), num_data=N, weight=1.0, every=3)
    with_it = [penalised(x, y).item() > plain + 1e-6 for _ in range(7)]
    assert with_it == [True, False, False, True, False, False, True]
    penalised.eval()
    assert all(penalised(x, y).item() > plain + 1e-6 for _ in range(3))


@pytest.mark.parametrize("kind", [FisherPenalty, InputGradient])
def test_evaluation_without_gradients(kind):
    penalised, (x, y) = kind(network(), Categorical(), num_data=N, weight=1.0), data()
    state = copy.deepcopy(penalised.state_dict())
    with torch.no_grad():
        without = penalised(x, y).item()
    penalised.load_state_dict(state)
    assert penalised(x, y).item() == pytest.approx(without, rel=1e-14)


def test_labels_are_part_of_the_state():
    (x, y), one = data(), FisherPenalty(network(), Categorical(), num_data=N, weight=1.0)
    one(x, y)
    other = FisherPenalty(network(), Categorical(), num_data=N, weight=1.0)
    other.load_state_dict(one.state_dict())
    assert [one(x, y).item() for _ in range(4)] == [other(x, y).item() for _ in range(4)]


@pytest.mark.parametrize(
    ("kind", "measure", "one"),
    [(FisherPenalty, "trace", N), (InputGradient, "input", 1)],  # |gbar|^2 is Tr F / B, and B = N here
)
def test_training_holds_down_what_is_penalised(kind, measure, one):
    found = []
    for weight in (0.0, float(one)):
        net, (x, y) = network(), data(N)
        objective = kind(net, Categorical(), num_data=N, weight=weight)
        cr.fit(objective, torch.optim.Adam(objective.param_groups(lr=1e-2)), [(x, y)], steps=150, progress=False)
        found.append(
            cr.fisher.trace(net, Categorical(), x, labels=20).value
            if measure == "trace"
            else float(input_norm(net, x, y))
        )
    assert found[1] < 0.8 * found[0]


def test_bad_input():
    with pytest.raises(InputError, match="not negative"):
        InputGradient(network(), Categorical(), num_data=N, weight=-1.0)
    with pytest.raises(InputError, match="not"):
        FisherPenalty(network(), Categorical(), num_data=N, weight=-1.0)
    with pytest.raises(InputError, match="every=0"):
        FisherPenalty(network(), Categorical(), num_data=N, weight=1.0, every=0)


def test_samplers_refuse_what_is_no_density():
    net, (x, y) = network(), data()
    objective = FisherPenalty(net, Categorical(), num_data=N, weight=1.0)
    sampler = cr.samplers.SGLD(net.parameters(), lr=1e-5, num_data=N)
    with pytest.raises(InputError, match="MAP"):
        cr.fit(objective, sampler, [(x, y)], steps=1, progress=False)


@pytest.mark.parametrize("objective", [FisherPenalty, InputGradient])
@pytest.mark.parametrize(
    ("prior", "match"),
    [
        (cr.priors.Horseshoe(learnt=True), r"take Horseshoe\(\), whose scale is fixed"),
        (cr.priors.NodeHorseshoe(), "a density of the weights alone"),
        (cr.priors.SelfStabilizing(), "DiracPosterior is none"),
    ],
)
def test_priors_that_want_a_spread_are_refused_as_map_does(objective, prior, match):
    with pytest.raises(InputError, match=match):
        objective(network(), Categorical(), prior, num_data=N, weight=1.0)


def test_accumulated_batches_pay_the_penalty_of_each():
    """Four batches of two against one of eight: |gbar|^2 has expectation Tr F / B, so four times as much."""
    x, y = data()
    net = network()
    penalised = FisherPenalty(net, Categorical(), num_data=N, weight=1.0)
    penalised.noise.seed(0)
    with torch.no_grad():
        plain = cr.likelihoods.Categorical().log_prob(net(x), y).mean()

    def extra(parts):
        losses = [penalised(a, b) for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True)]
        prior = penalised.last.penalty / N
        return (sum(losses) / parts - prior + plain).item()

    found = {parts: torch.tensor([extra(parts) for _ in range(400)]) for parts in (1, 4)}
    mean = {k: each.mean().item() for k, each in found.items()}
    error = {k: each.std().item() / 20 for k, each in found.items()}
    assert abs(mean[4] - 4 * mean[1]) < 4 * math.hypot(error[4], 4 * error[1])
    assert 4 * error[1] < 0.3 * mean[4]
