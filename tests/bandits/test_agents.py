"""What agents learn, by hand: one step of descent, a growing N, the law of a chain, and an exact posterior."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

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
    LinearThompson,
    Replay,
    Schedule,
    Trials,
    Uniform,
    Wheel,
    paper_agents,
    play,
)
from credent.bandits.agent import DivergedError, seed_for
from credent.errors import InputError, NonFiniteError

FULL = Schedule(random=0, every=10, steps=1, batch=1000, capacity=25)


def trials(n, seeds=1, features=3, arms=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, seeds, features, generator=g)
    return x, torch.randint(arms, (n, seeds), generator=g), torch.randn(n, seeds, generator=g)


def test_descent_is_on_squared_errors_and_an_l2_penalty_of_one_for_all_trials_so_far():
    """w <- w - (lr/2) (sum 2 (f - r) x + w): N is 10, then 20, then the buffer's 25."""
    lr = 1e-3
    player = SGD(hidden=(), lr=lr, schedule=FULL).start(3, 2, (0,))
    weight, bias = (p.detach().numpy().squeeze().astype(float).copy() for p in player.net.parameters())
    seen_x, seen_a, seen_r = np.empty((0, 3)), np.empty(0, int), np.empty(0)
    for turn in range(3):
        x, arms, rewards = trials(10, seed=turn)
        player.learn(x, arms, rewards)
        seen_x, seen_a, seen_r = (
            np.concatenate([old, new[:, 0].numpy()])[-25:]
            for old, new in ((seen_x, x), (seen_a, arms), (seen_r, rewards))
        )
        gradient_w, gradient_b = weight.copy(), bias.copy()
        for xi, a, r in zip(seen_x, seen_a, seen_r, strict=True):
            residual = 2 * (weight[a] @ xi + bias[a] - r)
            gradient_w[a] += residual * xi
            gradient_b[a] += residual
        weight, bias = weight - lr / 2 * gradient_w, bias - lr / 2 * gradient_b
        now = [p.detach().numpy().squeeze() for p in player.net.parameters()]
        np.testing.assert_allclose(now[0], weight, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(now[1], bias, rtol=2e-5, atol=1e-6)
    assert player.learner.objective.num_data == player.learner.optimizer.num_data == 25


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_chain_has_the_law_of_the_exact_posterior(temperature):
    """300 seeds of a linear network on the same trials, full batches: the exact law of SGLD at this step size.

    With gradients of all data the variance along an eigenvector of the precision is T / (l (1 - eps l / 4)).
    """
    x, arms, rewards = trials(20)
    count, eps = 300, 0.01
    schedule = Schedule(random=0, every=20, steps=400, batch=20)
    torch.manual_seed(0)  # of the sampler's noise
    player = SGLD(hidden=(), lr=eps, temperature=temperature, schedule=schedule).start(3, 2, range(count))
    player.learn(*(t.expand(-1, count, *t.shape[2:]) for t in (x, arms, rewards)))
    weight, bias = (p.detach().double() for p in player.net.parameters())
    theta = torch.cat([weight.view(count, 2, 3), bias.view(count, 2, 1)], 2)
    design = torch.cat([x[:, 0], torch.ones(20, 1)], 1).double()
    ratios = []
    for arm in range(2):
        mine = arms[:, 0] == arm
        precision = torch.eye(4).double() + 2 * design[mine].T @ design[mine]
        mean = torch.linalg.solve(precision, 2 * design[mine].T @ rewards[mine, 0].double())
        values, vectors = torch.linalg.eigh(precision)
        along = (theta[:, arm] - mean) @ vectors
        variance = temperature / (values * (1 - eps * values / 4))
        assert (along.mean(0).abs() < 4 * (variance / count).sqrt()).all()
        ratios.append(along.square().mean(0) / variance)
    ratio = torch.cat(ratios)
    assert (ratio - 1).abs().max() < 4 * math.sqrt(2 / count)
    assert abs(ratio.mean() - 1) < 3 * math.sqrt(2 / (8 * count))


@pytest.mark.parametrize("kind", [VI, VL])
def test_variational_agents_have_the_chains_target(kind):
    """noise^2 T and prior^2 T: the optimum of a mean-field Gaussian is T over the precision's diagonal."""
    count = 24  # of VL's scales one alone is good to 6 %: its curvature is of two rows at every other step
    x, arms, rewards = trials(20)
    schedule = Schedule(random=0, every=20, steps=700, batch=20)
    agent = kind(hidden=(), lr=3e-3, scale_lr=1e-2, temperature=0.3, schedule=schedule)
    torch.manual_seed(0)
    player = agent.start(3, 2, range(count))
    player.learn(*(t.expand(-1, count, *t.shape[2:]) for t in (x, arms, rewards)))
    scale = player.learner.objective.posterior.stddev()["body.0.weight"].view(count, 2, 3).double()
    design = x[:, 0].double()
    for arm in range(2):
        mine = arms[:, 0] == arm
        precision = 1 + 2 * design[mine].square().sum(0)
        found = scale[:, arm].log().mean(0).exp().square() * precision / 0.3
        assert (found - 1).abs().max() < 0.12  # Adam's last moves; a lost T would be 3.3, a lost 2 a half


def test_a_thompson_draw_is_made_for_each_decision():
    agent = VI(hidden=(4,))
    torch.manual_seed(0)
    player = agent.start(3, 2, (0,))
    same = torch.ones(6, 1, 3)
    values = agent.values(player.learner.objective, same)
    assert values.shape == (6, 1, 2)
    assert len(set(values[:, 0, 0].tolist())) == 6
    chain = SGLD(hidden=(4,))
    held = chain.values(chain.start(3, 2, (0,)).learner.objective, same)
    assert len(set(held[:, 0, 0].tolist())) == 1


def test_the_linear_posterior_is_the_textbooks():
    """By arm and seed in numpy, and the draws' covariance within its Monte-Carlo error."""
    x, arms, rewards = trials(30, seeds=2)
    player = LinearThompson(noise=0.5, prior=2.0, temperature=0.7).start(3, 2, (0, 1))
    player.learn(x[:10], arms[:10], rewards[:10])
    player.learn(x[10:], arms[10:], rewards[10:])
    draws = torch.stack([player.draw() for _ in range(4000)])
    for s in range(2):
        for a in range(2):
            mine = (arms[:, s] == a).numpy()
            design, target = x[:, s].double().numpy()[mine], rewards[:, s].double().numpy()[mine]
            covariance = np.linalg.inv(np.eye(3) / 4 + design.T @ design / 0.25)
            np.testing.assert_allclose(player.mean[s, a], covariance @ design.T @ target / 0.25, rtol=1e-10)
            centred = draws[:, s, a].numpy() - player.mean[s, a].numpy()
            white = np.linalg.solve(np.linalg.cholesky(0.7 * covariance), centred.T)
            np.testing.assert_allclose(white @ white.T / 4000, np.eye(3), atol=4 * math.sqrt(2 / 4000))


class TwoArms:
    """No context; arm 0 always pays 0.5, arm 1 always 1."""

    features, arms = 1, 2

    def trials(self, n, generator):
        pays = torch.tensor([0.5, 1.0]).expand(n, 2)
        return Trials(torch.ones(n, 1), pays, pays)


def test_thompson_sampling_beats_greedy_and_uniform_by_as_much_as_it_should():
    """Prior N(0, 1) for both arms, rewards without noise.

    Greedy stays with the first arm that pays, 0.5 a step. Uniform loses 0.25 a step. Thompson: with even chances arm 1
    is first, and then arm 0 is tried once, 0.5; or arm 0 is first, 0.5, and again (1 - p)/p times until a draw of
    N(0, 1) is above 0.5, p = 0.30854. So 0.25 + 0.25 + 0.25 (1 - p)/p = 1.0603 in all.
    """
    seeds, steps = range(600), 200
    exact = LinearThompson(noise=0.01)
    greedy = play(TwoArms(), LinearThompson(noise=0.01, temperature=0.0), steps, (0, 1))
    assert (greedy == 0.5).all()
    uniform = play(TwoArms(), Uniform(), steps, seeds[:20])
    assert abs(uniform.mean() - 0.25) < 3 * 0.25 / math.sqrt(uniform.numel())
    total = play(TwoArms(), exact, steps, seeds).sum(1)
    p = 0.5 * math.erfc(0.5 / math.sqrt(2))
    error = total.std().item() / math.sqrt(len(seeds))
    assert abs(total.mean().item() - (0.5 + 0.25 * (1 - p) / p)) < 3 * error
    assert error < 0.06


def test_blind_arms_come_first_and_then_by_their_share():
    schedule = Schedule(random=100, every=10, steps=0)
    player = EpsGreedy(share=0.2, hidden=(4,), schedule=schedule).start(3, 2, (0, 1))
    x = torch.randn(1, 1, 3).expand(100, 2, 3)
    assert 0.35 < player.choose(x).float().mean() < 0.65
    player.learn(x, torch.zeros(100, 2, dtype=torch.long), torch.zeros(100, 2))
    later = torch.cat([player.choose(x) for _ in range(40)])
    best = player.net(x[:1]).argmax(-1)
    other = (later != best).float().mean()
    assert abs(other - 0.1) < 4 * math.sqrt(0.09 / later.numel())  # half of the blind arms are the best one


def test_blind_arms_are_as_many_as_was_said_and_the_network_has_learnt_before_it_decides():
    """24 blind decisions in turns of 10: of the third turn four are blind, after a first lesson of 20 trials."""

    @dataclass(frozen=True, kw_only=True)
    class Fixed(SGD):
        def values(self, objective, contexts):
            return torch.tensor([0.0, 0.0, 1.0]).expand(*contexts.shape[:2], 3)

    def blind(random):
        schedule = Schedule(random=random, every=10, steps=1, batch=8)
        taken = []

        class Watched:
            every = 10

            def start(self, *what):
                self.player = Fixed(hidden=(2,), schedule=schedule).start(*what)
                return self

            def choose(self, contexts):
                taken.append(self.player.choose(contexts))
                return taken[-1]

            def learn(self, *what):
                self.player.learn(*what)
                lessons.append(self.player.learner.optimizer.steps)

        lessons = []
        play(Linear(features=2, arms=3), Watched(), 50, range(200))
        return (torch.cat(taken) != 2).any(1), lessons

    some, lessons = blind(24)
    assert some.tolist() == [True] * 24 + [False] * 26
    assert lessons == [0, 1, 2, 3, 4]
    some, lessons = blind(20)
    assert some.tolist() == [True] * 20 + [False] * 30
    assert lessons == [0, 1, 2, 3, 4]


class Bilinear(torch.nn.Module):
    """Values x' W_s, for each seed."""

    def __init__(self, features, arms, seeds):
        super().__init__()
        drawn = [torch.randn(features, arms, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        self.weight = torch.nn.Parameter(torch.stack(drawn))

    def forward(self, contexts, arms=None):
        values = torch.einsum("nsf,sfa->nsa", contexts, self.weight)
        return values if arms is None else values.gather(2, arms[..., None])[..., 0]


def test_a_network_of_your_own():
    @dataclass(frozen=True, kw_only=True)
    class Own(SGLD):
        def network(self, features, arms, seeds):
            return Bilinear(features, arms, seeds)

    agent = Own(lr=1e-2, temperature=0.1, schedule=Schedule(random=40, every=10, steps=8, batch=64))
    assert isinstance(agent.start(3, 2, (0, 1)).net, Bilinear)
    regret = play(Linear(features=8, arms=4), agent, 400, (0, 1, 2))
    assert regret[:, -100:].mean() < regret[:, :40].mean() / 3


class OneDiverges:
    """The stream of one seed pays so much that the network overflows; the others are tame."""

    features, arms = 2, 2

    def __init__(self, wild):
        self.wild = seed_for([wild], "environment")

    def trials(self, n, generator):
        pays = torch.tensor([0.0, 1.0]).expand(n, 2)
        scale = 1e30 if generator.initial_seed() == self.wild else 1.0
        return Trials(torch.randn(n, 2, generator=generator), pays, scale * pays)


@pytest.mark.parametrize("kind", [SGD, SGLD, PSGLD, BNP, VI, VL])
def test_a_seed_that_diverges_is_named_and_the_others_play_on(kind):
    quick = Schedule(random=40, every=10, steps=4, batch=16)
    agent = kind(hidden=(6,), lr=1e-3, schedule=quick)
    with pytest.warns(UserWarning, match=rf"NaN from then on: seed 5: {kind.__name__}: the loss is .* after"):
        regret = play(OneDiverges(wild=5), agent, 120, (3, 5, 8))
    lost = regret.isnan()
    assert not lost[[0, 2]].any()
    assert not lost[1, :40].any()
    assert lost[1, -10:].all()
    with pytest.raises(NonFiniteError, match="seed 5: "):
        play(OneDiverges(wild=5), agent, 120, (5,))


class AllDiverge(OneDiverges):
    """Each stream has its own size of rewards, and all are too much."""

    def __init__(self, sizes):
        self.sizes = {seed_for([seed], "environment"): size for seed, size in sizes.items()}

    def trials(self, n, generator):
        pays = torch.tensor([0.0, 1.0]).expand(n, 2)
        return Trials(torch.randn(n, 2, generator=generator), pays, self.sizes[generator.initial_seed()] * pays)


def test_when_no_seed_is_left_the_error_names_each_and_has_the_regret_until_then():
    quick = Schedule(random=40, every=10, steps=1, batch=16)
    agent = SGD(hidden=(6,), lr=1e-3, schedule=quick)
    with pytest.raises(DivergedError, match=r"seeds 5, 3: none is left.*seed 5: SGD: .* seed 3: SGD: ") as caught:
        play(AllDiverge({3: 1e7, 5: 1e30}), agent, 400, (3, 5))
    assert caught.value.seeds == (5, 3)
    regret = caught.value.regret
    assert regret.shape == (2, 400)
    later, first = (int(row.isnan().float().argmax()) for row in regret)
    assert 40 <= first < later < 400
    for row, lost in ((regret[0], later), (regret[1], first)):
        assert row[lost:].isnan().all()
        assert set(row[:lost].tolist()) == {0.0, 1.0}


def test_the_seeds_beside_one_that_diverges_decide_as_they_would_without():
    agent = SGD(hidden=(6,), lr=1e-3, schedule=Schedule(random=40, every=10, steps=4, batch=16))
    with pytest.warns(UserWarning, match="seed 5"):
        beside = play(OneDiverges(wild=5), agent, 120, (3, 5, 8))
    assert torch.equal(beside[[0, 2]], play(OneDiverges(wild=5), agent, 120, (3, 8)))


def test_seeds_may_be_an_array_and_are_checked():
    assert torch.equal(play(Wheel(), Uniform(), 10, np.arange(3)), play(Wheel(), Uniform(), 10, (0, 1, 2)))
    with pytest.raises(InputError, match=r"seeds=3\): .* write seeds=range\(3\)"):
        play(Wheel(), Uniform(), 10, 3)
    for wrong in ((0.5,), "01"):
        with pytest.raises(InputError, match="a whole number for each run"):
            play(Wheel(), Uniform(), 10, wrong)
    for wrong in ((), (0, 0), (-1,)):
        with pytest.raises(InputError, match="different seeds from 0 on"):
            play(Wheel(), Uniform(), 10, wrong)


@pytest.mark.parametrize(("every", "said"), [(None, "None"), (0, "0"), (2.5, "2.5")])
def test_a_player_says_how_often_it_learns(every, said):
    class Player:
        def start(self, features, arms, seeds):
            return self

    if every is not None:
        Player.every = every
    with pytest.raises(InputError, match=rf"Player has every={said}: .* write every = 20"):
        play(Wheel(), Player(), 10, (0,))


def test_the_rate_is_annealed_each_turn():
    player = EpsGreedy(lr=1e-3, anneal=0.5, schedule=Schedule(random=0, steps=3)).start(3, 2, (0,))
    for turn in range(2):
        player.learn(*trials(20, seed=turn))
    assert player.learner.optimizer.param_groups[0]["lr"] == pytest.approx(0.25e-3)


def test_the_buffer_forgets_the_oldest_and_draws_without_replacement():
    replay = Replay(capacity=6, features=1, seeds=2)
    numbers = torch.arange(20.0).view(10, 2)
    for part in (slice(0, 4), slice(4, 8), slice(8, 10)):
        replay.add(numbers[part, :, None], numbers[part].long() % 3, numbers[part])
    generators = [torch.Generator().manual_seed(s) for s in (0, 1)]
    x, arms, rewards = replay.minibatch(100, generators)
    assert len(replay) == 6
    for s in range(2):
        assert sorted(rewards[:, s].tolist()) == numbers[4:, s].tolist()
        assert torch.equal(x[:, s, 0], rewards[:, s])
        assert torch.equal(arms[:, s], rewards[:, s].long() % 3)
    counts = torch.zeros(6)
    for _ in range(2000):
        counts[((replay.minibatch(3, generators)[2][:, 0] - 8) / 2).long()] += 1
    assert (counts / 2000 - 0.5).abs().max() < 4 * math.sqrt(0.25 / 2000)


def test_the_papers_hyper_parameters():
    """lr is twice the printed rate: a sampler's step is (eps/2) grad U."""
    mushroom, census, statlog = (paper_agents(name) for name in ("mushroom", "census", "statlog"))
    assert mushroom["BNP"] == BNP(lr=2e-6, temperature=0.3, floor=(1e-1, 1e-4))
    assert (mushroom["pSGLD"].decay, mushroom["pSGLD"].damping, statlog["pSGLD"].decay) == (0.95, 1e-3, 0.99)
    assert census["BNP"] == BNP(lr=2e-7, temperature=0.03, floor=(1e-2, 1e-2))
    assert statlog["BNP"] == BNP(lr=6e-6, temperature=0.03, floor=(1.0, 0.1))
    assert statlog["EpsGreedy"] == EpsGreedy(lr=6e-6, share=0.003, anneal=0.999)
    assert statlog["Dropout"] == Dropout(lr=6e-6, rate=0.5, samples=5)
    assert set(mushroom) == {"uniform", "EpsGreedy", "SGD", "Dropout", "SGLD", "pSGLD", "BNP", "VI", "VL"}
    with pytest.raises(InputError, match="mushroom, statlog, covertype, census"):
        paper_agents("adult")


def test_bad_input_teaches():
    with pytest.raises(InputError, match="at least 1"):
        Schedule(every=0)
    with pytest.raises(InputError, match="keeps nothing"):
        Replay(0, 1, 1)
    with pytest.raises(InputError, match="standard deviations above 0"):
        LinearThompson(noise=0)
    with pytest.raises(InputError, match="agent SGD's"):
        VI(temperature=0.0).start(3, 2, (0,))
    with pytest.raises(InputError, match="different seeds"):
        play(Wheel(), Uniform(), 10, (1, 1))
    with pytest.raises(InputError, match="at least one decision"):
        play(Wheel(), Uniform(), 0, (1,))
    with pytest.raises(NonFiniteError, match=r"SGD: the loss is .* smaller lr"):
        play(Wheel(delta=0.5), SGD(lr=1e6, schedule=Schedule(random=20)), 100, (0,))

    class Wrong:
        every = 5

        def start(self, features, arms, seeds):
            return self

        def choose(self, contexts):
            return torch.full((len(contexts),), 0)

    with pytest.raises(InputError, match=r"Wrong chose torch.int64 of shape \(5,\)"):
        play(Wheel(), Wrong(), 10, (0, 1))
