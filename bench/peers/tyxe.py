"""TyXe: a network, a prior over its parameters, a likelihood that knows N and a guide make a `VariationalBNN`.

The ELBO is that of the whole data set: right. It calls `pyro.util.deep_getattr`, which newer pyro has elsewhere; the
one line that puts it back is the only change. Site names are global, so every network has a name of its own.
"""

import functools
from itertools import count as numbers

import pyro
import torch
from pyro import distributions
from pyro.infer import SVI, TraceMeanField_ELBO
from torch import Tensor, nn

from bench.peers.peer import Bayesian, Task, count
from bench.peers.pyro import sites

pyro.util.deep_getattr = lambda obj, name: functools.reduce(getattr, name.split("."), obj)

import tyxe  # noqa: E402

_number = numbers()


def _vi(net: nn.Module, task: Task) -> Bayesian:
    name, random = f"tyxe{next(_number)}", sites(net)
    first = tyxe.guides.PretrainedInitializer.from_net(net, prefix=f"{name}.net")
    bnn = tyxe.VariationalBNN(
        net,
        tyxe.priors.IIDPrior(distributions.Normal(0, 1)),
        tyxe.likelihoods.Categorical(task.num_data),
        functools.partial(tyxe.guides.AutoNormal, init_scale=0.05, init_loc_fn=first),
        name=name,
    )
    svi = SVI(bnn.model, bnn.guide, pyro.optim.Adam({"lr": task.lr, "fused": task.fused}), loss=TraceMeanField_ELBO())

    def step(x: Tensor, y: Tensor) -> float:
        return float(svi.step((x,), y))

    @torch.no_grad()
    def draw(x: Tensor) -> Tensor:
        return bnn.guided_forward(x)

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        guide = bnn.net_guide
        guide(x)  # the first call makes its means
        means = {site: guide.get_loc(site) for site, _ in guide.prototype_trace.iter_stochastic_nodes()}
        return pyro.poutine.condition(bnn.net, data=means)(x)

    def predict(x: Tensor, samples: int) -> Tensor:
        return bnn.predict(x, num_predictions=samples).softmax(-1)

    return Bayesian(net, step, draw, mean, random, random + count(net), predict)


VI = {"tyxe": _vi}
FUSED = {"tyxe": _vi}
CONVERTS = {"tyxe": _vi}
