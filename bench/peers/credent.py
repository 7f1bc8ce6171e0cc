"""credent, as `fit` runs it: fused Adam at 1e-3 for the means and 1e-2 for the scales."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import credent as cr
from bench.peers.layers import with_optimiser
from bench.peers.peer import Bayesian, Build, Task, count
from credent.objectives import Objective


def objective(kind: Callable[..., Objective], fused: bool | None = True, **options: Any) -> Build:
    """How an objective is trained; `fused=None` leaves the optimiser's flavour to the task."""

    def build(net: nn.Module, task: Task) -> Bayesian:
        bnn = kind(net, cr.likelihoods.Categorical(), num_data=task.num_data, **options)
        groups = bnn.param_groups(lr=task.lr, scale_lr=10 * task.lr)
        optimizer = torch.optim.Adam(groups, fused=task.fused if fused is None else fused)
        return _bayesian(bnn, optimizer)

    return build


def sampler(kind: Callable[[nn.Module, Task], torch.optim.Optimizer]) -> Build:
    """A chain on MAP's gradient, prior included."""

    def build(net: nn.Module, task: Task) -> Bayesian:
        return _bayesian(cr.MAP(net, cr.likelihoods.Categorical(), num_data=task.num_data), kind(net, task))

    return build


def _bayesian(bnn: Objective, optimizer: torch.optim.Optimizer) -> Bayesian:
    @torch.no_grad()
    def draw(x: Tensor) -> Tensor:
        return bnn.network(next(bnn.posterior.draws(1, None)), x)

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        return bnn.network(bnn.posterior.mean(), x)

    def predict(x: Tensor, samples: int) -> Tensor:
        return cr.predict(bnn.net, bnn.posterior, bnn.likelihood, x, samples=samples, how="sampled").probs

    net, random = bnn.net, bnn.layout.num_params
    return Bayesian(net, with_optimiser(bnn, optimizer), draw, mean, random, count(net), predict)


VI = {"credent": objective(cr.VI), "credent, default Adam": objective(cr.VI, fused=False)}
VL = {
    "credent VL": objective(cr.VL),
    "credent VL, default Adam": objective(cr.VL, fused=False),
    "credent VL, exact": objective(cr.VL, fraction=1, curvature="exact"),
    "credent MAP": objective(cr.MAP),
}
SAMPLERS = {
    "credent SGLD": sampler(lambda net, t: cr.samplers.SGLD(net.parameters(), lr=t.lr, num_data=t.num_data)),
    "credent pSGLD": sampler(
        lambda net, t: cr.samplers.PSGLD(net.parameters(), lr=1e-3 * t.lr, num_data=t.num_data, burn_in=1)
    ),
    "credent pSGLD, adapting": sampler(
        lambda net, t: cr.samplers.PSGLD(net.parameters(), lr=1e-3 * t.lr, num_data=t.num_data, burn_in=None)
    ),
    "credent BNP": sampler(lambda net, t: cr.samplers.BNPSGLD(net, lr=t.lr, num_data=t.num_data, burn_in=1)),
    "credent BNP, adapting": sampler(
        lambda net, t: cr.samplers.BNPSGLD(net, lr=t.lr, num_data=t.num_data, burn_in=None)
    ),
}
LAPLACE = {"credent, random head, sampled": objective(cr.VI, random="head*")}
CONVERTS = {"credent": objective(cr.VI)}
