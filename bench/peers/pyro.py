"""pyro: parameters become PyroSample sites with a N(0, 1) prior, an AutoNormal guide is q, SVI the training.

The plate of N data, of which a batch is seen, makes the ELBO that of the whole data set: right. Site names are global,
so every guide here has a class, and so a name, of its own.
"""

from itertools import count as numbers

import pyro
import torch
from pyro import distributions
from pyro.infer import SVI, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.infer.autoguide.initialization import init_to_value
from pyro.nn import PyroSample
from pyro.nn.module import to_pyro_module_
from torch import Tensor, nn

from bench.peers.peer import Bayesian, Task, count

_number = numbers()


def _vi(net: nn.Module, task: Task) -> Bayesian:
    random = sites(net)
    values = {name: p.detach().clone() for name, p in net.named_parameters(remove_duplicate=False)}
    to_pyro_module_(net)
    for module in net.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            prior = distributions.Normal(torch.zeros_like(p), torch.ones_like(p)).to_event(p.dim())
            setattr(module, name, PyroSample(prior))

    def model(x: Tensor, y: Tensor | None = None) -> Tensor:
        logits: Tensor = net(x)
        with pyro.poutine.scale(scale=1 / task.beta), pyro.plate("data", task.num_data, subsample_size=len(x)):
            pyro.sample("obs", distributions.Categorical(logits=logits), obs=y)
        return logits

    named = type(f"AutoNormal{next(_number)}", (AutoNormal,), {})
    guide = named(pyro.poutine.block(model, hide=["obs"]), init_loc_fn=init_to_value(values=values), init_scale=0.05)
    arguments = {"lr": task.lr, "fused": task.fused}
    adam: object = pyro.optim.Adam(arguments)
    if task.steps is not None:
        options = {"optimizer": torch.optim.Adam, "optim_args": arguments, "T_max": task.steps}
        adam = pyro.optim.CosineAnnealingLR(options)
    svi = SVI(model, guide, adam, loss=TraceMeanField_ELBO())

    def step(x: Tensor, y: Tensor) -> float:
        value = float(svi.step(x, y))
        if task.steps is not None:
            adam.step()
        return value

    def at(sites: dict[str, Tensor], x: Tensor) -> Tensor:
        return pyro.poutine.condition(net, data=sites)(x)

    @torch.no_grad()
    def draw(x: Tensor) -> Tensor:
        return at(guide(x), x)

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        guide(x)  # the first call makes its means
        return at(guide.median(x), x)

    return Bayesian(net, step, draw, mean, random, random + count(net))


def sites(net: nn.Module) -> int:
    """Weights that become random: those of every module, so that a weight which two modules share counts twice."""
    return sum(p.numel() for module in net.modules() for p in module.parameters(recurse=False))


VI = {"pyro": _vi}
FUSED = {"pyro": _vi}
CONVERTS = {"pyro": _vi}
