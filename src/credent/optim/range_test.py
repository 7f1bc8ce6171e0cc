"""The learning-rate range test: one short run in which a group's rate climbs, and the loss says which rates work.

    rate_t = low (high / low)^(t / (steps - 1)),     t = 0 ... steps - 1                                  [Smith 2017]

While the rate is too small the loss stays, then it falls, and where steps overshoot it climbs again: on h w^2 / 2,
gradient descent overshoots from rate 2 / h on. Read two rates from it. `suggestion` is where the smoothed loss falls
most steeply against the logarithm of the rate: a rate at which training makes progress at once, well below trouble.
`limit` is the bottom from which the loss climbs for good: larger rates undo what smaller ones gained.

The other groups rest: the loss then answers to this group alone. Everything is as it was afterwards: weights, scales,
buffers, gradients, the optimiser, and all generators.

Shapes: rates, losses and smoothed (t,), t = steps, or fewer where the loss became hopeless.

>>> w = torch.nn.Linear(1, 1, bias=False)
>>> objective = objectives.MAP(w, likelihoods.Gaussian(1.0), num_data=1, beta=0.0)      # h = x^2 = 4
>>> x = torch.full((1, 1), 2.0)
>>> loader = [(x, 99.5 * x), (x, 100.5 * x)]
>>> found = range_test(objective, torch.optim.SGD(objective.param_groups(lr=0.1)), loader, low=1e-4, high=10.0)
>>> 0.1 < found.limit < 1.0, 0.001 < found.suggestion < 0.1                              # 2 / h is 0.5
(True, True)
"""

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import Optimizer

from credent import likelihoods, objectives  # noqa: F401  (likelihoods: the doctest's)
from credent.errors import InputError
from credent.training import batches, generators

_HOPELESS = 100.0  # nats per datum above the first loss, in units of 1 + its size: no further step is needed
_GROUND = 0.1  # of the whole fall: a loss so little above the lowest is still on the ground
_NOISE = 2.0  # in units of the losses' median distance from their running median: chance alone falls less

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RangeTest:
    """What the loss was along the climb of one group's rate."""

    group: str
    rates: Numbers = field(repr=False)
    losses: Numbers = field(repr=False)
    """Of the next batch, after the step with that rate, in nats per datum."""
    smoothed: Numbers = field(repr=False)
    """Running median of the losses, centred: it neither lags behind nor bends where the loss explodes."""
    suggestion: float | None
    """The rate where the smoothed loss falls most steeply; None where it does not fall beyond its noise."""
    limit: float | None
    """The rate from which on the loss climbs, good to a factor of a few; None where it does not climb up to `high`."""


def range_test(
    objective: objectives.Objective,
    optimizer: Optimizer,
    loader: Iterable[Any],
    group: str = "means",
    *,
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
) -> RangeTest:
    """Train for `steps` batches with the rate of `group` climbing from `low` to `high`; the other groups rest.

    optimizer: any on `objective.param_groups(lr=...)`, as it will train; the rates it has do not matter.
    loader: batches as for `fit`, gone over again where it is shorter.
    """
    if not (0 < low < high < math.inf and steps >= 10):
        raise InputError(
            f"range_test(low={low:g}, high={high:g}, steps={steps}): 0 < low < high, and at least 10 steps from one to"
            " the other."
        )
    if isinstance(loader, Iterator):
        raise InputError("range_test goes over the loader again and again: give a DataLoader or a list, no iterator.")
    rates, losses = np.geomspace(low, high, steps), []
    with _restored(objective, optimizer, loader), objective.steady():
        chosen, others = _groups(optimizer, group)
        device = objective.layout.first().device
        start: float | None = None
        for batch in _endless(loader):
            x, y = batches.split(batch)
            optimizer.zero_grad()
            loss = objective(batches.to(x, device), batches.to(y, device))
            value = float(loss.detach())
            if start is None:
                start = value
                if not math.isfinite(start):
                    raise InputError(f"the first loss is {start}: no rate can be tested from there; check the inputs.")
            else:
                losses.append(value)
                if len(losses) == steps or not value - start <= _HOPELESS * (1 + abs(start)):
                    break
            loss.backward()
            for p in others:
                p.grad = None
            rate = float(rates[len(losses)])
            chosen["lr"] = rate
            optimizer.step()
            if chosen["lr"] != rate:
                raise InputError(f"{type(optimizer).__name__} sets its own rates: there is none to test.")
    assert start is not None
    return _read(group, rates[: len(losses)], np.array(losses), start)


def _groups(optimizer: Optimizer, name: str) -> tuple[dict[str, Any], list[torch.Tensor]]:
    names = [each.get("name") for each in optimizer.param_groups]
    if names.count(name) != 1:
        raise InputError(
            f"range_test(group={name!r}): the optimiser's groups are {', '.join(repr(n) for n in names)}."
            " objective.param_groups(lr=...) has named ones."
        )
    chosen = optimizer.param_groups[names.index(name)]
    return chosen, [p for each in optimizer.param_groups if each is not chosen for p in each["params"]]


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise InputError("the loader is empty: give it data.")


@contextmanager
def _restored(objective: objectives.Objective, optimizer: Optimizer, loader: Any) -> Iterator[None]:
    """Within, anything may move; afterwards all is as it was, also after an exception."""
    streams = generators.of_loader(loader)
    state, moved = copy.deepcopy(objective.state_dict()), copy.deepcopy(optimizer.state_dict())
    drawn, last = generators.capture(streams), objective.last
    parameters = list(objective.parameters())
    grads = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    try:
        yield
    finally:
        objective.load_state_dict(state)
        optimizer.load_state_dict(moved)
        generators.restore(drawn, streams)
        objective.last = last
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = grad


def _read(group: str, rates: Numbers, losses: Numbers, start: float) -> RangeTest:
    """The two rates, from the losses along the climb; at rates that are far too small the loss is the first one."""
    losses = np.where(np.isfinite(losses), losses, np.inf)
    half = max(1, len(losses) // 20)
    start = float(np.median([start, *losses[: 2 * half]]))
    padded = np.concatenate([np.full(half, start), losses, np.full(half, losses[-1])])
    smoothed = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    lowest = len(smoothed) - 1 - int(np.argmin(smoothed[::-1]))
    fall = start - float(smoothed[lowest])
    noise = _NOISE * float(np.median(np.abs(losses[: lowest + 1] - smoothed[: lowest + 1])))
    suggestion = None
    if fall > noise:
        ends = np.concatenate([np.full(half, start), smoothed[: lowest + 1], np.full(half, smoothed[lowest])])
        suggestion = float(rates[np.argmin(ends[2 * half :] - ends[: -2 * half])])
    return RangeTest(group, rates, losses, smoothed, suggestion, _limit(rates, smoothed, max(_GROUND * fall, noise)))


def _limit(rates: Numbers, smoothed: Numbers, height: float) -> float | None:
    """The last rate on the ground, and from there back down to the bottom."""
    ground = smoothed <= smoothed.min() + height
    i = int(np.flatnonzero(ground)[-1])
    if i == len(smoothed) - 1:
        return None
    while i > 0 and smoothed[i - 1] < smoothed[i]:
        i -= 1
    return float(rates[i])
