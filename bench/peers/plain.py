"""The network itself, trained by a plain PyTorch loop: what everything is measured against."""

import torch
from torch import Tensor, nn

from bench.peers.layers import with_optimiser
from bench.peers.peer import Bayesian, Task, count


def adam(net: nn.Module, task: Task) -> Bayesian:
    """Cross-entropy and torch's Adam."""
    return _plain(net, task, task.adam(net.parameters()))


def sgd(net: nn.Module, task: Task) -> Bayesian:
    """Cross-entropy and torch's SGD."""
    return _plain(net, task, torch.optim.SGD(net.parameters(), lr=task.lr, fused=task.fused))


def _plain(net: nn.Module, task: Task, optimizer: torch.optim.Optimizer) -> Bayesian:
    @torch.no_grad()
    def run(x: Tensor) -> Tensor:
        return net(x)

    return Bayesian(net, with_optimiser(lambda x, y: task.nll(net(x), y), optimizer), run, run, 0, count(net))
