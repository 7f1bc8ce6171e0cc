"""Natural gradients for q: the steps that solve the inverse-reference prior, one small share of the data at a time.

    q_(t+1) = argmin over q of  -lr E_q log p(D | w) + KL(q || q_t),               sum_t lr = budget

For a Gaussian q the solution moves the precision by the curvature h of the loss of all data, and then the mean by its
gradient g, with v = sigma^2 and a = lr h v,

    v <- v / (1 + a)  or  v / (1 + a + a^2 / 2),           mu <- mu - lr g v

exactly where the loss is quadratic, to first order in lr elsewhere. KL(q || q_t) over all steps adds up to the prior
q_0: after a budget of c passes over the likelihood

    q_T  ->  the mean-field posterior under q_0 and the likelihood to the power c,      1 / v = 1 / v_0 + c h

as steps become many; c = 1 is Bayes' rule. How h is estimated:

    gauss_newton      the diagonal of the Fisher information, from scores of labels that the model draws; costs a second
                      forward and backward pass, is never negative, and stands large steps
    reparameterised   h v = the gradient by log sigma, E_q[g e sigma]: free, but noisier and of either sign; the term
                      a^2 / 2 keeps v positive. Wants many steps: lr h v_0 well below 1. For VL that gradient is its own
                      Fisher information

A radial q moves as the Gaussian with its variances v = sigma^2 / D does: its own Fisher information is infinite.
[Khan & Rue 2023, "The Bayesian learning rule"; Lin, Schmidt & Khan 2020 for the last term]

>>> from credent import VI, likelihoods, priors
>>> net = torch.nn.Linear(1, 1, bias=False)
>>> bnn = VI(net, likelihoods.Gaussian(scale=1.0), priors.InverseReference("annealed"), num_data=4)
>>> optimizer = Natural(bnn, budget=1.0, steps=10)
>>> bnn(torch.ones(4, 1), torch.ones(4, 1)).backward()
>>> optimizer.step()
>>> optimizer.param_groups[0]["spent"]
0.1
"""

import math
from collections.abc import Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from credent.errors import InputError
from credent.families.location_scale import LocationScale
from credent.objectives import Objective
from credent.objectives.curvature import gradients
from credent.priors.inverse_reference import InverseReferencePrior

Curvature = Literal["gauss_newton", "reparameterised"]

_SPENT = 1 - 1e-9  # of a budget that was added up from many shares
_HOOKS: WeakKeyDictionary[Objective, RemovableHandle] = WeakKeyDictionary()  # one of them at a time sees a forward


class Natural(Optimizer):
    """Natural gradient steps on the q of an objective with `priors.InverseReference("annealed")`.

    budget: passes over the likelihood in all: its power in the posterior.
    steps: how many optimiser steps share the budget; each has `lr = budget / steps`. An epoch has len(loader) of them,
        or ceil(len(loader) / k) under `fit(accumulate=k)`. A scheduler may move lr; the budget holds, and `fit` warns
        where the shares did not add up to it, as under a rate that only falls.
    curvature: how the curvature of the loss is estimated.
    """

    def __init__(
        self, bnn: Objective, *, budget: float = 1.0, steps: int, curvature: Curvature = "gauss_newton"
    ) -> None:
        if not isinstance(bnn, Objective):
            raise InputError(
                f"Natural({type(bnn).__name__}, ...): it moves the q of an objective, so give it that: write"
                " Natural(bnn, budget=1.0, steps=...), where bnn is a cr.VI."
            )
        q, prior = bnn.posterior, bnn.penalty
        if not (isinstance(prior, InverseReferencePrior) and prior.mode == "annealed" and isinstance(q, LocationScale)):
            raise InputError(
                f"Natural passes over the likelihood, and its prior is the q that it starts from: write"
                f" cr.VI(net, likelihood, cr.priors.InverseReference('annealed'), num_data={bnn.num_data}) in the place"
                f" of {type(bnn).__name__} with {bnn.described}."
            )
        if bnn.beta != 1:
            raise InputError(
                f"Natural(budget={budget}) on an objective with beta={bnn.beta}: the budget alone weighs the likelihood"
                " against the first q. Leave beta=1, and write budget=1/beta."
            )
        if not (budget > 0 and math.isfinite(budget)):
            raise InputError(
                f"Natural(budget={budget}): passes over the likelihood in all, a positive number; 1 is Bayes' rule."
            )
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise InputError(
                f"Natural(steps={steps!r}): how many optimiser steps share the budget, such as epochs * len(loader)."
            )
        if curvature not in ("gauss_newton", "reparameterised"):
            raise InputError(f"Natural(curvature={curvature!r}): write 'gauss_newton' or 'reparameterised'.")
        self.bnn, self.q, self.prior = bnn, q, prior
        self.budget, self.steps, self.curvature = float(budget), steps, curvature
        parameters = [*bnn.layout.params().values(), q.scales.rho]
        super().__init__([{"name": "q", "params": parameters}], {"lr": budget / steps, "spent": 0.0})
        self._squares: Tensor | None = None
        self._rows = 0
        if bnn in _HOOKS:
            _HOOKS.pop(bnn).remove()
        if curvature == "gauss_newton":
            _HOOKS[bnn] = bnn.register_forward_hook(self._estimate, with_kwargs=True)
        prior.moved(q)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Spend the next share of the budget."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        rho, group = self.q.scales.rho, self.param_groups[0]
        if rho.grad is None:
            return loss
        if self.done:
            raise InputError(
                f"Natural(budget={self.budget:g}): all of it is spent, and q is what was asked for. To train in more"
                " steps, build it with steps= as many as there will be: epochs * len(loader)."
            )
        share = min(float(group["lr"]), self.budget - group["spent"])
        unit = share * self.bnn.num_data  # the loss is per datum
        layout, means = self.bnn.layout, self.bnn.layout.params()
        if self.curvature == "gauss_newton":
            change = (unit * self._fisher()).mul_(self._variance()).log1p_()
        else:
            a = unit * rho.grad
            change = torch.log1p(a + a.square() / 2)
        rho.sub_(change, alpha=0.5)
        variance = layout.unflatten(self._variance())
        for name, mean in means.items():
            if mean.grad is not None:
                mean.addcmul_(variance[name], mean.grad, value=-unit)
        group["spent"] += share
        self.prior.moved(self.q)
        return loss

    @property
    def done(self) -> bool:
        """Whether all of the budget is spent."""
        return bool(self.param_groups[0]["spent"] >= _SPENT * self.budget)

    def _variance(self) -> Tensor:
        """v of every weight, (P,)."""
        return self.bnn.layout.flatten(self.q.stddev()).square_()

    def _estimate(self, bnn: Objective, inputs: tuple[Any, ...], named: dict[str, Any], loss: Tensor) -> None:
        """After a training forward: the square of the summed scores of drawn labels, at a draw of q."""
        if not (bnn.training and torch.is_grad_enabled()):
            return
        weights = {k: w.requires_grad_() for k, w in next(self.q.draws()).items()}
        with bnn.network.frozen_statistics():
            outputs = bnn.network(weights, inputs[0] if inputs else named["x"])
        leaf = outputs.detach().requires_grad_()
        score = bnn.likelihood.score(leaf, self._labels(leaf.device)).detach()
        squares = bnn.layout.flatten(
            dict(zip(weights, gradients(outputs, list(weights.values()), score), strict=True))
        ).square_()
        self._squares = squares.clone() if self._squares is None else self._squares.add_(squares)
        self._rows += len(outputs)

    def _labels(self, device: torch.device) -> torch.Generator:
        """A stream of its own: processes with unequal shares of a batch stay together in q's."""
        seed = torch.randint(2**62, (), generator=self.q.noise.generator(device), device=device)
        return torch.Generator(device).manual_seed(int(seed))

    def _fisher(self) -> Tensor:
        """The Fisher information per datum from the forwards since the last step, (P,)."""
        if self._squares is None:
            raise InputError(
                "Natural(curvature='gauss_newton') estimates curvature in the objective's training forward, and there"
                " was none since the last step: call loss = bnn(x, y) in training mode before optimizer.step(). If a"
                " second Natural was built on the objective, step with that one."
            )
        squares, rows = self._squares, torch.tensor(float(self._rows), device=self._squares.device)
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(squares)
            distributed.all_reduce(rows)
        self._squares, self._rows = None, 0
        return squares.div_(rows)
