"""Training and prediction under one protocol, and what they cost.

Everyone sees the same batches in the same order for the same number of epochs, from the same first weights of the same
network (libraries of layers draw their own). Rates fall to zero along a cosine, but those of chains, which are
constant.

    cost of training     CPU time of all steps, over as many steps of a plain PyTorch loop (fused Adam) of this network
    cost of prediction   CPU time over that of one plain forward pass of the same inputs

The plain steps are made in between, every 20th step, so that what else the machine does falls on both alike.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bench.peers import Bayesian, Task, plain
from bench.quality.images import Learning
from bench.quality.methods import Method
from bench.quality.settings import Size
from credent import calibrate, predict
from credent.data import batches
from credent.families import Mixture
from credent.models import LeNet5
from credent.objectives import Objective

T = TypeVar("T")
_EVERY = 20


@dataclass
class Clock:
    """CPU seconds of some work and of the plain work beside it, and how often each was done."""

    work: float = 0.0
    plain: float = 0.0
    works: int = 0
    plains: int = 0

    def time(self, call: Callable[[], T], count: int = 1) -> T:
        """Do some work, which counts as so many steps."""
        start = time.process_time()
        found = call()
        self.work += time.process_time() - start
        self.works += count
        return found

    def beside(self, call: Callable[[], object]) -> None:
        """Do the plain work."""
        start = time.process_time()
        call()
        self.plain += time.process_time() - start
        self.plains += 1

    @property
    def ratio(self) -> float:
        """Of all the work to as many plain steps."""
        return self.work / (self.plain / self.plains * self.works)


@dataclass
class Trained:
    """A method that has learnt: probabilities, (n, classes), of inputs."""

    method: Method
    members: list[Callable[[Tensor], Tensor]]
    """Whose probabilities are averaged."""
    clock: Clock
    plain: nn.Module
    predicting: Clock = field(default_factory=Clock)

    @property
    def cost(self) -> float:
        """Of training, over one plain network's."""
        return self.clock.ratio * self.method.members * self.method.passes

    def probabilities(self, x: Tensor) -> Tensor:
        """Averaged over members, draws and whatever the method averages over."""
        parts = []
        for chunk in x.split(self.method.chunk):
            with torch.no_grad():
                self.predicting.beside(lambda chunk=chunk: self.plain(chunk))
            parts.append(self.predicting.time(lambda chunk=chunk: self._mean(chunk)))
        return torch.cat(parts)

    def _mean(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members]).mean(0)


def train(method: Method, data: Learning, lr: float, knob: float, size: Size, seed: int) -> Trained:
    """All members of a method, the first of seed `members x seed`."""
    clock = Clock()
    reference = _network(data, seed)
    members, objectives = [], []
    for number in range(method.members):
        made, member = _member(method, data, lr, knob, size, seed * method.members + number, clock, reference)
        members.append(member)
        objectives.append(made.objective)
    if method.calibrated:
        known = [each for each in objectives if each is not None]
        members = [clock.time(lambda: _calibrated(known, data, size), count=0)]
    return Trained(method, members, clock, reference.eval())


def _calibrated(objectives: list[Objective], data: Learning, size: Size) -> Callable[[Tensor], Tensor]:
    """All members as one, at the temperature that suits the validation images best when they predict together."""
    first, posterior = objectives[0], Mixture([each.posterior for each in objectives])
    options = {"samples": size.draws * len(objectives), "how": first.how}
    calibrate(first.net, posterior, first.likelihood, *data.val[:], **options)
    return lambda x: predict(first.net, posterior, first.likelihood, x, **options).probs


def _network(data: Learning, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return LeNet5(in_channels=data.shape[0])


def _member(
    method: Method, data: Learning, lr: float, knob: float, size: Size, seed: int, clock: Clock, reference: nn.Module
) -> tuple[Bayesian, Callable[[Tensor], Tensor]]:
    loader = batches(data.train, size.batch, shuffle=True, seed=seed)
    epochs = max(1, round(size.epochs * method.passes))
    steps = epochs * len(loader)
    task = Task(num_data=len(data.train), lr=lr, fused=True, beta=knob, steps=steps)
    beside = plain.adam(reference, Task(num_data=len(data.train), fused=True))
    made = method.make()(_network(data, seed), task)
    every = max(1, (steps - steps // 2) // size.draws)
    kept: list[dict[str, Tensor]] = []
    made.net.train()
    step = 0
    for _ in range(epochs):
        for x, y in loader:
            if step % _EVERY == 0:
                clock.beside(lambda x=x, y=y: beside.step(x, y))
            clock.time(lambda x=x, y=y: made.step(x, y))
            step += 1
            if method.chain and step > steps // 2 and (steps - step) % every == 0:
                assert made.weights is not None
                kept.append(made.weights())
    if made.finish is not None:
        clock.time(lambda: made.finish(batches(data.train, size.batch), batches(data.val, 1000)), count=0)
    made.net.eval()
    return made, _of_chain(made.net, kept) if method.chain else _of_draws(made, size.draws)


def _of_draws(made: Bayesian, draws: int) -> Callable[[Tensor], Tensor]:
    return lambda x: made.probabilities(x, draws)


def _of_chain(net: nn.Module, kept: list[dict[str, Tensor]]) -> Callable[[Tensor], Tensor]:
    @torch.no_grad()
    def average(x: Tensor) -> Tensor:
        return torch.stack([functional_call(net, weights, x).softmax(-1) for weights in kept]).mean(0)

    return average
