"""Variational inference: minus the evidence lower bound, per datum.

    loss = -(1/B) sum_i E_q log p(y_i | x_i, w)  +  (beta / N) KL(q || p)

The first expectation is taken over `samples` draws of the weights, reparameterised. The KL is closed form where prior
and family have one; otherwise it is estimated, from the same draws or from `kl_samples` others, by one of the
estimators "path", "total" and "score" of `objectives.sampled_kl`. A prior may say that weights are drawn from a
distribution that it makes of q: then that is sampled, pays the KL, and is the posterior.

>>> net = nn.Linear(1, 1, bias=False)
>>> _ = net.weight.data.fill_(0.0)
>>> q = families.Gaussian(initial_scale=1.0)
>>> bnn = VI(net, likelihoods.Gaussian(scale=1.0), priors.Gaussian(scale=1.0), num_data=10, family=q)
>>> _ = bnn(torch.zeros(1, 1), torch.zeros(1, 1))
>>> round(bnn.last.penalty.item(), 6), round(bnn.last.nll.item(), 4)        # q is the prior;  log(2 pi)/2
(0.0, 0.9189)
"""

from contextlib import nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from credent import families, likelihoods, priors
from credent.errors import InputError
from credent.families.gaussian import GaussianPosterior
from credent.families.posterior import Variational
from credent.layout import Layout, Random
from credent.network import Params
from credent.objectives.objective import Beta, Objective
from credent.objectives.output_noise import OutputNoise
from credent.objectives.sampled_kl import Estimator, kl_at, sampled_kl
from credent.penalty import Description


class Family(Protocol):
    """Hyper-parameters of a variational family, before it meets a network."""

    def bind(self, layout: Layout) -> Variational:
        """q on these random parameters."""
        ...


class VI(Objective):
    """Learn q(w) by maximising the evidence lower bound.

    `estimator="closed"` takes the KL's closed form where there is one, and else q's entropy and log p at a draw.
    There, `kl_samples` takes so many draws for the KL alone, a thousand at the memory of one; None takes the draws that
    the likelihood has. `noise="local"` and `"flipout"` put the noise on the outputs of layers (`output_noise`).
    """

    def __init__(
        self,
        net: nn.Module,
        likelihood: likelihoods.Likelihood,
        prior: Description = priors.Gaussian(),  # noqa: B008  (frozen)
        *,
        num_data: int,
        beta: Beta = 1.0,
        family: Family = families.Gaussian(),  # noqa: B008  (frozen)
        samples: int = 1,
        estimator: Estimator = "closed",
        kl_samples: int | None = None,
        noise: Literal["weight", "local", "flipout"] = "weight",
        random: Random = None,
    ) -> None:
        super().__init__(net, likelihood, prior, num_data, beta, random)
        if samples < 1:
            raise InputError(f"VI(samples={samples}): at least one draw of the weights per step; none at all is MAP.")
        if estimator not in ("closed", "path", "total", "score"):
            raise InputError(f"VI(estimator={estimator!r}): write 'closed', 'path', 'total' or 'score'.")
        if estimator != "closed" and not isinstance(self.penalty, priors.Prior):
            raise InputError(f"VI(estimator={estimator!r}) estimates log p(w), and this penalty has no density.")
        if kl_samples is not None and kl_samples < 1:
            raise InputError(
                f"VI(kl_samples={kl_samples}): at least one draw for the KL, or None for the likelihood's draws; no"
                " penalty at all is beta=0."
            )
        self.q = self.penalty.sampled(family.bind(self.layout))
        self.samples = samples
        self.kl_samples = kl_samples
        self.estimator: Estimator = estimator
        closed = self._has_closed_kl()
        self._own_draws = kl_samples is not None and not closed
        self._output_noise = None if noise == "weight" else self._on_outputs(noise, closed)

    @property
    def posterior(self) -> Variational:
        """q(w)."""
        return self.q

    def _on_outputs(self, noise: Literal["local", "flipout"], closed: bool) -> OutputNoise:
        if noise not in ("local", "flipout"):
            raise InputError(f"VI(noise={noise!r}): write 'weight', 'local' or 'flipout'.")
        if not isinstance(self.q, GaussianPosterior):
            raise InputError(
                f"VI(noise={noise!r}) adds up a layer's independent Gaussians, and {type(self.q).__name__} is not made"
                " of them: take family=families.Gaussian(), or noise='weight'."
            )
        if not closed and self.kl_samples is None:
            raise InputError(
                f"VI(noise={noise!r}) draws no weights from which this prior's KL could be estimated: write"
                " kl_samples=1, or take a prior with a closed form, such as priors.Gaussian()."
            )
        return OutputNoise(self.net, self.layout, noise)

    def parts(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The batch at `samples` draws; running statistics follow the first."""
        if self._output_noise is not None:
            return self._parts_with_noisy_outputs(self._output_noise, x, y)
        nlls: list[Tensor] = []
        with self.q.cached():
            first, closed = self._first_draw()
            draws = [first]
            for s in range(self.samples):
                if s > 0:
                    draws.append(self.q.rsample())
                with nullcontext() if s == 0 else self.network.frozen_statistics():
                    outputs = self.network(draws[s], x)
                nlls.append(self.likelihood.mean_nll(outputs, y))
            nll = nlls[0] if self.samples == 1 else torch.stack(nlls).mean()
            return nll, self._sampled_kl(draws) if closed is None else closed, outputs

    def _parts_with_noisy_outputs(self, noise: OutputNoise, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert isinstance(self.q, GaussianPosterior)
        nlls = []
        kl = self._closed_kl()
        if kl is None:
            assert isinstance(self.penalty, priors.Prior)
            kl = sampled_kl(self.q, self.penalty, self.estimator, self.kl_samples or 1)
        for s in range(self.samples):
            with nullcontext() if s == 0 else self.network.frozen_statistics(), noise.installed(self.q):
                outputs = self.network(noise.others(self.q), x)
            nlls.append(self.likelihood.mean_nll(outputs, y))
        return torch.stack(nlls).mean(), kl, outputs

    def _first_draw(self) -> tuple[Params, Tensor | None]:
        if self._own_draws and isinstance(self.penalty, priors.Prior):  # before the likelihood's graph takes memory
            kl = sampled_kl(self.q, self.penalty, self.estimator, self.kl_samples or 1)
            return self.q.rsample(), kl
        if self.estimator == "closed" and isinstance(self.penalty, priors.Prior):
            return self.q.rsample_and_kl(self.penalty)
        return self.q.rsample(), self._closed_kl()

    def kl(self, draws: list[Params]) -> Tensor:
        """r(q) in nats: KL(q || p) in closed form, or from these draws of `q.rsample()`."""
        closed = self._closed_kl()
        return self._sampled_kl(draws) if closed is None else closed

    @torch.no_grad()
    def _has_closed_kl(self) -> bool:
        """Asked without running a penalty, which may remember that it was."""
        if not isinstance(self.penalty, priors.Prior):
            return True
        return self.estimator == "closed" and self.q.kl(self.penalty) is not None

    def _closed_kl(self) -> Tensor | None:
        if not isinstance(self.penalty, priors.Prior):
            penalty: Tensor = self.penalty(self.q)
            return penalty
        return self.q.kl(self.penalty) if self.estimator == "closed" else None

    def _sampled_kl(self, draws: list[Params]) -> Tensor:
        assert isinstance(self.penalty, priors.Prior)
        return torch.stack([kl_at(self.q, self.penalty, params, self.estimator) for params in draws]).mean()
