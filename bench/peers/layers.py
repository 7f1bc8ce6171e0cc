"""What libraries of Bayesian layers have in common: means and log-spreads are parameters of replaced layers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bench.peers.peer import Bayesian, count

Swap = Callable[[Any], nn.Module]


def layered(
    net: nn.Module,
    is_scale: Callable[[str], bool],
    step: Callable[[Tensor, Tensor], object],
    run: Callable[[Tensor], Tensor] | None = None,
) -> Bayesian:
    """A converted network whose log-spreads are the parameters that `is_scale` knows by the last part of their name."""
    run = run or net
    scales = [p for name, p in net.named_parameters() if is_scale(name.rpartition(".")[2])]

    @torch.no_grad()
    def draw(x: Tensor) -> Tensor:
        return run(x)

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        with _without_spread(scales):
            return run(x)

    random = sum(p.numel() for p in scales)
    return Bayesian(net, step, draw, mean, random, count(net) - random)


@contextmanager
def _without_spread(scales: list[nn.Parameter]) -> Iterator[None]:
    kept = [p.detach().clone() for p in scales]
    try:
        for p in scales:
            p.fill_(-60.0)  # exp and softplus of it vanish
        yield
    finally:
        for p, value in zip(scales, kept, strict=True):
            p.copy_(value)


def swapped(net: nn.Module, layers: Mapping[type[nn.Module], Swap]) -> nn.Module:
    """The network with each layer of these types replaced, which these libraries leave to their users."""
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if type(child) in layers:
                setattr(module, name, layers[type(child)](child))
    return net


def with_optimiser(
    loss: Callable[[Tensor, Tensor], Tensor], optimizer: torch.optim.Optimizer
) -> Callable[[Tensor, Tensor], object]:
    """The training step of every PyTorch tutorial."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(x, y)
        value.backward()
        optimizer.step()
        return value.detach()

    return step
