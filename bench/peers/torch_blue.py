"""torch_blue: `convert_to_vimodule` turns a module's class into one whose weights are drawn at every access.

    N * CE + log q(w) - log p(w) at the draws         a sum over the data set: right

One draw a step, as everybody here; its default is ten, by vmap, under which BatchNorm's running statistics fail. They
are dropped here except where the network is wanted as it is.
"""

import torch
from torch import Tensor, nn
from torch.func import replace_all_batch_norm_modules_
from torch_blue.vi import KullbackLeiblerLoss, convert_to_vimodule
from torch_blue.vi.distributions import Categorical

from bench.peers.layers import layered, with_optimiser
from bench.peers.peer import Bayesian, Task


def _vi(net: nn.Module, task: Task) -> Bayesian:
    if not task.as_is:
        replace_all_batch_norm_modules_(net)
    convert_to_vimodule(net, keep_weights=True)
    bound = KullbackLeiblerLoss(Categorical(), dataset_size=task.num_data)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        value: Tensor = bound(net(x, samples=1), y)
        return value

    def run(x: Tensor) -> Tensor:
        return torch.as_tensor(net(x, samples=1))[0]

    step = with_optimiser(loss, task.adam(net.parameters()))
    return layered(net, lambda name: name.endswith("_log_std"), step, run)


VI = {"torch_blue": _vi}
FUSED = {"torch_blue": _vi}
CONVERTS = {"torch_blue": _vi}
