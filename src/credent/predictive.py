"""What a posterior says about inputs: one value object per likelihood, averaged over draws of the weights.

For S draws with outputs f_s the prediction is the mixture p(y|x) = (1/S) sum_s p(y|f_s). Its uncertainty has two parts:
what the draws disagree about (epistemic, falls with more data) and what each draw is unsure of (aleatoric, does not).

    classes:     entropy H[p] = mutual information + mean_s H[p_s]           (nats)
    regression:  stddev^2     = Var_s[f_s] + mean_s scale_s^2                (squared units of y)

Shapes: n inputs, C classes, D outputs, S draws. `ClassPredictive`: probs, stddev (n, C); entropies (n,).
`BinaryPredictive`: everything (n, D). `GaussianPredictive`: mean, stddev, epistemic, aleatoric, entropy (n, D).

>>> pred = ClassPredictive.average([torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])])
>>> pred.mutual_information                     # each draw is certain, and they disagree: ln 2
tensor([0.6931])
>>> pred.aleatoric
tensor([0.])
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from credent.errors import InputError


@dataclass(frozen=True)
class ClassPredictive:
    """Class probabilities averaged over draws."""

    probs: Tensor
    """Posterior predictive probabilities, (n, C)."""
    stddev: Tensor
    """Standard deviation over draws of the class probabilities, (n, C): zero for a single draw."""
    aleatoric: Tensor
    """Mean entropy of the draws in nats, (n,)."""
    num_draws: int

    @classmethod
    def average(cls, probs: Iterable[Tensor]) -> "ClassPredictive":
        """From the probabilities of each draw, (n, C) each, in constant memory."""
        mean, spread, entropy, count = _running(probs, _entropy)
        return cls(mean, spread, entropy, count)

    @property
    def mean(self) -> Tensor:
        """The same as `probs`."""
        return self.probs

    @property
    def entropy(self) -> Tensor:
        """Entropy of the averaged prediction in nats, (n,): all of the uncertainty about the label."""
        return _entropy(self.probs)

    @property
    def mutual_information(self) -> Tensor:
        """Information about the weights that the label would bring, in nats, (n,): entropy less its aleatoric part."""
        return (self.entropy - self.aleatoric).clamp_min(0)

    @property
    def epistemic(self) -> Tensor:
        """The same as `mutual_information`."""
        return self.mutual_information

    @property
    def label(self) -> Tensor:
        """The most probable class, (n,)."""
        return self.probs.argmax(-1)

    def log_prob(self, y: Tensor) -> Tensor:
        """Log predictive probability of the labels, (n,)."""
        return self.probs.gather(-1, y.unsqueeze(-1)).squeeze(-1).log()

    def score(self, y: Tensor) -> tuple[str, float]:
        """The familiar measure of these predictions: accuracy."""
        return "accuracy", (self.label == y).double().mean().item()


@dataclass(frozen=True)
class BinaryPredictive:
    """Probabilities of independent yes/no outputs, averaged over draws."""

    probs: Tensor
    """Posterior predictive probability of a one, (n, D)."""
    stddev: Tensor
    """Standard deviation over draws of that probability, (n, D)."""
    aleatoric: Tensor
    """Mean entropy of the draws in nats, (n, D)."""
    num_draws: int

    @classmethod
    def average(cls, probs: Iterable[Tensor]) -> "BinaryPredictive":
        """From the probabilities of each draw, (n, D) each, in constant memory."""
        mean, spread, entropy, count = _running(probs, _binary_entropy)
        return cls(mean, spread, entropy, count)

    @property
    def mean(self) -> Tensor:
        """The same as `probs`."""
        return self.probs

    @property
    def entropy(self) -> Tensor:
        """Entropy of the averaged prediction in nats, (n, D)."""
        return _binary_entropy(self.probs)

    @property
    def mutual_information(self) -> Tensor:
        """Entropy less its aleatoric part, (n, D)."""
        return (self.entropy - self.aleatoric).clamp_min(0)

    @property
    def epistemic(self) -> Tensor:
        """The same as `mutual_information`."""
        return self.mutual_information

    def log_prob(self, y: Tensor) -> Tensor:
        """Log predictive probability of the outcomes, (n, D)."""
        y = y.to(self.probs.dtype)
        return torch.xlogy(y, self.probs) + torch.xlogy(1 - y, 1 - self.probs)

    def score(self, y: Tensor) -> tuple[str, float]:
        """The familiar measure of these predictions: accuracy over all outputs."""
        return "accuracy", ((self.probs > 0.5) == (y > 0.5)).double().mean().item()


@dataclass(frozen=True)
class GaussianPredictive:
    """An equally weighted mixture of Gaussians, one component per draw."""

    means: Tensor
    """Outputs of the draws, (S, n, D)."""
    scales: Tensor
    """Noise standard deviations of the draws, broadcastable to (S, n, D)."""

    @property
    def num_draws(self) -> int:
        """S."""
        return self.means.shape[0]

    @property
    def mean(self) -> Tensor:
        """Predictive mean, (n, D)."""
        return self.means.mean(0)

    @property
    def epistemic(self) -> Tensor:
        """Standard deviation of the outputs over draws, (n, D)."""
        return self.means.std(0, correction=0)

    @property
    def aleatoric(self) -> Tensor:
        """Root mean square of the noise's standard deviation over draws, (n, D)."""
        return self.scales.expand_as(self.means).square().mean(0).sqrt()

    @property
    def stddev(self) -> Tensor:
        """Predictive standard deviation, (n, D)."""
        return torch.hypot(self.epistemic, self.aleatoric)

    def log_prob(self, y: Tensor) -> Tensor:
        """Log predictive density of targets (n, D), jointly over the outputs, (n,)."""
        if y.shape != self.means.shape[1:]:
            raise InputError(f"targets have shape {tuple(y.shape)}, predictions {tuple(self.means.shape[1:])}.")
        each = -0.5 * ((y - self.means) / self.scales).square() - self.scales.log() - 0.5 * math.log(2 * math.pi)
        return each.reshape(*each.shape[:2], -1).sum(-1).logsumexp(0) - math.log(self.num_draws)

    def score(self, y: Tensor) -> tuple[str, float]:
        """The familiar measure of these predictions: root mean squared error of the mean."""
        return "rmse", (self.mean - y).double().square().mean().sqrt().item()

    def cdf(self, y: Tensor) -> Tensor:
        """Predictive probability of a value below `y`, per output, (n, D)."""
        below: Tensor = torch.special.ndtr((y - self.means) / self.scales)
        return below.mean(0)

    def quantile(self, level: float) -> Tensor:
        """The value that y stays below with probability `level`, per output, (n, D), by bisection."""
        if not 0 < level < 1:
            raise InputError(f"quantile({level}): a level lies strictly between 0 and 1, such as 0.975.")
        own: Tensor = self.means + self.scales * torch.special.ndtri(torch.tensor(level, dtype=self.means.dtype))
        low, high = own.amin(0), own.amax(0)  # the mixture's quantile lies between its components' quantiles
        for _ in range(60):
            middle = (low + high) / 2
            above = self.cdf(middle) > level
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return (low + high) / 2

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Central interval that holds y with probability `level`, two tensors (n, D)."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    @property
    def entropy(self) -> Tensor:
        """Differential entropy of each output in nats, (n, D), by the trapezium rule over the mixture's range."""
        scales = self.scales.expand_as(self.means)
        low, high = (self.means - 8 * scales).amin(0), (self.means + 8 * scales).amax(0)
        points = 1024  # the integrand is smooth; the error stays below 1e-4 nats while components overlap
        step = (high - low) / points
        total = torch.zeros_like(low)
        for i in range(points + 1):
            z = (low + i * step - self.means) / scales
            log_density = (-0.5 * z.square() - scales.log()).logsumexp(0)
            log_density = log_density - math.log(self.num_draws * math.sqrt(2 * math.pi))
            total -= log_density.exp() * log_density
        return total * step

    @property
    def mutual_information(self) -> Tensor:
        """Entropy less the mean entropy of the draws, in nats, (n, D)."""
        own = 0.5 * math.log(2 * math.pi * math.e) + self.scales.expand_as(self.means).log().mean(0)
        return (self.entropy - own).clamp_min(0)


Predictive = ClassPredictive | BinaryPredictive | GaussianPredictive
"""What `predict` returns."""


def _running(probs: Iterable[Tensor], entropy: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor, int]:
    """Mean, standard deviation and mean entropy over draws, by Welford's update."""
    count, mean, square, entropies = 0, torch.zeros(()), torch.zeros(()), torch.zeros(())
    for p in probs:
        count += 1
        if count == 1:
            mean, square, entropies = p.clone(), torch.zeros_like(p), entropy(p)
            continue
        delta = p - mean
        mean = mean + delta / count
        square = square + delta * (p - mean)
        entropies = entropies + (entropy(p) - entropies) / count
    if count == 0:
        raise InputError("no draws: ask for samples >= 1.")
    return mean, (square / count).sqrt(), entropies, count


def _entropy(probs: Tensor) -> Tensor:
    return -torch.xlogy(probs, probs).sum(-1)


def _binary_entropy(probs: Tensor) -> Tensor:
    return -torch.xlogy(probs, probs) - torch.xlogy(1 - probs, 1 - probs)
