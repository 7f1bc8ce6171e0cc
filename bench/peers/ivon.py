"""IVON: an optimiser that holds a mean-field Gaussian; weights are perturbed in place within a context.

ess = N is the ELBO's right scale, and N / beta that of a KL weighed by beta; ess * weight_decay is the prior's
precision. lr 0.1 and the rest are the README's.
"""

import ivon
import torch
from torch import Tensor, nn

from bench.peers.peer import Bayesian, Task, count


def _vi(net: nn.Module, task: Task, lr: float = 0.1) -> Bayesian:
    optimizer = ivon.IVON(net.parameters(), lr=lr, ess=task.num_data / task.beta)
    task.annealed(optimizer)

    def step(x: Tensor, y: Tensor) -> Tensor:
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            loss = task.nll(net(x), y)
            loss.backward()
        optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def draw(x: Tensor) -> Tensor:
        with optimizer.sampled_params():
            outputs: Tensor = net(x)
        return outputs

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        return net(x)

    random = sum(group["hess"].numel() for group in optimizer.param_groups)
    return Bayesian(net, step, draw, mean, random, count(net))


VI = {"ivon": _vi}
TUNED = {"ivon": lambda net, task: _vi(net, task, task.lr)}
CONVERTS = {"ivon": _vi}
