"""The trace against exact sums over labels, closed forms, and its own other forms."""

import copy
import math

import pytest
import torch
from torch import nn

from credent import fisher
from credent.errors import InputError
from credent.families import Draws
from credent.likelihoods import Bernoulli, Categorical, Gaussian


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def inputs(n=16):
    return torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_label(net, x):
    """p(k | x_i) and |d log p(k | x_i) / dw|^2, each by a backward pass of its own: (n, classes)."""
    net.eval()
    probabilities = net(x).softmax(-1).detach()
    squares = torch.zeros_like(probabilities)
    for i in range(len(x)):
        for k in range(probabilities.shape[1]):
            g = torch.autograd.grad(net(x[i : i + 1]).log_softmax(-1)[0, k], list(net.parameters()))
            squares[i, k] = sum(t.square().sum() for t in g)
    return probabilities, squares


def exact(net, x):
    """Tr F, and the variance that drawing one label for each input adds to its estimate."""
    p, squares = by_label(net, x)
    each = (p * squares).sum(1)
    variance = (p * squares.square()).sum(1) - each.square()
    return each.mean().item(), variance.sum().item() / len(x) ** 2


def test_the_trace_is_the_table_of_all_labels_at_those_drawn():
    """No Monte-Carlo error at all: the oracle's squares, looked up at the very labels that the seed draws."""
    net, x = network(), inputs()
    _, squares = by_label(net, x)
    stream = torch.Generator().manual_seed(0)
    drawn = [Categorical().draw(net(x).detach(), stream) for _ in range(50)]
    expected = torch.stack([squares.gather(1, y[:, None])[:, 0] for y in drawn]).mean(0)
    found = fisher.trace(net, Categorical(), x, labels=50, seed=0)
    torch.testing.assert_close(found.each[0], expected, rtol=1e-10, atol=0)


def test_the_trace_is_the_exact_sum_over_labels():
    """Seed 1: with seed 0 the first 1,500 sets of labels lie 4.0 standard errors low, the first 60,000 1.5."""
    net, x, labels = network(), inputs(), 1500
    expected, variance = exact(net, x)
    error = math.sqrt(variance / labels)
    found = fisher.trace(net, Categorical(), x, labels=labels, seed=1)
    assert abs(found.value - expected) < 3 * error
    assert error < 0.005 * expected
    assert found.each.shape == (1, 16)
    assert float(found) == found.value == pytest.approx(sum(found.parameters.values()), rel=1e-12)


def test_one_label_each_scatters_as_it_should():
    """Means and variances over 400 seeds: an estimator that is right on average only by many labels would show."""
    net, x = network(), inputs()
    expected, variance = exact(net, x)
    found = torch.tensor([fisher.trace(net, Categorical(), x, seed=s).value for s in range(400)], dtype=torch.float64)
    assert abs(found.mean() - expected) < 3 * math.sqrt(variance / 400)
    assert abs(found.var() / variance - 1) < 3 * math.sqrt(2 / 400)


def test_the_minibatch_form_has_the_same_mean_and_a_wider_spread():
    net, x = network(), inputs()
    expected, variance = exact(net, x)
    found = fisher.minibatch_trace(net, Categorical(), x, labels=1200, batch_size=16)
    assert found.shape == (1200, 1)
    error = found.std() / 1200**0.5
    assert abs(found.mean() - expected) < 3 * error
    assert error < 0.03 * expected  # a factor B or a lost 1/B would show
    assert found.std() > 5 * math.sqrt(variance)


def test_minibatches_are_taken_in_order():
    net, x = network(), inputs(10)
    found = fisher.minibatch_trace(net, Categorical(), x, labels=500, batch_size=4)
    assert found.shape == (500, 3)
    for column, part in zip(found.T, x.split(4), strict=True):
        assert abs(column.mean() - exact(net, part)[0]) < 3 * column.std() / 500**0.5


def test_gaussian_noise_has_a_closed_form():
    """f = W x + b with noise of scale s: Tr F = outputs (|x|^2 + 1) / s^2."""
    torch.manual_seed(0)
    net, x = nn.Linear(5, 2).double(), inputs()
    each = 2 * (x.square().sum(1) + 1) / 0.3**2
    found = fisher.trace(net, Gaussian(scale=0.3), x, labels=1000)
    error = each * math.sqrt(2 / 2 / 1000)  # chi squared of two degrees: variance 2 x 2, mean 2
    assert (abs(found.each[0] - each) < 4 * error).all()
    assert abs(found.value - each.mean()) < 3 * error.square().mean().sqrt() / 4


def test_bernoulli_has_a_closed_form():
    torch.manual_seed(0)
    net, x = nn.Linear(5, 1).double(), inputs()
    p = net(x).sigmoid().detach()
    expected = (p * (1 - p) * (x.square().sum(1, keepdim=True) + 1)).mean()
    found = fisher.trace(net, Bernoulli(), x, labels=2000)
    assert found.value == pytest.approx(expected.item(), rel=0.03)


def test_a_learnt_noise_level_is_no_weight_of_the_network():
    likelihood = Gaussian("learnt", outputs=3, initial=0.5).double()
    found = fisher.trace(network(), likelihood, inputs())
    assert list(found.parameters) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert likelihood.log_scale.grad is None


def test_of_a_posterior_over_its_draws_and_at_its_mean():
    net, x, labels = network(), inputs(), 400
    others = [network(seed) for seed in (1, 2, 3)]
    posterior = Draws([{k: p.detach() for k, p in other.named_parameters()} for other in others])
    each = [exact(other, x) for other in others]
    found = fisher.trace(net, Categorical(), x, posterior, samples=None, labels=labels)
    assert found.each.shape == (3, 16)
    for row, (expected, variance) in zip(found.each, each, strict=True):
        assert abs(row.mean() - expected) < 3 * math.sqrt(variance / labels)
    assert found.value == pytest.approx(found.each.mean().item())
    assert found.value == pytest.approx(sum(found.parameters.values()))

    middle = copy.deepcopy(net)
    middle.load_state_dict(posterior.mean())
    at_mean = fisher.trace(net, Categorical(), x, posterior, how="mean")
    assert at_mean.value == pytest.approx(fisher.trace(middle, Categorical(), x).value, rel=1e-12)
    assert abs(at_mean.value - found.value) > 0.1 * found.value  # the two are not the same thing


def test_statistics_are_of_each_draw():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = inputs(40)
    draw = {k: 2 * p.detach() for k, p in net.named_parameters()}
    own = copy.deepcopy(net.state_dict())
    found = fisher.trace(net, Categorical(), x, Draws([draw]), samples=1, statistics=[x])
    other = copy.deepcopy(net)
    other.load_state_dict({**own, **draw})
    with torch.no_grad():
        h = other[0](x)
    other[1].running_mean, other[1].running_var = h.mean(0), h.var(0)
    assert found.value == pytest.approx(fisher.trace(other, Categorical(), x).value, rel=1e-10)
    assert all(torch.equal(own[k], v) for k, v in net.state_dict().items())


def normalising():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()
    draws = Draws([{k: s * p.detach() for k, p in net.named_parameters()} for s in (0.5, 2.0)])
    return net, draws, inputs(40)


def test_statistics_are_given_as_to_predict():
    """Inputs, a loader's pairs, any iterable that can be read again; a generator would serve the first draw alone."""
    net, draws, x = normalising()

    def value(statistics):
        return fisher.trace(net, Categorical(), x, draws, samples=None, statistics=statistics).value

    plain = value([x[:20], x[20:]])
    y = torch.zeros(20)
    assert value([(x[:20], y), (x[20:], y)]) == plain
    assert value(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.zeros(40)), 20)) == plain
    with pytest.raises(InputError, match="give a list"):
        value(part for part in (x[:20], x[20:]))


def test_running_statistics_of_random_weights_are_spoken_of():
    net, draws, x = normalising()
    with pytest.warns(UserWarning, match=r"fit no single draw.*statistics="):
        fisher.trace(net, Categorical(), x, draws)
    fisher.trace(net, Categorical(), x)  # the network's own weights: warnings are errors
    fisher.trace(
        net, Categorical(), x, Draws([{"3.bias": torch.zeros(3).double()}, {"3.bias": torch.ones(3).double()}])
    )


def test_one_input_has_no_standard_error():
    found = fisher.trace(network(), Categorical(), inputs(1), labels=3)
    assert math.isnan(found.standard_error)
    assert found == found
    assert found != fisher.trace(network(), Categorical(), inputs(1), labels=3)


def test_the_standard_error_is_that_of_the_inputs():
    net = network()
    found = fisher.trace(net, Categorical(), inputs(64))
    each = found.each[0]
    assert found.standard_error == pytest.approx(each.std().item() / 8)


def test_the_same_seed_is_the_same_number_and_no_other_stream_moves():
    net, x = network(), inputs()
    state, modes = torch.get_rng_state(), [m.training for m in net.modules()]
    one, same, other = (fisher.trace(net, Categorical(), x, seed=s).value for s in (3, 3, 4))
    assert one == same != other
    assert torch.equal(torch.get_rng_state(), state)
    assert modes == [m.training for m in net.modules()]


def test_inputs_in_a_dict_or_a_tuple():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(5, 3).double()

        def forward(self, left, right):
            return self.head(left - right)

    torch.manual_seed(0)
    net, x = Two(), inputs()
    y = inputs().flip(0)
    by_dict = fisher.trace(net, Categorical(), {"left": x, "right": y}, batch_size=5)
    by_tuple = fisher.trace(net, Categorical(), (x, y), batch_size=5)
    assert by_dict.value == by_tuple.value
    plain = fisher.trace(net.head, Categorical(), x - y, batch_size=5)
    assert by_dict.value == pytest.approx(plain.value, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": 0}, "count from 1"),
        ({"samples": 0}, "count from 1"),
        ({"batch_size": 0}, "count from 1"),
        ({"how": "linearised"}, "'sampled'"),
        ({"x": torch.zeros(0, 5)}, "average over inputs"),
    ],
)
def test_bad_input(options, words):
    options = {"x": inputs(), **options}
    with pytest.raises(InputError, match=words):
        fisher.trace(network(), Categorical(), options.pop("x"), **options)


def test_a_frozen_network_has_no_trace():
    with pytest.raises(InputError, match="requires_grad_"):
        fisher.trace(network().requires_grad_(False), Categorical(), inputs())
