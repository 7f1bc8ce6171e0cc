"""posteriors: functional transforms of a log-posterior per datum at temperature 1/N, the scale its pages ask for.

Train-mode BatchNorm fails inside its gradients; without running statistics, torch.func's own advice, it runs. That is
done here except where the network is wanted as it is.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import posteriors
import torch
import torchopt
from torch import Tensor, nn
from torch.func import functional_call, replace_all_batch_norm_modules_

from bench.peers.peer import Bayesian, Build, Task, count

Params = dict[str, Tensor]


def _log_posterior(net: nn.Module, task: Task) -> Callable[[Params, tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
    def log_posterior(params: Params, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        outputs = functional_call(net, params, batch[0])
        prior = posteriors.diag_normal_log_prob(params)
        return -task.nll(outputs, batch[1]) + prior / task.num_data, outputs

    return log_posterior


def _params(net: nn.Module, task: Task) -> Params:
    if not task.as_is:
        replace_all_batch_norm_modules_(net)
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def _vi(net: nn.Module, task: Task) -> Bayesian:
    params = _params(net, task)
    transform = posteriors.vi.diag.build(
        _log_posterior(net, task), torchopt.adam(lr=task.lr), temperature=1 / task.num_data, init_log_sds=-3.0
    )
    state = transform.init(params)

    def step(x: Tensor, y: Tensor) -> Tensor:
        nonlocal state
        state, _ = transform.update(state, (x, y), inplace=True)
        return state.nelbo

    @torch.no_grad()
    def draw(x: Tensor) -> Tensor:
        return functional_call(net, posteriors.vi.diag.sample(state), x)

    @torch.no_grad()
    def mean(x: Tensor) -> Tensor:
        return functional_call(net, dict(state.params), x)

    return Bayesian(net, step, draw, mean, sum(p.numel() for p in state.log_sd_diag.values()), count(net))


def _sampler(build: Callable[..., posteriors.types.Transform], **options: float) -> Build:
    def sampler(net: nn.Module, task: Task) -> Bayesian:
        params = _params(net, task)
        transform = build(_log_posterior(net, task), lr=task.lr, temperature=task.beta / task.num_data, **options)
        state = transform.init(params)

        def step(x: Tensor, y: Tensor) -> None:
            nonlocal state
            state, _ = transform.update(state, (x, y), inplace=True)

        @torch.no_grad()
        def run(x: Tensor) -> Tensor:
            return functional_call(net, dict(state.params), x)

        def weights() -> Params:
            return {name: p.detach().clone() for name, p in state.params.items()}

        return Bayesian(net, step, run, run, count(net), count(net), weights=weights)

    return sampler


def _sghmc(net: nn.Module, task: Task) -> Bayesian:
    """The task's rate is that of SGD with momentum 0.9, from rest.

    The default friction would be a momentum of 0.9999 at lr 0.01, and the default start momenta of standard deviation
    1, whatever the temperature, which is where the first weights go.
    """
    lr = math.sqrt(task.lr)
    return _sampler(posteriors.sgmcmc.sghmc.build, alpha=0.1 / lr, momenta=0.0)(net, replace(task, lr=lr))


VI = {"posteriors": _vi}
TUNED = {"posteriors, SGHMC": _sghmc}
SAMPLERS = {
    "posteriors, SGLD": _sampler(posteriors.sgmcmc.sgld.build),
    "posteriors, SGHMC": _sampler(posteriors.sgmcmc.sghmc.build),
}
CONVERTS = {"posteriors": _vi}
