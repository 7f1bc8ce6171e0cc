"""What a posterior says about inputs: one value object per likelihood, averaged over draws of the weights.

For S draws with outputs f_s the prediction is the mixture p(y|x) = (1/S) sum_s p(y|f_s). Its uncertainty has two parts:
what the draws disagree about (epistemic, falls with more data) and what each draw is unsure of (aleatoric, does not).

    classes:     entropy H[p] = mutual information + mean_s H[p_s]           (nats)
    regression:  stddev^2     = Var_s[f_s] + mean_s scale_s^2                (squared units of y)

Of classes, `at(T)` is the prediction at a temperature, p_T ~ p^(1/T): how much doubt there is changes, and whose it is
does not, so that the parts of the entropy keep their shares of it.

Shapes: n inputs, C classes, D outputs, S draws. `ClassPredictive`: probs, stddev (n, C); entropies (n,).
`BinaryPredictive`: everything (n, D). `GaussianPredictive`: mean, stddev, epistemic, aleatoric, entropy (n, D).

>>> pred = ClassPredictive.average([torch.tensor([[1.0, 0.0]]).log(), torch.tensor([[0.0, 1.0]]).log()])
>>> pred.mutual_information                     # each draw is certain, and they disagree: ln 2
tensor([0.6931])
>>> pred.aleatoric
tensor([0.])
>>> pred
ClassPredictive(shape (1, 2), 2 draws)
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from credent.errors import InputError

_NEVER = -1000.0  # a log-probability whose exponential is zero; minus infinity times zero is no number
_NODES = 24  # per draw; the error stays below 1e-4 nats, also where draws are far apart


@dataclass(frozen=True, repr=False)
class ClassPredictive:
    """Class probabilities averaged over draws."""

    log_probs: Tensor
    """Log of the posterior predictive probabilities, (n, C)."""
    stddev: Tensor
    """Standard deviation over draws of the class probabilities, (n, C): zero for a single draw."""
    aleatoric: Tensor
    """Mean entropy of the draws in nats, (n,)."""
    num_draws: int

    def __repr__(self) -> str:
        return _brief(self)

    @classmethod
    def average(cls, log_probs: Iterable[Tensor]) -> "ClassPredictive":
        """From the log-probabilities of each draw, (n, C) each, in constant memory."""
        total = _Total()
        for log_p in log_probs:
            total.add(log_p)
        log_mean, stddev, entropy = total.mean()
        return cls(log_mean, stddev, entropy.sum(-1), total.count)

    def at(self, temperature: float) -> "ClassPredictive":
        """At another temperature; the likeliest class stays, and `stddev` is still that of the draws as they are."""
        if temperature == 1:
            return self
        tempered = (self.log_probs / temperature).log_softmax(-1)
        entropy: Tensor = torch.special.entr(tempered.exp()).sum(-1)
        return replace(self, log_probs=tempered, aleatoric=_share(self.aleatoric, self.entropy, entropy))

    @property
    def probs(self) -> Tensor:
        """Posterior predictive probabilities, (n, C)."""
        return self.log_probs.exp()

    @property
    def mean(self) -> Tensor:
        """The same as `probs`."""
        return self.probs

    @property
    def entropy(self) -> Tensor:
        """Entropy of the averaged prediction in nats, (n,): all of the uncertainty about the label."""
        each: Tensor = torch.special.entr(self.probs)
        return each.sum(-1)

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
        return self.log_probs.argmax(-1)

    def log_prob(self, y: Tensor) -> Tensor:
        """Log predictive probability of the labels, (n,); extra axes are summed within a datum."""
        self._check(y)
        return self.log_probs.gather(-1, y.long().unsqueeze(-1)).flatten(1).sum(1)

    def _check(self, y: Tensor) -> None:
        shape, classes = self.log_probs.shape[:-1], self.log_probs.shape[-1]
        if y.is_floating_point() or y.shape != shape or bool(((y < 0) | (y >= classes)).any()):
            raise InputError(
                f"labels are integers from 0 to {classes - 1} of shape {tuple(shape)}, one per prediction; y is"
                f" {y.dtype} of shape {tuple(y.shape)}."
            )

    def score(self, y: Tensor) -> tuple[str, float]:
        """The familiar measure of these predictions: accuracy."""
        self._check(y)
        return "accuracy", (self.label == y).double().mean().item()


@dataclass(frozen=True, repr=False)
class BinaryPredictive:
    """Probabilities of independent yes/no outputs, averaged over draws."""

    log_probs: Tensor
    """Log of the posterior predictive probability of a one, (n, D)."""
    log_complements: Tensor
    """Log of the probability of a zero, (n, D): one minus a float32 that is nearly one would lose it."""
    stddev: Tensor
    """Standard deviation over draws of the probability of a one, (n, D)."""
    aleatoric: Tensor
    """Mean entropy of the draws in nats, (n, D)."""
    num_draws: int

    def __repr__(self) -> str:
        return _brief(self)

    @classmethod
    def average(cls, logits: Iterable[Tensor]) -> "BinaryPredictive":
        """From the logits of each draw, (n, D) each, in constant memory."""
        ones, zeros = _Total(), _Total()
        for logit in logits:
            ones.add(functional.logsigmoid(logit))
            zeros.add(functional.logsigmoid(-logit))
        (log_probs, stddev, entropy), (log_complements, _, rest) = ones.mean(), zeros.mean()
        return cls(log_probs, log_complements, stddev, entropy + rest, ones.count)

    def at(self, temperature: float) -> "BinaryPredictive":
        """At another temperature; what is likelier than not stays so, and `stddev` is that of the draws as they are."""
        if temperature == 1:
            return self
        logits = (self.log_probs - self.log_complements) / temperature
        one, zero = functional.logsigmoid(logits), functional.logsigmoid(-logits)
        tempered = replace(self, log_probs=one, log_complements=zero)
        return replace(tempered, aleatoric=_share(self.aleatoric, self.entropy, tempered.entropy))

    @property
    def probs(self) -> Tensor:
        """Posterior predictive probability of a one, (n, D)."""
        return self.log_probs.exp()

    @property
    def mean(self) -> Tensor:
        """The same as `probs`."""
        return self.probs

    @property
    def entropy(self) -> Tensor:
        """Entropy of the averaged prediction in nats, (n, D)."""
        one: Tensor = torch.special.entr(self.probs)
        zero: Tensor = torch.special.entr(self.log_complements.exp())
        return one + zero

    @property
    def mutual_information(self) -> Tensor:
        """Entropy less its aleatoric part, (n, D)."""
        return (self.entropy - self.aleatoric).clamp_min(0)

    @property
    def epistemic(self) -> Tensor:
        """The same as `mutual_information`."""
        return self.mutual_information

    def log_prob(self, y: Tensor) -> Tensor:
        """Log predictive probability of the outcomes, (n,), summed over the outputs."""
        _same_shape(y, self.log_probs)
        return torch.where(y > 0.5, self.log_probs, self.log_complements).reshape(len(y), -1).sum(1)

    def score(self, y: Tensor) -> tuple[str, float]:
        """The familiar measure of these predictions: accuracy over all outputs."""
        _same_shape(y, self.log_probs)
        return "accuracy", ((self.probs > 0.5) == (y > 0.5)).double().mean().item()


@dataclass(frozen=True, repr=False)
class GaussianPredictive:
    """An equally weighted mixture of Gaussians, one component per draw."""

    means: Tensor
    """Outputs of the draws, (S, n, D)."""
    scales: Tensor
    """Noise standard deviations of the draws, broadcastable to (S, n, D)."""

    def __repr__(self) -> str:
        return _brief(self)

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
        _same_shape(y, self.means[0])
        each = -0.5 * ((y - self.means) / self.scales).square() - self.scales.log() - 0.5 * math.log(2 * math.pi)
        return each.reshape(*each.shape[:2], -1).sum(-1).logsumexp(0) - math.log(self.num_draws)

    def score(self, y: Tensor) -> tuple[str, float]:
        """The familiar measure of these predictions: root mean squared error of the mean."""
        _same_shape(y, self.means[0])
        return "rmse", (self.mean - y).double().square().mean().sqrt().item()

    def cdf(self, y: Tensor) -> Tensor:
        """Predictive probability of a value below `y`, per output, (n, D)."""
        _same_shape(y, self.means[0])
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
        if not 0 < level < 1:
            raise InputError(f"interval({level}): a probability strictly between 0 and 1, such as 0.95.")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    @property
    def entropy(self) -> Tensor:
        """Differential entropy of each output in nats, (n, D), by Gauss-Hermite quadrature around each draw."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        scales = self.scales.expand_as(self.means)
        total = torch.zeros_like(self.means[0])
        for mean, scale in zip(self.means, scales, strict=True):
            for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
                z = (mean + node * scale - self.means) / scales
                log_density = (-0.5 * z.square() - scales.log()).logsumexp(0)
                total -= weight * log_density
        constant = math.log(self.num_draws * math.sqrt(2 * math.pi))
        return total / (self.num_draws * math.sqrt(2 * math.pi)) + constant

    @property
    def mutual_information(self) -> Tensor:
        """Entropy less the mean entropy of the draws, in nats, (n, D)."""
        own = 0.5 * math.log(2 * math.pi * math.e) + self.scales.expand_as(self.means).log().mean(0)
        return (self.entropy - own).clamp_min(0)


Predictive = ClassPredictive | BinaryPredictive | GaussianPredictive
"""What `predict` returns."""


def _brief(pred: "Predictive") -> str:
    """What is predicted and from how many draws; thousands of numbers in a terminal say nothing."""
    return f"{type(pred).__name__}(shape {tuple(pred.mean.shape)}, {pred.num_draws} draws)"


def _share(part: Tensor, whole: Tensor, other: Tensor) -> Tensor:
    """As much of another whole; of nothing, nothing."""
    return torch.where(whole > 0, part / whole, 0.0).clamp(max=1.0) * other


def _same_shape(y: Tensor, prediction: Tensor) -> None:
    if y.shape != prediction.shape:
        raise InputError(
            f"targets have shape {tuple(y.shape)}, predictions {tuple(prediction.shape)}; broadcasting them would pair"
            " every target with every prediction."
        )


class _Total:
    """Sums over draws from which the mean prediction, its spread and the mean entropy follow."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, log_p: Tensor) -> None:
        """One more draw, by Welford's update for the spread and in log-space for the mean."""
        self.count += 1
        p, finite = log_p.exp(), log_p.clamp_min(_NEVER)
        if self.count == 1:
            self._log_sum, self._mean, self._squares, self._p_log_p = log_p, p, torch.zeros_like(p), p * finite
            return
        delta = p - self._mean
        self._mean = torch.add(self._mean, delta, alpha=1 / self.count)
        self._squares = torch.addcmul(self._squares, delta, delta, value=1 - 1 / self.count)
        self._log_sum = torch.logaddexp(self._log_sum, log_p)
        self._p_log_p = torch.addcmul(self._p_log_p, p, finite)

    def mean(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log of the mean probability, standard deviation of the probability, mean share of the entropy, -p log p."""
        if self.count == 0:
            raise InputError("no draws: ask for samples >= 1.")
        log_mean = (self._log_sum - math.log(self.count)).contiguous()
        return log_mean, (self._squares / self.count).sqrt().contiguous(), -self._p_log_p / self.count
