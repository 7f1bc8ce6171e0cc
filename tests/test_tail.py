"""Draws of the last layers: the same numbers as whole passes, to the bit, from two passes through what lies before."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional

import credent.tail
from credent import likelihoods, predict
from credent.families import Draws, Gaussian
from credent.layout import Layout
from credent.models import LeNet5
from credent.network import Network
from credent.tail import Tail

DRAWS, INPUTS = 6, 40


class Body(nn.Module):
    """Counts the inputs that went through it."""

    def __init__(self, size=3, width=8):
        super().__init__()
        self.linear, self.seen = nn.Linear(size, width), 0

    def forward(self, x):
        self.seen += len(x)
        return functional.relu(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body, self.head = Body(), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x))


def inputs(n=INPUTS):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(0))


def last(net, random="head.*"):
    return Gaussian(initial_scale=0.5).bind(Layout(net, random=random))


def logits_of(net, q, x, **options):
    """Of each draw, (S, n, D): a Gaussian likelihood keeps them."""
    return predict(net, q, likelihoods.Gaussian(scale=1.0), x, samples=DRAWS, seed=2, **options).means


def naive(net, q, x, batch_size=1024):
    network = Network(net.eval())
    with torch.no_grad():
        return torch.stack(
            [torch.cat([network(w, part) for part in x.split(batch_size)]) for w in q.draws(DRAWS, seed=2)]
        )


def passes_of(net, q, x, **options):
    """Passes of the inputs through the body; the numbers are right."""
    net.body.seen = 0
    found = logits_of(net, q, x, **options)
    seen = net.body.seen
    assert torch.equal(found, naive(net, q, x, options.get("batch_size", 1024)))
    return seen // len(x)


# -- where there is a tail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1024, 16])
def test_what_lies_before_a_random_head_is_run_twice(batch_size):
    net = Net()
    assert passes_of(net, last(net), inputs(), batch_size=batch_size) == 2


def test_a_network_that_is_random_throughout_is_run_for_each_draw():
    net = Net()
    assert passes_of(net, last(net, None), inputs()) == DRAWS


def test_a_tail_of_several_layers_is_one_module():
    net = Net()
    net.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    assert passes_of(net, last(net, ["head.0.*", "head.2.*"]), inputs()) == 2


def test_a_part_that_is_not_called_itself_belongs_to_the_layer_around_it():
    net = Net()
    nn.utils.parametrizations.weight_norm(net.head)
    assert passes_of(net, last(net), inputs()) == 2


def test_a_head_that_takes_keywords_and_a_tuple():
    class Head(nn.Linear):
        def forward(self, pair, *, gain):
            return gain * super().forward(pair[0] + pair[1])

    class Called(Net):
        def forward(self, x):
            hidden = self.body(x)
            return self.head((hidden, hidden.square()), gain=hidden.mean(-1, keepdim=True))

    net = Called()
    net.head = Head(8, 4)
    assert passes_of(net, last(net), inputs()) == 2


def test_a_hook_that_changes_what_the_head_is_given():
    net = Net()
    net.head.register_forward_pre_hook(lambda head, given: (given[0] + 1.0,))
    assert passes_of(net, last(net), inputs()) == 2


def test_logits_in_a_dictionary():
    class Wrapped(Net):
        def forward(self, x):
            return {"hidden": self.body(x), "logits": super().forward(x)}

    net = Wrapped()
    assert passes_of(net, last(net), inputs()) == 4  # its own forward has two


def test_the_tangent_of_a_head_is_taken_on_its_own():
    net = Net()
    q, x = last(net), inputs()
    found = logits_of(net, q, x, how="linearised")
    assert net.body.seen == 2 * INPUTS
    assert torch.allclose(found, naive(net, q, x), atol=1e-6)  # the head is linear in its weights


def test_a_convolutional_network_with_stored_draws_of_its_head():
    net = LeNet5()
    x = torch.randn(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    layout = Layout(net, random="head*")
    draws = Draws([{k: torch.randn_like(p) for k, p in layout.params().items()} for _ in range(DRAWS)])
    calls = []
    hook = next(m for m in net.modules() if isinstance(m, nn.Conv2d)).register_forward_hook(lambda *_: calls.append(1))
    found = predict(net, draws, likelihoods.Categorical(), x, samples=None)
    assert len(calls) == 2
    hook.remove()
    whole = torch.stack([Network(net)(w, x).softmax(-1) for w in draws.draws(None)]).mean(0)
    assert torch.allclose(found.probs, whole, rtol=1e-5)


def test_only_so_many_bytes_are_kept(monkeypatch):
    monkeypatch.setattr(credent.tail, "_MOST", 2 * 16 * 8 * 4)  # two chunks of 16 inputs, of 8 numbers each
    net = Net()
    q, x = last(net), inputs()
    net.body.seen = 0
    found = logits_of(net, q, x, batch_size=16)
    assert net.body.seen == 2 * INPUTS + (DRAWS - 2) * (INPUTS - 32)
    assert torch.equal(found, naive(net, q, x, 16))


def test_hooks_are_gone_afterwards_also_when_the_network_fails():
    class Failing(Net):
        def forward(self, x):
            super().forward(x)
            raise RuntimeError("no")

    net = Failing()
    with pytest.raises(RuntimeError, match="no"):
        logits_of(net, last(net), inputs())
    assert not net.head._forward_hooks
    assert not net.head._forward_pre_hooks


# -- where there is none, and every draw runs the whole network --------------------------------------------------------


class Noisy(Net):
    def forward(self, x):
        return self.head(functional.dropout(self.body(x), 0.5, training=True))


def test_noise_before_the_head_is_new_for_each_draw():
    net = Noisy()
    one = {k: p.detach() for k, p in Layout(net, random="head.*").params().items()}
    found = logits_of(net, Draws([one] * DRAWS), inputs())
    assert net.body.seen == DRAWS * INPUTS
    assert all(not torch.equal(found[0], other) for other in found[1:])


class Clipped(Net):
    """Nothing is clipped of the first inputs."""

    def forward(self, x):
        return super().forward(x).clamp_(-3.0, 3.0)


class Twice(Net):
    def forward(self, x):
        return self.head(self.body(x) + self.head(self.body(x)).sum(-1, keepdim=True))


class Borrowed(Net):
    """The head's weight is used before the head, without being registered there."""

    def forward(self, x):
        hidden = self.body(x)
        return self.head(hidden + functional.linear(hidden, self.head.weight).sum(-1, keepdim=True))


class Unclean(Net):
    """The head writes to what it is given."""

    def __init__(self):
        super().__init__()
        self.head = Accumulating(8, 4)


class Accumulating(nn.Linear):
    def forward(self, x):
        return super().forward(x.add_(1.0))


class Cast(Net):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x)


class Tied(Net):
    """The head's first layer stands in the body, too."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
        self.before = nn.Sequential(self.head[0], nn.Tanh())

    def forward(self, x):
        return self.head(self.before(self.body(x)))


class Squeezed(Net):
    def forward(self, x):
        return super().forward(x)[:, :1]


class Context(Net):
    """The body leaves the head something to read that is not among its arguments."""

    def __init__(self):
        super().__init__()
        self.head = Reading(8, 4)

    def forward(self, x):
        self.head.shift = x.mean()
        return super().forward(x)


class Reading(nn.Linear):
    def forward(self, x):
        return super().forward(x) + self.shift


class TiedWeight(Net):
    """An autoencoder whose first inputs are blank, so that they do not show what the encoder's weight is."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x) * 0 + functional.relu(functional.linear(x, self.head.weight.t())))


class Again(Net):
    """The head is called once more where it is unsure."""

    def forward(self, x):
        out = super().forward(x)
        return self.head(self.body(x) + 1.0) if bool(out.abs().max() > 30) else out


class LeakyHead(Net):
    """Writes to what it is given, and to no effect where all of it is positive."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.LeakyReLU(inplace=True), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x):
        return self.head(self.body(x) - 0.01 * (x[:, :1] > 3))


class Buffered(Net):
    """What the head is given lies in memory that the next chunk overwrites."""

    def forward(self, x):
        hidden = self.body(x)
        if not hasattr(self, "memory") or len(self.memory) < len(x):
            self.memory = torch.empty_like(hidden)
        return self.head(self.memory[: len(x)].copy_(hidden))


@dataclass
class Boxed:
    hidden: torch.Tensor


class Unpacking(nn.Linear):
    def forward(self, box):
        return super().forward(box.hidden)


class InABox(Net):
    """What the head is given is not seen to be a tensor."""

    def __init__(self):
        super().__init__()
        self.head = Unpacking(8, 4)

    def forward(self, x):
        hidden = self.body(x)
        return self.head(Boxed(hidden + functional.linear(hidden, self.head.weight).sum(-1, keepdim=True)))


class Sparse(Net):
    def __init__(self):
        super().__init__()
        self.head = Densifying(8, 4)

    def forward(self, x):
        return self.head(self.body(x).to_sparse())


class Densifying(nn.Linear):
    def forward(self, x):
        return super().forward(x.to_dense())


@pytest.mark.parametrize("batch_size", [1024, 16])
@pytest.mark.parametrize(
    "kind",
    [Clipped, Twice, Borrowed, Unclean, Cast, Tied, Squeezed, TiedWeight, LeakyHead, InABox, Sparse],
)
def test_a_network_without_a_tail_is_run_whole(kind, batch_size):
    net = kind()
    x = inputs()
    x[:16] *= 0.0 if kind is TiedWeight else 0.01
    x[16:] *= 20.0
    q = last(net, lambda name, _: name.startswith(("head", "before")))
    own = 2 if kind is Twice else 1
    assert passes_of(net, q, x, batch_size=batch_size) == DRAWS * own


@pytest.mark.parametrize("kind", [Context, Buffered, Again])
def test_a_network_that_remembers_or_decides_has_the_same_numbers(kind):
    net = kind()
    x = inputs()
    x[16:] *= 20.0
    for batch_size in (1024, 16):
        assert torch.equal(logits_of(net, last(net), x, batch_size=batch_size), naive(net, last(net), x, batch_size))


def test_outputs_that_are_written_to_are_so_at_every_draw():
    net, x = Clipped(), inputs()
    one = {k: 1e-3 * p.detach() for k, p in Layout(net, random="head.*").params().items()}
    draws = [{k: factor * w for k, w in one.items()} for factor in (1.0, 2.0, 1e6) * 2]  # only the third is clipped
    found = logits_of(net, Draws(draws), x)
    assert found[2].abs().max() == 3.0
    assert torch.equal(found, torch.stack([Network(net)(w, x) for w in draws]))


def test_the_tangent_of_a_network_without_a_tail_is_that_of_the_whole():
    """At the mean the tail agrees in value, whatever the draw."""
    net, x = Borrowed(), inputs()
    q = last(net)
    found = logits_of(net, q, x, how="linearised")
    network, mean = Network(net.eval()), q.mean()
    for i, w in enumerate(q.draws(DRAWS, seed=2)):
        moved = {k: w[k] - mean[k] for k in w}
        value, tangent = torch.func.jvp(lambda params: network(params, x), (mean,), (moved,))
        assert torch.allclose(found[i], value + tangent, atol=1e-6)


def test_a_draw_that_comes_twice_proves_nothing():
    net, x = Borrowed(), inputs()
    drawn = list(last(net).draws(3, seed=1))
    same = [{k: w.clone() for k, w in drawn[0].items()} for _ in range(2)]
    found = logits_of(net, Draws([*same, *drawn[1:], *drawn[1:]]), x)
    expected = torch.stack([Network(net)(w, x) for w in [*same, *drawn[1:], *drawn[1:]]])
    assert torch.equal(found, expected)


def test_a_branch_that_is_rarely_taken_is_taken_as_often_by_every_draw():
    class Dropping(Net):
        def forward(self, x):
            hidden = self.body(x)
            return self.head(hidden * 0 if float(torch.rand(())) < 0.2 else hidden)

    net, x = Dropping(), inputs()
    one = {k: p.detach() for k, p in Layout(net, random="head.*").params().items()}
    torch.manual_seed(0)
    draws = Draws([{k: w + i for k, w in one.items()} for i in range(50)])
    predict(net, draws, likelihoods.Gaussian(scale=1.0), x, samples=None)
    assert net.body.seen == 50 * INPUTS


def test_inputs_that_cannot_be_parted_are_not():
    class Graph(Net):
        """Every input sees every other."""

        def forward(self, x, neighbours):
            return self.head(neighbours @ self.body(x))

    net, x = Graph(), inputs()
    q, neighbours = last(net), torch.rand(INPUTS, INPUTS, generator=torch.Generator().manual_seed(3))
    found = logits_of(net, q, (x, neighbours))
    expected = torch.stack([Network(net)(w, (x, neighbours)) for w in q.draws(DRAWS, seed=2)])
    assert torch.equal(found, expected)
    assert net.body.seen == 2 * INPUTS + DRAWS * INPUTS


def test_what_is_kept_is_not_all_that_it_was_a_part_of():
    class Pooled(Net):
        def forward(self, x):
            return self.head(self.body(x).repeat(1, 50).view(len(x), 50, 8)[:, 0])

    net = Pooled()
    tail, q = Tail(Network(net.eval())), last(net)
    params = next(q.draws(1, seed=0))
    tail.meet(params)
    with torch.no_grad():
        tail.on(0, inputs())(params)
    (kept,) = (t for t in tail._kept[0].arguments)
    assert kept.untyped_storage().nbytes() == INPUTS * 8 * 4


def test_a_compiled_network_is_left_alone():
    net = Net()
    net.head = torch.compile(net.head, backend="eager")
    x = inputs()
    q = last(net)
    assert torch.equal(logits_of(net, q, x), naive(net, q, x))
    assert not net.head._forward_hooks


def test_draws_of_other_parameters_than_the_first_are_whole_passes():
    net, x = Net(), inputs()
    head = {k: p.detach() for k, p in Layout(net, random="head.*").params().items()}
    body = {"body.linear.weight": torch.ones(8, 3)}
    found = logits_of(net, Draws([head, head, head | body] * 2), x)
    assert torch.equal(found[2], Network(net)(head | body, x))


def test_in_inference_mode_the_numbers_are_the_same():
    net, x = Net(), inputs()
    q = last(net)
    with torch.inference_mode():
        found = logits_of(net, q, x)
    assert torch.equal(found, logits_of(net, q, x))


# -- the modules that hold some parameters ---------------------------------------------------------------------------


def test_holders_are_the_modules_around_all_places_of_the_parameters():
    net = Tied()
    network = Network(net)
    assert network.holders(["head.2.weight"]) == [net.head[2], net.head]
    assert network.holders(["head.2.weight", "head.2.bias"]) == [net.head[2], net.head]
    assert network.holders(["head.0.weight"]) == []  # it stands before, too
    assert network.holders(["body.linear.bias", "head.2.weight"]) == []
