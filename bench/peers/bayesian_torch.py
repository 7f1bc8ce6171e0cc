"""bayesian-torch: `dnn_to_bnn` replaces linear, convolution and LSTM layers by their class's name.

    documented    CE + kl / batch size, where each layer's kl is the MEAN over its weights of KL(q || p)
    mended        CE + (sum over all weights of KL(q || p)) / N

`prior_sigma` goes to an argument named prior_variance, which is used as a standard deviation. Settings are the
README's: posterior_rho_init -3; with weights to keep, moped_enable and moped_delta 0.5.
"""

from functools import partial

import torch
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss
from torch import Tensor, nn
from torch.nn.functional import softplus

from bench.peers.layers import layered, with_optimiser
from bench.peers.peer import Bayesian, Task


def _vi(net: nn.Module, task: Task, kind: str = "Reparameterization", mended: bool = False) -> Bayesian:
    dnn_to_bnn(
        net,
        {
            "prior_mu": 0.0,
            "prior_sigma": 1.0,
            "posterior_mu_init": 0.0,
            "posterior_rho_init": -3.0,
            "type": kind,
            "moped_enable": task.as_is,
            "moped_delta": 0.5,
        },
    )

    def loss(x: Tensor, y: Tensor) -> Tensor:
        nll = task.nll(net(x), y)
        return nll + task.beta / task.num_data * _kl(net) if mended else nll + get_kl_loss(net) / len(y)

    return layered(net, lambda name: name.startswith("rho_"), with_optimiser(loss, task.adam(net.parameters())))


def _kl(net: nn.Module) -> Tensor:
    """KL(q || N(0, 1)), summed."""
    total = torch.zeros(())
    params = dict(net.named_parameters())
    for name, rho in params.items():
        head, _, last = name.rpartition(".")
        if last.startswith("rho_"):
            mu, sigma = params[f"{head}.mu_{last[4:]}"], softplus(rho)
            total = total + ((sigma.square() + mu.square() - 1) / 2 - sigma.log()).sum()
    return total


VI = {"bayesian-torch": _vi, "bayesian-torch, flipout": partial(_vi, kind="Flipout")}
FUSED = {"bayesian-torch": _vi}
MENDED = {"bayesian-torch": partial(_vi, mended=True)}
CONVERTS = {"bayesian-torch": _vi}
