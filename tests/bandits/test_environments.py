"""Regret by hand: shares of classes, areas of the wheel, and expectations that are those of the drawn rewards."""

import math

import numpy as np
import pytest
import torch

from credent.bandits import (
    SGLD,
    Adult,
    Covertype,
    Linear,
    LinearThompson,
    Mushroom,
    Schedule,
    Shuttle,
    Trials,
    Uniform,
    Wheel,
    play,
)
from credent.errors import InputError

EDIBLE, POISONOUS = 4208, 3916
NEVER = 5 * EDIBLE / 8124
ALWAYS = 15 * POISONOUS / 8124


class Always:
    """One arm for ever."""

    every = 1000

    def __init__(self, arm):
        self.arm = arm

    def start(self, features, arms, seeds):
        return self

    def choose(self, contexts):
        return torch.full(contexts.shape[:2], self.arm)

    def learn(self, contexts, arms, rewards):
        pass


class Oracle(Always):
    """Knows the class because the environment's trials are known beforehand."""

    def __init__(self, environment, steps, seeds):
        from credent.bandits.agent import streams

        trials = [environment.trials(steps, g) for g in streams(seeds, "environment")]
        self.best = torch.stack([t.expected.argmax(1) for t in trials], 1)
        self.at = 0

    def choose(self, contexts):
        self.at += len(contexts)
        return self.best[self.at - len(contexts) : self.at]


def within(regret, expected, errors=3.0):
    """The mean regret of a step is `expected` within `errors` standard errors, and that error is small."""
    error = regret.std().item() / math.sqrt(regret.numel())
    assert abs(regret.mean().item() - expected) < errors * error
    return error


def test_known_regrets_of_mushroom(data_dir):
    """4.91 for a coin, 2.59 for never eating; eating always costs 7.23, so a swapped arm or sign would show."""
    assert (round(NEVER, 4), round(ALWAYS, 4), round((NEVER + ALWAYS) / 2, 4)) == (2.5899, 7.2304, 4.9101)
    seeds = (0, 1, 2, 3)
    assert within(play(Mushroom(), Uniform(), 10_000, seeds), (NEVER + ALWAYS) / 2) < 0.04
    assert within(play(Mushroom(), Always(0), 10_000, seeds), NEVER) < 0.02
    assert within(play(Mushroom(), Always(1), 10_000, seeds), ALWAYS) < 0.05
    assert play(Mushroom(), Oracle(Mushroom(), 10_000, seeds), 10_000, seeds).sum() == 0


def test_exact_shares_of_mushroom(data_dir):
    from credent.bandits.tables import _rows

    x, y = _rows("mushroom", None, None)
    assert x.shape == (8124, 117)
    assert ((y == 0).sum().item(), (y == 1).sum().item()) == (EDIBLE, POISONOUS)
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert (x.sum(1) == 22).all()


def test_rewards_of_mushroom_are_what_their_expectation_says(data_dir):
    """A poisonous mushroom pays 5 or -35, evenly: mean -15 and standard deviation 20."""
    trials = Mushroom().trials(40_000, torch.Generator().manual_seed(1))
    poisonous = trials.expected[:, 1] == -15
    eaten = trials.rewards[poisonous, 1]
    assert set(eaten.tolist()) == {5.0, -35.0}
    assert abs(eaten.mean() + 15) < 3 * 20 / math.sqrt(len(eaten))
    assert (trials.rewards[~poisonous, 1] == 5).all()
    assert (trials.expected[~poisonous, 1] == 5).all()
    assert (trials.rewards[:, 0] == 0).all()
    assert abs(poisonous.float().mean() - POISONOUS / 8124) < 3 * 0.5 / math.sqrt(40_000)


@pytest.mark.parametrize(
    ("environment", "shares"),
    [
        (Shuttle(), np.array([45586, 50, 171, 8903, 3267, 10, 13]) / 58_000),
        pytest.param(
            Covertype(),
            np.array([211840, 283301, 35754, 2747, 9493, 17367, 20510]) / 581_012,
            marks=pytest.mark.slow,
        ),
        (Adult(), np.array([5540, 14, 6020, 5984, 1480, 2046, 2970, 4808, 232, 6008, 976, 5408, 1420, 2316]) / 45_222),
        (Adult(features=94), None),
    ],
    ids=["shuttle", "covertype", "adult", "adult 94"],
)
def test_naming_a_class(data_dir, environment, shares):
    """Always naming class 0 loses 1 - its share; naming at random loses 1 - 1/arms, whatever the shares."""
    regret = play(environment, Uniform(), 5000, (0, 1))
    within(regret, 1 - 1 / environment.arms)
    assert set(regret.unique().tolist()) == {0.0, 1.0}
    if shares is not None:
        assert len(shares) == environment.arms
        within(play(environment, Always(0), 5000, (0, 1)), 1 - shares[0])


def test_a_table_that_is_absent_teaches(monkeypatch, tmp_path):
    monkeypatch.delenv("CREDENT_DATA", raising=False)
    with pytest.raises(InputError, match="CREDENT_DATA=DIR"):
        Shuttle().trials(1, torch.Generator())
    with pytest.raises(InputError, match=r"bandits/mushroom_onehot\.npz"):
        Mushroom(str(tmp_path)).trials(1, torch.Generator())


def test_the_wheel_by_hand():
    """One point in the hub, one on the rim of each quadrant."""
    wheel = Wheel(delta=0.5)
    x = torch.tensor([[0.3, 0.3], [0.6, 0.6], [0.6, -0.6], [-0.6, 0.6], [-0.6, -0.6]])
    rim = [[1.2, 50, 1, 1, 1], [1.2, 1, 50, 1, 1], [1.2, 1, 1, 50, 1], [1.2, 1, 1, 1, 50]]
    torch.testing.assert_close(wheel.expected(x), torch.tensor([[1.2, 1, 1, 1, 1], *rim]))
    trials = Trials(x, wheel.expected(x), wheel.expected(x))
    torch.testing.assert_close(trials.regret(torch.tensor([1, 1, 1, 0, 4])), torch.tensor([0.2, 0, 49, 48.8, 0]))


def test_the_wheels_regret_is_an_area():
    """The rim has a share 1 - delta^2; any arm at random: 0.8 x 0.2 in the hub, (48.8 + 3 x 49) / 5 on the rim."""
    rim = 1 - 0.8**2
    seeds = (0, 1, 2, 3)
    within(play(Wheel(delta=0.8), Always(0), 10_000, seeds), rim * 48.8)
    within(play(Wheel(delta=0.8), Uniform(), 10_000, seeds), (1 - rim) * 0.16 + rim * (48.8 + 3 * 49) / 5)
    trials = Wheel(delta=0.8).trials(20_000, torch.Generator().manual_seed(0))
    for quadrant in range(1, 5):
        share = (trials.expected[:, quadrant] == 50).float()
        assert abs(share.mean() - rim / 4) < 3 * share.std() / math.sqrt(20_000)
    noise = trials.rewards - trials.expected
    assert abs(noise.std() / 0.01 - 1) < 3 / math.sqrt(2 * noise.numel())


def test_linear_regret_by_hand():
    """Two arms: the regret of a coin is E|x (theta_0 - theta_1)| / 2 = |theta_0 - theta_1| / sqrt(2 pi)."""
    environment = Linear(features=3, arms=2, noise=0.7, seed=4)
    gap = (environment.theta[0] - environment.theta[1]).norm().item()
    error = within(play(environment, Uniform(), 10_000, (0, 1, 2)), gap / math.sqrt(2 * math.pi))
    assert error < 0.01 * gap
    trials = environment.trials(20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(trials.expected, trials.contexts @ environment.theta.T)
    noise = trials.rewards - trials.expected
    assert abs(noise.std() / 0.7 - 1) < 3 / math.sqrt(2 * noise.numel())


def test_numbers_of_any_type_are_played():
    """An environment in float64, and one whose rewards are whole numbers."""

    class Doubles:
        features, arms = 2, 2

        def __init__(self, kind):
            self.kind = kind

        def trials(self, n, generator):
            x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
            pays = torch.tensor([0, 1], dtype=self.kind).expand(n, 2)
            return Trials(x, pays, pays)

    quick = SGLD(hidden=(4,), lr=1e-3, schedule=Schedule(random=20, every=10, steps=2, batch=8))
    for kind in (torch.float64, torch.long, torch.float32):
        for agent in (quick, LinearThompson(), Uniform()):
            regret = play(Doubles(kind), agent, 40, (0, 1))
            assert regret.dtype == torch.float64
            assert set(regret.unique().tolist()) <= {0.0, 1.0}


def test_bad_environments_teach():
    with pytest.raises(InputError, match="between 0 and 1"):
        Wheel(delta=1.5)
    with pytest.raises(InputError, match=r"must be \(n, features\)"):
        Trials(torch.zeros(3, 1), torch.zeros(3, 2), torch.zeros(3, 3))
    with pytest.raises(InputError, match="3 contexts came with"):
        Trials(torch.zeros(3, 1), torch.zeros(2, 2), torch.zeros(2, 2))

    paid = torch.zeros(5, 2)
    paid[3, 1] = math.nan
    for name in ("contexts", "expected", "rewards"):
        parts = {"contexts": torch.zeros(5, 2), "expected": torch.zeros(5, 2), "rewards": torch.zeros(5, 2)}
        with pytest.raises(InputError, match=rf"row 3 of {name} is \[0.0, nan\], and 1 of 5"):
            Trials(**parts | {name: paid})

    class Liar:
        features, arms = 2, 2

        def trials(self, n, generator):
            return Trials(torch.zeros(n, 1), torch.zeros(n, 2), torch.zeros(n, 2))

    with pytest.raises(InputError, match="Liar says 2 features"):
        play(Liar(), Uniform(), 10, (0,))
