"""The averaged prediction as a function of its input: what an attack on a posterior is against.

    p(y | x) = (1/S) sum_s p(y | f(x; w_s)),     w_s ~ posterior, the same draws at every x

    d/dx log p(y | x) = sum_s r_s d/dx log p(y | f(x; w_s)),     r_s = p(y | f_s) / sum_t p(y | f_t)

An attack on one draw at a time is fooled by noise that the average does not have; this gradient is the average's own.
It is summed over draws as they come, each weighed against the largest p(y | f_s) so far, in the memory of one draw.

Slopes of the log-likelihood are taken in float64 and scaled to one for each input while they pass through the network:
a float32 network that is sure of itself, p(y | x) = 1 to seven digits, has a gradient too, and hides it otherwise.

Several outputs of one datum are one event, whose probability is that of all of them together. Where predictions have a
temperature, the gradient is that of the average before it: a temperature changes no decision, and may hide a slope.

Shapes: x (n, ...) of floats, y as the likelihood takes it; gradients as x, in float64.

>>> from credent.families import Draws
>>> from credent.likelihoods import Gaussian
>>> posterior = Draws([{"weight": torch.tensor([[1.0]])}, {"weight": torch.tensor([[3.0]])}])
>>> averaged = Averaged(nn.Linear(1, 1, bias=False), posterior, Gaussian(scale=1.0))
>>> averaged.gradient(torch.tensor([[1.0]]), torch.tensor([[2.0]]))[1]     # slopes 1 and -3, equally likely
tensor([[-1.]], dtype=torch.float64)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from credent.errors import InputError, NonFiniteError
from credent.families.posterior import Posterior
from credent.likelihoods import Likelihood
from credent.network import Network, Params
from credent.objectives.objective import Objective
from credent.predict import check_statistics, normalised, predict, warn_of_running_statistics
from credent.predictive import Predictive


@dataclass(frozen=True, eq=False)
class Averaged:
    """A network's prediction under a posterior, averaged over fixed draws; the arguments are those of `predict`."""

    net: nn.Module
    posterior: Posterior
    likelihood: Likelihood
    samples: int | None = 32
    """Draws of the weights; None for all that a set of draws has."""
    how: Literal["sampled", "mean"] = "sampled"
    """`"mean"` is the mean network, as the objective `VL` predicts classes."""
    seed: int = 0
    """The same seed, the same draws: an attack sees one function."""
    batch_size: int = 256
    """Inputs that go through the network at a time."""
    statistics: Iterable[Any] | None = None
    """Batches of training data on which BatchNorm's statistics are re-estimated for each draw."""

    @classmethod
    def of(cls, objective: Objective, samples: int | None = 32, seed: int = 0) -> "Averaged":
        """What `objective.predict` says: its way, its posterior so far, its last training batches for BatchNorm."""
        how = objective.how
        return cls(
            objective.net,
            objective.posterior,
            objective.likelihood,
            samples,
            how,  # type: ignore[arg-type]  # the third way is refused below
            seed,
            statistics=(objective.statistics or None) if how == "sampled" else None,
        )

    def __post_init__(self) -> None:
        if self.how not in ("sampled", "mean"):
            raise InputError(
                f"Averaged(how={self.how!r}): attacks need the gradient by the input, which the tangent of a network"
                " does not offer here; write how='sampled', or how='mean' for the mean network."
            )
        if self.seed is None:
            raise InputError("Averaged(seed=None): draws that change under an attack would hide the way; write seed=0.")
        if (self.samples is not None and self.samples < 1) or self.batch_size < 1:
            raise InputError(
                f"Averaged(samples={self.samples}, batch_size={self.batch_size}): at least one draw, and one input at a"
                " time; the mean network is how='mean'."
            )
        check_statistics(self.statistics)
        if self.statistics is None:
            line = "Averaged.of(bnn), or statistics=, a list of batches of training data"
            warn_of_running_statistics(Network(self.net), self._draws(), line, stacklevel=4)

    def predict(self, x: Tensor) -> Predictive:
        """What the average says about x."""
        return predict(
            self.net,
            self.posterior,
            self.likelihood,
            x,
            samples=self.samples,
            how=self.how,
            batch_size=self.batch_size,
            seed=self.seed,
            statistics=self.statistics,
        )

    @torch.inference_mode(False)
    @torch.no_grad()
    def gradient(self, x: Tensor, y: Tensor) -> tuple[Predictive, Tensor]:
        """The prediction at x, and d/dx log p(y | x), (n, ...), of the average before its temperature."""
        network = Network(self.net)
        total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        weight = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        peak = torch.full_like(weight, -torch.inf)

        def outputs() -> Iterator[Tensor]:
            for params in self._draws():
                found = []
                with network.evaluating(), normalised(network, params, self.statistics, x):
                    for start in range(0, len(x), self.batch_size):
                        part = slice(start, start + self.batch_size)
                        f, log_prob, slope = self._slope(network, params, x[part], y[part])
                        highest = torch.maximum(peak[part], log_prob)
                        keep, add = (peak[part] - highest).exp(), (log_prob - highest).exp()
                        total[part] = total[part] * _like(keep, slope) + slope * _like(add, slope)
                        weight[part] = weight[part] * keep + add
                        peak[part] = highest
                        found.append(f)
                yield torch.cat(found)

        prediction = self.likelihood.predictive(outputs())
        return prediction, total / _like(weight, total)

    def _draws(self) -> Iterator[Params]:
        return iter([self.posterior.mean()]) if self.how == "mean" else self.posterior.draws(self.samples, self.seed)

    def _slope(self, network: Network, params: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs of one draw, the log-likelihood (n,) of y, and its gradient by x."""
        with torch.enable_grad():
            x, y = x.detach().clone().requires_grad_(), y.clone()  # tensors of inference mode have no gradients
            outputs = network(params, x)
            f = outputs.detach().double().requires_grad_()
            log_prob = self.likelihood.log_prob(f, y)
            if not bool(log_prob.isfinite().all()):
                raise NonFiniteError(
                    "the log-likelihood of an input under attack is not finite, and neither is its gradient: look at"
                    " the network's outputs there, Averaged(...).predict(x)."
                )
            (by_output,) = torch.autograd.grad(log_prob.sum(), f)
            size = by_output.reshape(len(x), -1).abs().amax(1).clamp_min(torch.finfo(f.dtype).tiny)
            (by_input,) = torch.autograd.grad(outputs, x, (by_output / _like(size, by_output)).to(outputs.dtype))
        return outputs.detach(), log_prob.detach(), by_input.double() * _like(size, by_input)


def _like(each: Tensor, other: Tensor) -> Tensor:
    """One number an input, (n,), as a factor of a tensor (n, ...)."""
    return each.reshape(-1, *[1] * (other.ndim - 1))
