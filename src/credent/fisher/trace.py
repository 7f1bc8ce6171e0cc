"""The trace of the Fisher information: how much one datum says about the weights, and how steep training is.

    Tr F(w) = E_x E_{y ~ p(y | x, w)} |d/dw log p(y | x, w)|^2

`trace` averages the squared norms of single examples' gradients, with labels drawn from the model: unbiased. Observed
labels in their place would give the empirical Fisher, another thing. `minibatch_trace` is the form that the Fisher
penalty takes, from the gradient of a whole minibatch of B examples:

    Tr F ~ B |(1/B) sum_i g_i|^2

Given the inputs, gradients at drawn labels are independent with mean zero, so this is unbiased as well; without the
factor B it is the trace divided by B. Its standard deviation is about sqrt(2 Tr F^2) however large B is, where that of
the first form falls as 1/sqrt(B). (With observed labels it would be too large by (B - 1) |mean gradient|^2.)
Jastrzebski et al. 2021 [papers.md].

w are the trainable parameters of the network; a learnt noise level is not among them. BatchNorm is in evaluation mode:
in training mode the gradient of one example is not its own. Of a posterior, the trace is averaged over draws
(`how="sampled"`) or taken at its mean (`how="mean"`), which are not the same.

>>> from credent.likelihoods import Gaussian
>>> net = nn.Linear(2, 1)
>>> found = trace(net, Gaussian(scale=0.5), torch.tensor([[3.0, 4.0]]), labels=4000)     # (|x|^2 + 1) / scale^2 = 104
>>> abs(found.value - 104) < 8
True
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.families.posterior import Posterior
from credent.fisher.norms import Norms, Score
from credent.likelihoods import Likelihood
from credent.network import Network, Params, take
from credent.predict import check_statistics, normalised, warn_of_running_statistics


@dataclass(frozen=True, eq=False)
class Trace:
    """An estimate of Tr F, with the numbers that it is the mean of."""

    each: Tensor
    """|g_i|^2 of every draw of the weights and every input, averaged over its labels: (draws, n)."""
    parameters: dict[str, float]
    """The part of every parameter; they add up to the trace."""

    @property
    def value(self) -> float:
        """The trace, in nats squared per unit of weight squared."""
        return float(self.each.double().mean())

    @property
    def standard_error(self) -> float:
        """Of the value as an estimate for all inputs like these, from the spread between them; NaN of one input."""
        by_input = self.each.double().mean(0)
        return float(by_input.std() / len(by_input) ** 0.5) if len(by_input) > 1 else math.nan

    def __float__(self) -> float:
        return self.value


def trace(
    net: nn.Module,
    likelihood: Likelihood,
    x: Any,
    posterior: Posterior | None = None,
    *,
    samples: int | None = 5,
    how: Literal["sampled", "mean"] = "sampled",
    labels: int = 1,
    batch_size: int = 128,
    statistics: Iterable[Any] | None = None,
    seed: int = 0,
) -> Trace:
    """Tr F at the inputs `x`: at the network's own parameters, or over `samples` draws of a posterior, or at its mean.

    x: a tensor, or a tuple or dict of tensors as the network takes them; `batch_size` of them at a time.
    labels: drawn for every input; each further set costs one more backward pass.
    statistics: batches of training data, as in `predict`, on which BatchNorm's statistics are re-estimated for each set
        of weights; they otherwise stay the network's, and a warning says where they fit none.
    seed: of the draws and the labels; the same seed gives the same numbers, and other streams are left alone.
    """
    if labels < 1 or batch_size < 1 or (samples is not None and samples < 1):
        raise InputError(f"trace(samples={samples}, labels={labels}, batch_size={batch_size}): all count from 1.")
    if how not in ("sampled", "mean"):
        raise InputError(f"trace(how={how!r}): write 'sampled' for the average over draws, or 'mean'.")
    check_statistics(statistics)
    norms, score = Norms(net), _drawn(likelihood, seed, _device(net))
    if statistics is None:
        line = "statistics=, a list of batches of training data"
        warn_of_running_statistics(norms.network, _weights(posterior, how, samples, seed), line, stacklevel=3)
    each: list[Tensor] = []
    parts: dict[str, float] = {}
    for params in _weights(posterior, how, samples, seed):
        found: list[Params] = []
        with norms.network.evaluating(), normalised(norms.network, params, statistics, x):
            for chunk in _chunks(x, batch_size, _device(net)):
                found.append(norms(params, chunk, score, labels))
        by_name = {k: torch.cat([squares[k] for squares in found]) for k in found[0]}
        each.append(torch.stack(list(by_name.values())).sum(0))
        parts = {k: parts.get(k, 0.0) + float(squares.double().mean()) for k, squares in by_name.items()}
    return Trace(torch.stack(each), {k: part / len(each) for k, part in parts.items()})


def minibatch_trace(
    net: nn.Module,
    likelihood: Likelihood,
    x: Any,
    *,
    labels: int = 1,
    batch_size: int = 128,
    seed: int = 0,
) -> Tensor:
    """B |mean gradient|^2 of every minibatch of `x`, in its order, and every set of labels: (labels, batches)."""
    if labels < 1 or batch_size < 1:
        raise InputError(f"minibatch_trace(labels={labels}, batch_size={batch_size}): both count from 1.")
    network, score = Network(net), _drawn(likelihood, seed, _device(net))
    params = [p for p in net.parameters() if p.requires_grad]
    columns: list[Tensor] = []
    with network.evaluating(), torch.enable_grad():
        for chunk in _chunks(x, batch_size, _device(net)):
            outputs = network.mean(chunk)
            column = []
            for _ in range(labels):
                mean = score(outputs.detach()) / len(outputs)
                grads = torch.autograd.grad(outputs, params, mean, retain_graph=True, allow_unused=True)
                squares = [g.square().sum() for g in grads if g is not None]
                column.append(len(outputs) * torch.stack(squares).sum())
            columns.append(torch.stack(column))
    return torch.stack(columns, 1)


def _weights(posterior: Posterior | None, how: str, samples: int | None, seed: int) -> Iterator[Params]:
    if posterior is None:
        yield {}
    elif how == "mean":
        yield posterior.mean()
    else:
        yield from posterior.draws(samples, seed)


def _drawn(likelihood: Likelihood, seed: int, device: torch.device) -> Score:
    """Scores at drawn labels, from a stream of their own."""
    generator = torch.Generator(device).manual_seed(seed)

    def score(outputs: Tensor) -> Tensor:
        with torch.enable_grad():
            y = likelihood.draw(outputs, generator).detach()
            return likelihood.score_at(outputs.requires_grad_(), y).detach()

    return score


def _chunks(x: Any, size: int, device: torch.device) -> Iterator[Any]:
    first = next(iter(x.values())) if isinstance(x, dict) else x[0] if isinstance(x, tuple | list) else x
    if not isinstance(first, Tensor) or first.ndim == 0 or len(first) == 0:
        raise InputError(
            f"the Fisher trace is an average over inputs, and got {type(first).__name__} without any: give a tensor"
            " (n, ...), or a tuple or dict of them as the network takes them."
        )
    for start in range(0, len(first), size):
        yield take(x, torch.arange(start, min(start + size, len(first))), device)


def _device(net: nn.Module) -> torch.device:
    trainable = [p for p in net.parameters() if p.requires_grad]
    if not trainable:
        raise InputError(
            f"{type(net).__name__} has no trainable parameter, and the Fisher information is that of its parameters:"
            " p.requires_grad_(True) for those that count."
        )
    return trainable[0].device
