"""Seeds side by side are each what they would be alone: gradients, statistics, moves and decisions."""

import copy

import pytest
import torch
from torch import nn

import credent as cr
from credent.bandits import (
    BNP,
    PSGLD,
    SGD,
    SGLD,
    VI,
    VL,
    Dropout,
    EpsGreedy,
    Linear,
    Schedule,
    Uniform,
    ValueNetwork,
    play,
)
from credent.bandits.network import Abreast
from credent.noise import Noise
from credent.samplers.inputs import LayerInputs

SEEDS = (3, 5, 8)
SCHEDULE = Schedule(random=40, every=10, steps=4, batch=16, capacity=50)
SMALL = {"hidden": (6, 5), "schedule": SCHEDULE}


def alone(net, s):
    """Seed s of a stack as a plain network with its weights."""
    layers = [m for m in net.modules() if isinstance(m, Abreast)]
    units = [layer.weight.shape[0] // layer.groups for layer in layers]
    hidden = units[:-1]
    mlp = cr.models.MLP(layers[0].weight.shape[1], units[-1], hidden)
    linear = [m for m in mlp.modules() if isinstance(m, nn.Linear)]
    with torch.no_grad():
        for mine, layer, u in zip(linear, layers, units, strict=True):
            mine.weight.copy_(layer.weight[s * u : (s + 1) * u, :, 0])
            mine.bias.copy_(layer.bias[s * u : (s + 1) * u])
    return mlp, linear, layers, units


class TakenArm(nn.Module):
    def __init__(self, mlp):
        super().__init__()
        self.mlp = mlp

    def forward(self, x, arms):
        return self.mlp(x).gather(1, arms[:, None])


def batch(n=12, seeds=3, features=4, arms=3):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, seeds, features, generator=g)
    return x, torch.randint(arms, (n, seeds), generator=g), torch.randn(n, seeds, generator=g)


def test_values_and_gradients_are_each_networks_own():
    """Against nn.Linear networks with the same weights and an objective of their own; float64."""
    net = ValueNetwork(4, 3, (6, 5), SEEDS).double()
    x, arms, y = batch()
    x, y = x.double(), y.double()
    likelihood, prior = cr.likelihoods.Gaussian(scale=0.7), cr.priors.Gaussian("fan_in")
    loss = cr.MAP(net, likelihood, prior, num_data=40)((x, arms), y)
    loss.backward()
    total = 0.0
    for s in range(3):
        mlp, linear, layers, units = alone(net, s)
        mlp.double()
        with torch.no_grad():
            for mine, layer, u in zip(linear, layers, units, strict=True):
                mine.weight.copy_(layer.weight[s * u : (s + 1) * u, :, 0])
                mine.bias.copy_(layer.bias[s * u : (s + 1) * u])
        torch.testing.assert_close(net(x)[:, s], mlp(x[:, s]))
        objective = cr.MAP(TakenArm(mlp), likelihood, prior, num_data=40)
        own = objective((x[:, s], arms[:, s]), y[:, s, None])
        own.backward()
        total += own.item()
        for mine, layer, u in zip(linear, layers, units, strict=True):
            torch.testing.assert_close(layer.weight.grad[s * u : (s + 1) * u, :, 0], mine.weight.grad)
            torch.testing.assert_close(layer.bias.grad[s * u : (s + 1) * u], mine.bias.grad)
    assert loss.item() == pytest.approx(total)


def test_a_seed_begins_the_same_beside_others_and_alone():
    x = torch.randn(5, 1, 4)
    together = ValueNetwork(4, 3, (6,), SEEDS)
    for s, seed in enumerate(SEEDS):
        torch.testing.assert_close(together(x.expand(5, 3, 4))[:, s], ValueNetwork(4, 3, (6,), [seed])(x)[:, 0])
    before = torch.get_rng_state()
    ValueNetwork(4, 3, (6,), SEEDS)
    assert torch.equal(before, torch.get_rng_state())


def test_it_is_the_grouped_convolution_that_it_says_it_is():
    layer = Abreast([nn.Linear(4, 2), nn.Linear(4, 2)])
    x = torch.randn(7, 2, 4)
    expected = nn.functional.conv1d(x.flatten(1)[..., None], layer.weight, layer.bias, groups=2)
    torch.testing.assert_close(layer(x.transpose(0, 1)).transpose(0, 1).flatten(1)[..., None], expected)


def test_statistics_of_inputs_are_by_seed_and_copies_are_silent():
    net = ValueNetwork(4, 3, (), SEEDS)
    layer = net.body[0]
    inputs = LayerInputs([layer])
    x = 3 * torch.randn(20, 3, 4) + torch.tensor([0.0, 10.0, 20.0])[None, :, None]
    copy.deepcopy(net)(x)
    assert not inputs.take()
    net(x)
    seen = inputs.take()[layer]
    torch.testing.assert_close(seen.mean, x.mean(0).flatten())
    torch.testing.assert_close(seen.variance, x.var(0, correction=0).flatten())
    assert (seen.rows, seen.positions) == (20, 1)


class PerSeed(Noise):
    """A stream for each seed, dealt out tensor by tensor, so that a stack of seeds gets what each would get alone."""

    def __init__(self, seeds, sizes=None):
        super().__init__(0)
        self.streams = [torch.Generator().manual_seed(s) for s in seeds]
        self.sizes = sizes

    def _deal(self, size):
        parts = [torch.empty(size // len(self.streams)).normal_(generator=g) for g in self.streams]
        return torch.cat(parts)

    def normal(self, like):
        return self._deal(like.numel()).view_as(like)

    def normal_(self, out):
        return out.copy_(torch.cat([self._deal(size) for size in self.sizes]))


class Dealt:
    """The agent with noise dealt out by seed."""

    def __init__(self, agent):
        self.agent = agent

    def start(self, features, arms, seeds):
        player = self.agent.start(features, arms, seeds)
        learner = player.learner
        if isinstance(learner.optimizer, cr.samplers.Langevin):
            learner.optimizer.noise = PerSeed(seeds, [p.numel() for p in player.net.parameters()])
        else:
            q = learner.objective.posterior
            q.noise = PerSeed(seeds, [shape.numel() for shape in q.layout.shapes.values()])
        return player


AGENTS = [
    SGD(lr=1e-2, **SMALL),
    EpsGreedy(lr=1e-2, share=0.3, **SMALL),
    SGLD(lr=1e-2, temperature=0.3, **SMALL),
    PSGLD(lr=1e-3, temperature=0.3, **SMALL),
    BNP(lr=1e-2, temperature=0.3, floor=(0.1, 0.01), **SMALL),
    VI(lr=1e-2, temperature=0.3, **SMALL),
]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: type(agent).__name__)
def test_decisions_beside_others_are_those_made_alone(agent, monkeypatch):
    """The same chance for each seed gives the same decisions; without learning (lr tiny) they would be others."""
    monkeypatch.setattr("credent.samplers.langevin.Step.compiles", lambda *_: False)  # where loops draw their noise
    environment = Linear(features=4, arms=3)
    together = play(environment, Dealt(agent), 160, SEEDS)
    each = torch.cat([play(environment, Dealt(agent), 160, (seed,)) for seed in SEEDS])
    assert torch.equal(together, each)
    assert not torch.equal(together[:, 40:], play(environment, Uniform(), 160, SEEDS)[:, 40:])


@pytest.mark.parametrize("agent", [*AGENTS, Dropout(lr=1e-2, **SMALL), VL(lr=1e-2, temperature=0.3, **SMALL)],
                         ids=lambda agent: type(agent).__name__)  # fmt: skip
def test_the_same_seeds_give_the_same_run(agent):
    environment = Linear(features=4, arms=3)
    torch.manual_seed(1)
    one = play(environment, agent, 80, (0, 1))
    torch.manual_seed(2)
    assert torch.equal(one, play(environment, agent, 80, (0, 1)))
    assert not torch.equal(one[0], one[1])


def test_every_unit_and_seed_has_a_dropout_mask_of_its_own():
    """One hidden layer of ones: a value is 2 x Binomial(h, 1/2), of mean h and variance h; five of them averaged."""
    agent = Dropout(hidden=(40,), rate=0.5, samples=5)
    player = agent.start(1, 1, (0, 1))
    with torch.no_grad():
        first, _, _, last = player.net.body
        first.weight.fill_(1), first.bias.zero_(), last.weight.fill_(1), last.bias.zero_()
    torch.manual_seed(0)
    values = agent.values(player.learner.objective, torch.ones(4000, 2, 1))[..., 0]
    assert abs(values.mean() - 40) < 3 * (40 / 5 / 8000) ** 0.5
    assert abs(values.var() / (40 / 5) - 1) < 3 * (2 / 8000) ** 0.5
    assert abs(torch.corrcoef(values.T)[0, 1]) < 3 / 4000**0.5
