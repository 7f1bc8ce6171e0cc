"""Several chains of one small network in a single call: their weights lie stacked in front of each other.

    loss = sum_c [ -(1/B) sum_i log p(y_i | x_i, w_c) - (beta / N) log p(w_c) ],        w = (w_1, ..., w_C)

The gradient by w_c is that of chain c alone, and `SGLD` and `PSGLD` work element by element, so a step moves every
chain as it would move by itself, with noise of its own. The network runs once for all chains (`torch.func.vmap`), which
pays where a network is so small that calling it costs more than computing it.

    stack = Stacked([make() for _ in range(8)], likelihood, prior, num_data=n)       # from eight places
    result = fit(stack, SGLD(stack.parameters(), lr, num_data=n), loader, steps=5000, keep=Thin())

Shapes: a parameter of shape (...) is one of shape (C, ...) in `stack.net`, under the same name.

>>> nets = [nn.Linear(1, 1, bias=False) for _ in range(2)]
>>> _ = nets[0].weight.data.fill_(1.0), nets[1].weight.data.fill_(3.0)
>>> stack = Stacked(nets, Gaussian(scale=1.0), priors.Gaussian(scale=1.0), num_data=2)
>>> stack(torch.ones(1, 1), torch.ones(1, 1)).backward()
>>> stack.net.weight.grad.flatten()                                      # (w - 1) + w / 2
tensor([0.5000, 3.5000])
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from credent import priors
from credent.errors import InputError
from credent.families.dirac import Dirac, DiracPosterior
from credent.families.draws import Draws
from credent.layout import Layout
from credent.likelihoods import Gaussian, Likelihood  # noqa: F401  (Gaussian: the doctest's)
from credent.network import Params, owners
from credent.objectives.objective import Beta, Objective
from credent.penalty import Description
from credent.priors import Prior


class Stacked(Objective):
    """`MAP` for C networks of one kind at once; each starts where it is, and all trainable parameters are random.

    The networks themselves stay as they are. Those that are not trained (frozen parameters, buffers) are shared.
    """

    def __init__(
        self,
        nets: Sequence[nn.Module],
        likelihood: Likelihood,
        prior: Description = priors.Gaussian(),  # noqa: B008  (frozen)
        *,
        num_data: int,
        beta: Beta = 1.0,
    ) -> None:
        _check(nets)
        super().__init__(_stack(nets), likelihood, prior, num_data, beta, None)
        self.count = len(nets)
        self.penalty = prior.bind(Layout(nets[0]))  # the fans are those of one network
        if not isinstance(self.penalty, Prior):
            raise InputError(
                f"Stacked({self.described}): chains draw from a density, and this is a penalty without one; give a"
                " prior, such as priors.Gaussian()."
            )
        self.q: DiracPosterior = self.penalty.sampled(Dirac().bind(self.layout))

    @property
    def posterior(self) -> DiracPosterior:
        """A point mass at the stacked parameters."""
        return self.q

    def parts(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over the chains, and the first one's outputs."""
        assert isinstance(self.penalty, Prior)
        weights = self.layout.params()
        outputs = torch.func.vmap(self.network, in_dims=(0, None), randomness="different")(weights, x)
        labels = y.expand(self.count, *y.shape)
        nll = self.count * self.likelihood.mean_nll(outputs.flatten(0, 1), labels.flatten(0, 1))
        log_prior = torch.func.vmap(self.penalty.log_prob)(weights)
        return nll, -log_prior.sum(), outputs[0]

    def forward(self, x: Any, y: Tensor) -> Tensor:
        """The chains' losses, summed; `last` has their mean."""
        loss: Tensor = super().forward(x, y)
        assert self.last is not None
        self.last = replace(self.last, nll=self.last.nll / self.count, penalty=self.last.penalty / self.count)
        return loss

    def chains(self) -> list[Params]:
        """The weights of each chain as they are now."""
        weights = {k: p.detach() for k, p in self.layout.params().items()}
        return [{k: w[c] for k, w in weights.items()} for c in range(self.count)]

    def _drawn(self) -> Draws:
        """The chains where they are now, one draw each."""
        return Draws(self.chains())


def _check(nets: Sequence[nn.Module]) -> None:
    """Networks of the same parameters, equal in all that is not sampled, and none that vmap cannot run."""
    if isinstance(nets, nn.Module) or len(nets) == 0:
        raise InputError("Stacked takes the chains' networks, one for each: [make_net() for _ in range(4)].")
    states = [net.state_dict(keep_vars=True) for net in nets]
    for c, state in enumerate(states):
        if type(nets[c]) is not type(nets[0]) or _shapes(state) != _shapes(states[0]):
            raise InputError(f"network {c} is not of the shape of network 0: chains are of one network, begun anew.")
        fixed = [k for k, v in state.items() if not v.requires_grad and not torch.equal(v, states[0][k])]
        if fixed:
            raise InputError(
                f"{fixed[0]} is not trained and differs between networks 0 and {c}: one call serves all chains. Give"
                " all the same, or run the chains in processes of their own with cr.chains(...)."
            )
    norms = [k for k, m in nets[0].named_modules() if isinstance(m, _NormBase) and m.track_running_stats]
    if norms:
        raise InputError(
            f"layer {norms[0]!r} keeps running statistics, which stacked chains would share: take GroupNorm, or run the"
            " chains in processes of their own with cr.chains(...)."
        )


def _shapes(state: dict[str, Any]) -> dict[str, Any]:
    return {k: (v.shape, v.dtype, v.device, v.requires_grad) for k, v in state.items()}


def _stack(nets: Sequence[nn.Module]) -> nn.Module:
    """A copy of the first network whose trainable parameters are those of all, (C, ...); tied weights stay tied."""
    stacked = copy.deepcopy(nets[0])
    each = [dict(net.named_parameters()) for net in nets]
    for name, places in owners(stacked).items():
        if each[0][name].requires_grad:
            parameter = nn.Parameter(torch.stack([params[name].detach() for params in each]))
            for module, attribute in places:
                module._parameters[attribute] = parameter
    return stacked
