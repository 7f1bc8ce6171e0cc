"""torch-uncertainty: layers for Linear and Conv2d, which the user puts in the place of torch's, and samplers.

    documented    CE + (1/N) * (MEAN over layers of log q(w) - log p(w), at the one draw)
    mended        CE + (1/N) * (their sum)

Prior N(0, 0.1^2) and first posterior are the layers' own. SGLD and SGHMC multiply their noise by 0.01, their default,
and so have another stationary law than the posterior; the prior N(0, 1) is their weight decay. SGHMC takes further
passes while it burns in, for 200 updates of tensors by default: one row has only such steps, the other none.

The package imports lightning and torchvision, which would bring another build of torch, before anything else of it can
be had. Layers, losses and optimisers need neither, so they are imported beside it: `_shell` stands for a package whose
own file is not run.
"""

import importlib
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor, nn

from bench.peers.layers import layered, swapped, with_optimiser
from bench.peers.peer import Bayesian, Build, Task, count


def _shell(name: str) -> None:
    found = find_spec(name)
    if found is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = ModuleType(name)
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules[name] = package


for _name in ("torch_uncertainty", "torch_uncertainty.utils"):
    _shell(_name)
_layers, _losses, _optim = (
    importlib.import_module(f"torch_uncertainty.{part}") for part in ("layers", "losses", "optim")
)


def _linear(layer: nn.Linear) -> nn.Module:
    new: nn.Module = _layers.BayesLinear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    return new


def _conv(layer: nn.Conv2d) -> nn.Module:
    new: nn.Module = _layers.BayesConv2d(
        layer.in_channels,
        layer.out_channels,
        kernel_size=layer.kernel_size,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        bias=layer.bias is not None,
        padding_mode=layer.padding_mode,
    )
    return new


def _vi(net: nn.Module, task: Task, mended: bool = False) -> Bayesian:
    swapped(net, {nn.Linear: _linear, nn.Conv2d: _conv})
    parts = sum(isinstance(m, _layers.BayesLinear | _layers.BayesConv2d) for m in net.modules())
    weight = task.beta * parts / task.num_data if mended else 1 / task.num_data
    elbo = _losses.ELBOLoss(net, nn.CrossEntropyLoss(), kl_weight=weight, num_samples=1)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        value: Tensor = elbo(x, y).squeeze()
        return value

    return layered(net, lambda name: name.endswith("_sigma"), with_optimiser(loss, task.adam(net.parameters())))


def _sampler(kind: Callable[..., torch.optim.Optimizer]) -> Build:
    def build(net: nn.Module, task: Task) -> Bayesian:
        optimizer = kind(net.parameters(), lr=task.lr, weight_decay=1 / task.num_data)
        step = with_optimiser(lambda x, y: task.nll(net(x), y), optimizer)

        @torch.no_grad()
        def run(x: Tensor) -> Tensor:
            outputs: Tensor = net(x)
            return outputs

        return Bayesian(net, step, run, run, count(net), count(net))

    return build


VI = {"torch-uncertainty": _vi}
FUSED = {"torch-uncertainty": _vi}
MENDED = {"torch-uncertainty": partial(_vi, mended=True)}
SAMPLERS = {
    "torch-uncertainty, SGLD": _sampler(_optim.SGLD),
    "torch-uncertainty, SGHMC": _sampler(partial(_optim.SGHMC, burn_in_steps=0)),
    "torch-uncertainty, SGHMC, adapting": _sampler(partial(_optim.SGHMC, burn_in_steps=10**9)),
}
