"""torchbnn: layers for Linear and Conv2d, which the user puts in the place of torch's.

    documented    CE + 0.01 * (MEAN over all weights of KL(q || p))
    mended        CE + (sum over all weights of KL(q || p)) / N

Prior and first posterior N(., 0.1^2), as in its examples.
"""

from functools import partial

import torchbnn
from torch import Tensor, nn

from bench.peers.layers import layered, swapped, with_optimiser
from bench.peers.peer import Bayesian, Task

PRIOR = {"prior_mu": 0.0, "prior_sigma": 0.1}


def _linear(layer: nn.Linear) -> nn.Module:
    new: nn.Module = torchbnn.BayesLinear(
        **PRIOR, in_features=layer.in_features, out_features=layer.out_features, bias=layer.bias is not None
    )
    return new


def _conv(layer: nn.Conv2d) -> nn.Module:
    new: nn.Module = torchbnn.BayesConv2d(
        **PRIOR,
        in_channels=layer.in_channels,
        out_channels=layer.out_channels,
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
    kl, weight = (
        (torchbnn.BKLLoss(reduction="sum"), task.beta / task.num_data)
        if mended
        else (torchbnn.BKLLoss(reduction="mean"), 0.01)
    )

    def loss(x: Tensor, y: Tensor) -> Tensor:
        value: Tensor = task.nll(net(x), y) + weight * kl(net).squeeze()
        return value

    return layered(net, lambda name: name.endswith("_log_sigma"), with_optimiser(loss, task.adam(net.parameters())))


VI = {"torchbnn": _vi}
FUSED = {"torchbnn": _vi}
MENDED = {"torchbnn": partial(_vi, mended=True)}
