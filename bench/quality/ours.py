"""What needs no other library: credent's methods with a task's settings, and MC dropout in plain PyTorch.

Of a chain, the task's rate is that of the mean loss, so that it means what SGD's does:  eps = 2 lr / N.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import credent as cr
from bench.peers import Bayesian, Task
from bench.peers.layers import swapped, with_optimiser
from bench.peers.peer import count
from credent.objectives import Objective
from credent.samplers import Langevin

FASTER = 5.0
"""Rate of the scales over that of the means: the recipes'."""

AVERAGED = 0.003
"""Beta of averaged members, where it is no knob."""


def _trained(net: nn.Module, task: Task, kind: Callable[..., Objective], **options: Any) -> Bayesian:
    bnn = kind(net, cr.likelihoods.Categorical(), num_data=task.num_data, beta=task.beta, **options)
    return _bayesian(bnn, task.annealed(_adam(bnn, task)))


def vi_default(net: nn.Module, task: Task) -> Bayesian:
    """As the recipes for grey images train a member."""
    bnn = cr.VI(net, cr.likelihoods.Categorical(), num_data=task.num_data, beta=task.beta)
    return _bayesian(bnn, task.annealed(cr.optim.Muon.beside_adam(bnn, lr=task.lr, ratio=FASTER)))


def _adam(bnn: Objective, task: Task) -> torch.optim.Optimizer:
    return torch.optim.Adam(bnn.param_groups(lr=task.lr, ratio=FASTER), fused=True)


def _muon(bnn: Objective, task: Task) -> torch.optim.Optimizer:
    """At a rate that falls to a tenth."""
    optimizer = cr.optim.Muon.beside_adam(bnn, lr=task.lr, ratio=FASTER)
    assert task.steps is not None
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, task.steps)
    optimizer.register_step_post_hook(lambda *_: falling.step())
    return optimizer


def _averaged(
    net: nn.Module,
    task: Task,
    kind: Callable[..., Objective],
    moved_by: Callable[[Objective, Task], torch.optim.Optimizer] = _adam,
    **predicting: Any,
) -> Bayesian:
    """Predicts with the average of the weights, which steps take in and the end applies."""
    bnn = kind(net, cr.likelihoods.Categorical(), num_data=task.num_data, beta=task.beta)
    average = cr.optim.Average(bnn)
    made = _bayesian(bnn, moved_by(bnn, task), **predicting)

    def step(x: Tensor, y: Tensor) -> object:
        loss = made.step(x, y)
        average.update()
        return loss

    return replace(made, step=step, finish=lambda *_: average.apply())


def _chain(net: nn.Module, task: Task, kind: Callable[..., Langevin], adapts: bool) -> Bayesian:
    bnn = cr.MAP(net, cr.likelihoods.Categorical(), num_data=task.num_data)
    assert task.steps is not None
    burn_in = {"burn_in": task.steps // 2} if adapts else {}
    target = net if kind is cr.samplers.BNPSGLD else net.parameters()
    sampler = kind(target, lr=2 * task.lr / task.num_data, num_data=task.num_data, temperature=task.beta, **burn_in)
    return _bayesian(bnn, sampler)


def _bayesian(bnn: Objective, optimizer: torch.optim.Optimizer, dropout: bool = False) -> Bayesian:
    def mean(x: Tensor) -> Tensor:
        return bnn.network(bnn.posterior.mean(), x)

    def predict(x: Tensor, samples: int) -> Tensor:
        drawn = 1 if isinstance(bnn, cr.MAP) and not dropout else samples
        return cr.predict(bnn.net, bnn.posterior, bnn.likelihood, x, samples=drawn, how=bnn.how, dropout=dropout).probs

    def weights() -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in bnn.net.named_parameters()}

    step = with_optimiser(bnn, optimizer)
    random = bnn.layout.num_params
    return Bayesian(bnn.net, step, mean, mean, random, count(bnn.net), predict, weights, objective=bnn)


def _dropping(net: nn.Module, rate: float) -> None:
    """Inputs of linear layers are dropped."""

    def dropping(layer: nn.Linear) -> nn.Module:
        return nn.Sequential(nn.Dropout(rate), layer)

    swapped(net, {nn.Linear: dropping})


def dropout(net: nn.Module, task: Task) -> Bayesian:
    """Gal and Ghahramani 2016: inputs of linear layers are dropped, at rate beta, in training and in prediction."""
    _dropping(net, task.beta)

    @torch.no_grad()
    def draw(x: Tensor) -> Tensor:
        net.train()  # there is no BatchNorm in it
        return net(x)

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        return net.eval()(x)

    step = with_optimiser(lambda x, y: task.nll(net(x), y), task.adam(net.parameters()))
    return Bayesian(net, step, draw, mean, 0, count(net))


def dropout_averaged(
    net: nn.Module, task: Task, moved_by: Callable[[Objective, Task], torch.optim.Optimizer] = _adam
) -> Bayesian:
    """The same layers dropped, at rate beta, by an averaged network with the prior of averaged members."""
    _dropping(net, task.beta)
    return _averaged(net, replace(task, beta=AVERAGED), cr.MAP, moved_by, dropout=True)


map_ = partial(_trained, kind=cr.MAP)
vi = partial(_trained, kind=cr.VI)
map_averaged = partial(_averaged, kind=cr.MAP)
map_muon = partial(_averaged, kind=cr.MAP, moved_by=_muon)
dropout_muon = partial(dropout_averaged, moved_by=_muon)
vi_averaged = partial(_averaged, kind=cr.VI)
vi_last = partial(_trained, kind=cr.VI, random="head*")
vl = partial(_trained, kind=cr.VL)
ir = partial(_trained, kind=cr.VI, prior=cr.priors.InverseReference())
sgld = partial(_chain, kind=cr.samplers.SGLD, adapts=False)
sghmc = partial(_chain, kind=partial(cr.samplers.SGLD, momentum=0.9), adapts=False)
psgld = partial(_chain, kind=cr.samplers.PSGLD, adapts=True)
bnp = partial(_chain, kind=cr.samplers.BNPSGLD, adapts=True)
