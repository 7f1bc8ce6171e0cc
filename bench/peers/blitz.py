"""blitz: layers for Linear and Conv2d, and a decorator that gives the network's class `sample_elbo`.

    default       CE + 1 * KL           complexity_cost_weight's default, against a mean over the batch: too large by N
    mended        CE + KL / N           as its image example writes it

KL is log q(w) - log p(w) at the one draw. Its Gaussian prior, of standard deviation 0.1, is not quite one: 1e-6 is
added to the density, so weights beyond five deviations are free. Its first means are N(0, 0.1^2), its own.
"""

from functools import partial

from blitz.modules import BayesianConv2d, BayesianLinear
from blitz.utils import variational_estimator
from torch import Tensor, nn

from bench.peers.layers import layered, swapped, with_optimiser
from bench.peers.peer import Bayesian, Task


def _linear(layer: nn.Linear) -> nn.Module:
    new: nn.Module = BayesianLinear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    return new


def _conv(layer: nn.Conv2d) -> nn.Module:
    new: nn.Module = BayesianConv2d(
        layer.in_channels,
        layer.out_channels,
        kernel_size=layer.kernel_size,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        bias=layer.bias is not None,
    )
    return new


def _vi(net: nn.Module, task: Task, mended: bool = False) -> Bayesian:
    swapped(net, {nn.Linear: _linear, nn.Conv2d: _conv})
    net.__class__ = variational_estimator(type(type(net).__name__, (type(net),), {}))  # the decorator writes into it
    weight = task.beta / task.num_data if mended else 1.0

    def loss(x: Tensor, y: Tensor) -> Tensor:
        value: Tensor = net.sample_elbo(x, y, task.nll, sample_nbr=1, complexity_cost_weight=weight)
        return value

    optimizer = task.adam([p for p in net.parameters() if p.requires_grad])
    return layered(net, lambda name: name.endswith("_rho"), with_optimiser(loss, optimizer))


VI = {"blitz": _vi}
FUSED = {"blitz": _vi}
MENDED = {"blitz": partial(_vi, mended=True)}
