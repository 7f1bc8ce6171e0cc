"""Thompson sampling with a network for the rewards: draw weights from the posterior, play the arm that they prefer.

    r ~ N(f_a(x; w), noise^2),   w ~ N(0, prior^2),   target exp(-U(w) / T),   N = trials in the buffer so far

With noise^2 = 1/2 and prior = 1 the potential U is sum (r - f)^2 + |w|^2 / 2: squared errors and an L2 penalty of 1.
N grows as trials come in, and with it the weight of what was seen against the prior. The first `random` arms are taken
blindly; from the last turn before the network decides, the learner takes `steps` minibatches of `batch` trials after
every `every` decisions.

A seed whose loss overflows is lost, and named by a `DivergedError`; the player goes on for the seeds beside it.

What differs between agents is the learner: an objective, an optimiser or sampler on it, and how weights are drawn.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from credent.bandits.agent import DivergedError, any_arms, seed_for, streams
from credent.bandits.network import ValueNetwork
from credent.bandits.replay import Replay
from credent.errors import InputError, NonFiniteError
from credent.likelihoods import Gaussian
from credent.objectives import MAP, Objective
from credent.predictive import GaussianPredictive
from credent.priors import Gaussian as GaussianPrior
from credent.samplers import Langevin


@dataclass(frozen=True)
class Schedule:
    """When an agent learns, and from what (Deng, Liang, Hao, Lin 2022, whose code the BNP paper's experiment follows).

    random: decisions taken blindly, the first ones.                capacity: trials that the buffer keeps.
    every: decisions between two turns of learning.                 steps, batch: minibatches in a turn, and their size.
    """

    random: int = 1024
    every: int = 20
    steps: int = 16
    batch: int = 512
    capacity: int = 4096

    def __post_init__(self) -> None:
        if min(self.every, self.batch, self.capacity) < 1 or min(self.random, self.steps) < 0:
            raise InputError(f"{self!r}: every, batch and capacity are at least 1, random and steps not negative.")


@dataclass(frozen=True)
class Learner:
    """An objective on a value network, and what moves its parameters."""

    objective: Objective
    optimizer: Optimizer
    scheduler: LRScheduler | None = None
    """Stepped after each turn of learning."""

    def step(self, contexts: Tensor, arms: Tensor, rewards: Tensor, num_data: int) -> Tensor:
        """One minibatch of the `num_data` trials that there are."""
        self.objective.num_data = num_data
        if isinstance(self.optimizer, Langevin):
            self.optimizer.num_data = num_data
        self.optimizer.zero_grad()
        loss: Tensor = self.objective((contexts, arms), rewards)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()


@dataclass(frozen=True, kw_only=True)
class Deep(ABC):
    """What agents with a network have in common; `noise` and `prior` are standard deviations."""

    hidden: tuple[int, ...] = (100, 100)
    noise: float = math.sqrt(0.5)
    prior: float = 1.0
    schedule: Schedule = Schedule()

    def start(self, features: int, arms: int, seeds: Sequence[int]) -> "DeepPlayer":
        """Begin with networks drawn by the seeds."""
        return DeepPlayer(self, features, arms, seeds)

    def network(self, features: int, arms: int, seeds: Sequence[int]) -> nn.Module:
        """The networks of all seeds side by side, each begun by a seed: override it for networks of your own.

        It is called with contexts (n, S, features) and gives values (n, S, arms); and with arms (n, S) beside them,
        and gives theirs, (n, S). What one seed gets depends on that seed's contexts and parameters alone.
        """
        return ValueNetwork(features, arms, self.hidden, seeds, self.dropout)

    @abstractmethod
    def learner(self, net: nn.Module) -> Learner:
        """How the network learns; `num_data` is set as trials come in."""

    @abstractmethod
    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """Each arm's reward in these contexts under weights drawn from the posterior, (n, S, arms)."""

    @property
    def dropout(self) -> float:
        """The share of hidden units that are left out at random."""
        return 0.0

    @property
    def explore(self) -> float:
        """The share of decisions that are taken blindly."""
        return 0.0

    def log_joint(self, net: nn.Module) -> MAP:
        """The posterior's density."""
        return MAP(net, Gaussian(scale=self.noise), GaussianPrior(scale=self.prior), num_data=1)


class DeepPlayer:
    """A network for each seed, a buffer, and a learner."""

    def __init__(self, agent: Deep, features: int, arms: int, seeds: Sequence[int]) -> None:
        self._agent, self._arms, self._schedule = agent, arms, agent.schedule
        self.net = agent.network(features, arms, [seed_for([seed], "network") for seed in seeds])
        self.learner = agent.learner(self.net)
        self.replay = Replay(agent.schedule.capacity, features, len(seeds))
        self._chance, self._order = streams(seeds, "explore"), streams(seeds, "minibatches")
        self._seeds, self._lost = tuple(seeds), torch.zeros(len(seeds), dtype=torch.bool)
        self._seen = 0

    @property
    def every(self) -> int:
        """Decisions between two turns of learning."""
        return self._schedule.every

    def choose(self, contexts: Tensor) -> Tensor:
        """The best arm under drawn weights, or any."""
        blind = any_arms(len(contexts), self._arms, self._chance)
        first = self._schedule.random - self._seen  # so many are still to be blind
        if first >= len(contexts):
            return blind
        best = self._agent.values(self.learner.objective, contexts).argmax(-1)
        unseeing = (torch.arange(len(contexts)) < first)[:, None]
        if self._agent.explore:
            tossed = torch.stack([torch.rand(len(contexts), generator=generator) for generator in self._chance], 1)
            unseeing = unseeing | (tossed < self._agent.explore)
        return torch.where(unseeing, blind, best)

    def learn(self, contexts: Tensor, arms: Tensor, rewards: Tensor) -> None:
        """Remember, and take some minibatches if the network is to decide by the next turn."""
        self.replay.add(contexts, arms, rewards)
        self._seen += len(arms)
        if self._seen + self.every <= self._schedule.random or not self._schedule.steps:
            return
        for _ in range(self._schedule.steps):
            batch = self.replay.minibatch(self._schedule.batch, self._order)
            loss = self.learner.step(*batch, num_data=len(self.replay))
        if self.learner.scheduler is not None:
            self.learner.scheduler.step()
        if not bool(loss.isfinite()):
            self._lose(loss, contexts, batch[2])

    def _lose(self, loss: Tensor, contexts: Tensor, rewards: Tensor) -> None:
        """Say which seeds made the loss what it is, each once."""
        values = self._agent.values(self.learner.objective, contexts)
        lost = ~(values.square().sum((0, 2)) + rewards.square().sum(0)).isfinite()  # what errors are made of
        told = (
            f"{type(self._agent).__name__}: the loss is {loss.item()} after {self._seen} decisions. The step is too"
            " large for these rewards: write a smaller lr, or larger noise."
        )
        if not bool(lost.any()):
            raise NonFiniteError(told)
        newly = (lost & ~self._lost).nonzero().flatten().tolist()
        self._lost |= lost
        if newly:
            raise DivergedError(told, [self._seeds[i] for i in newly])


def held(objective: Objective, contexts: Tensor) -> Tensor:
    """Values under one setting of the weights for all contexts: where a chain is, or a point estimate."""
    pred = objective.predict(contexts, samples=1, seed=None)
    assert isinstance(pred, GaussianPredictive)
    return pred.mean


def fresh(objective: Objective, contexts: Tensor) -> Tensor:
    """Values under a draw of its own for each context."""
    return torch.cat([held(objective, contexts[i : i + 1]) for i in range(len(contexts))])
