"""Likelihoods: log p(y | f), how y is drawn, and how the outputs of several draws become one prediction.

    Categorical   log p(y|f) = log softmax(f)_y                            f (n, ..., C), y (n, ...) of classes
      "logistic"  log p(y|f) = log s(f_y) - log sum_k s(f_k)               the same shapes, s the logistic function
    Bernoulli     log p(y|f) = y log s(f) + (1-y) log(1 - s(f))            f, y (n, ...), y in {0, 1}
    Gaussian      log p(y|f) = log N(y; f, scale^2)                        f, y (n, D); heteroscedastic f (n, 2D)

`log_prob` sums over everything but the first axis, so it is one number per datum, (n,). A learnt noise level is a
parameter of the likelihood's own.

>>> Categorical().log_prob(torch.zeros(1, 4), torch.tensor([2]))              # -ln 4
tensor([-1.3863])
>>> Categorical(link="logistic").log_prob(torch.tensor([[0.0, 50.0]]), torch.tensor([0]))      # ln (1/2) / (1/2 + 1)
tensor([-1.0986])
>>> Gaussian(scale=0.5).log_prob(torch.zeros(1, 1), torch.ones(1, 1))         # -2 - ln(0.5 sqrt(2 pi))
tensor([-2.2258])
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from credent.errors import InputError
from credent.predictive import BinaryPredictive, ClassPredictive, GaussianPredictive, Predictive

Link = Literal["softmax", "logistic"]
"""How a network's outputs become the probabilities of classes."""

_FEW = 32  # classes


class Likelihood(nn.Module, ABC):
    """What a network's outputs f say about the observed y."""

    keeps_draws: ClassVar[bool] = False
    """Whether a prediction holds the outputs of every draw, or only their running average."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Log-likelihood of each datum in nats, (n,)."""

    def mean_nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        """-(1/n) sum_i log p(y_i | f_i), what a batch pays."""
        return -self.log_prob(outputs, y).mean()

    @abstractmethod
    def draw(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Targets drawn from p(y | outputs), shaped as observed ones are."""

    def score(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A random score, shaped as the outputs: mean zero, covariance the Fisher information of f, differentiable.

        Here it is d/df log p(y | f) at a drawn y, whose dependence on f counts only if `draw` is differentiable.
        """
        return self.score_at(outputs, self.draw(outputs, generator))

    def score_at(self, outputs: Tensor, y: Tensor) -> Tensor:
        """d/df log p(y | f), differentiable; a y that moves with the outputs is held while the derivative is taken."""
        f = outputs.view_as(outputs)  # a node of its own
        return torch.autograd.grad(self.log_prob(f, y).sum(), f, create_graph=True)[0]

    @abstractmethod
    def predictive(self, outputs: Iterable[Tensor]) -> Predictive:
        """The mixture over the outputs of several draws."""


_INTEGERS = {getattr(torch, kind + bits) for kind in ("int", "uint") for bits in ("8", "16", "32", "64")}
_NONE = torch.iinfo(torch.int64).min  # the label that torch may pass over: none has it


class Categorical(Likelihood):
    """One of C classes. Extra axes (positions of a sequence) are summed within a datum.

    `link` says how outputs f become probabilities: `"softmax"` takes them for logits, p_k = exp(f_k) / sum_j exp(f_j);
    `"logistic"` squashes each by itself and normalises, p_k = s(f_k) / sum_j s(f_j), which is the softmax of log s(f):
    there no output wins by being large, only by the others' being small.

    `temperature`, T, one unless `credent.calibrate` has set it, is that of predictions, whose averaged probabilities
    are raised to 1/T, and of nothing else.
    """

    temperature: Tensor

    def __init__(self, link: Link = "softmax") -> None:
        super().__init__()
        self.register_buffer("temperature", torch.ones(()))
        if link not in ("softmax", "logistic"):
            raise InputError(f"Categorical(link={link!r}): write 'softmax' or 'logistic'.")
        self.link = link

    def logits(self, outputs: Tensor) -> Tensor:
        """What the softmax is taken of, shaped as the outputs."""
        return functional.logsigmoid(outputs) if self.link == "logistic" else outputs

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Log-likelihood of each datum, (n,)."""
        self._check(outputs, y)
        logits = self.logits(outputs)
        if outputs.ndim == 2:
            return -functional.cross_entropy(logits, y.long(), reduction="none")
        each = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1).long(), reduction="none")
        return -each.reshape(y.shape[0], -1).sum(1)

    def mean_nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        """-(1/n) sum_i log p(y_i | f_i); where a datum is one label, as torch's mean, with fewer nodes in the graph."""
        overridden = type(self).log_prob is not Categorical.log_prob  # a subclass pays what it says
        if overridden or outputs.ndim != 2 or y.dtype not in _INTEGERS:
            return super().mean_nll(outputs, y)
        if not outputs.is_cpu:  # another device would stop at a wrong label, and for good
            self._check(outputs, y)
        try:
            return functional.cross_entropy(self.logits(outputs), y.long(), ignore_index=_NONE)
        except (IndexError, RuntimeError, ValueError):  # as torch says it of labels of a wrong shape or range
            self._check(outputs, y)
            raise

    def draw(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Classes drawn with their probabilities, (n, ...)."""
        probs = self.logits(outputs.detach()).softmax(-1).reshape(-1, outputs.shape[-1])
        return torch.multinomial(probs, 1, generator=generator).reshape(outputs.shape[:-1])

    def score(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """sqrt(p) e - p (sqrt(p) . e) for random signs e: its covariance is that of the drawn class, diag p - p p^T."""
        log_p = self.logits(outputs).log_softmax(-1)
        signed = (log_p / 2).exp() * _signs(outputs, generator)
        score = signed - log_p.exp() * signed.sum(-1, keepdim=True)
        return score * (-outputs).sigmoid() if self.link == "logistic" else score  # the slope of log s is 1 - s

    def predictive(self, outputs: Iterable[Tensor]) -> ClassPredictive:
        """Averaged class probabilities."""
        return ClassPredictive.average(_log_softmax(self.logits(f)) for f in outputs).at(float(self.temperature))

    def _check(self, outputs: Tensor, y: Tensor) -> None:
        if y.shape == outputs.shape and outputs.ndim > 1:
            raise InputError("Categorical needs class numbers, and y has the shape of the logits: write y.argmax(-1).")
        if y.dtype not in _INTEGERS:
            raise InputError(f"Categorical needs integer class labels, and y is {y.dtype}: write y.long().")
        if y.shape != outputs.shape[:-1]:
            raise InputError(
                f"Categorical needs one label per row of logits: logits have shape {tuple(outputs.shape)}, so labels"
                f" must have shape {tuple(outputs.shape[:-1])}, and y has {tuple(y.shape)}."
                + (" One-hot labels become classes with y.argmax(-1)." if y.shape == outputs.shape else "")
                + (
                    " Classes are on the last axis here: end the network with outputs.movedim(1, -1)."
                    if outputs.ndim > 2 and y.shape == (outputs.shape[0], *outputs.shape[2:])
                    else ""
                )
            )
        low, high = (int(v) for v in torch.aminmax(y)) if y.numel() else (0, 0)
        if low < 0 or high >= outputs.shape[-1]:
            raise InputError(
                f"labels run from {low} to {high}, but the network has {outputs.shape[-1]} outputs, so classes are"
                f" 0 to {outputs.shape[-1] - 1}: renumber the labels or give the network more outputs."
                + (" Labels that are to be passed over are not known here: leave such rows out." if low < 0 else "")
            )


class Bernoulli(Likelihood):
    """Independent yes/no outputs; outputs are logits of the shape of y. `temperature` is as in `Categorical`."""

    temperature: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.ones(()))

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Log-likelihood of each datum, (n,)."""
        _same_shape("Bernoulli", outputs, y)
        if bool(((y != 0) & (y != 1)).any()):
            raise InputError("Bernoulli needs targets 0 or 1, and y has others: several classes want Categorical().")
        each = functional.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none")
        return -each.reshape(y.shape[0], -1).sum(1)

    def draw(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Zeros and ones of the outputs' shape and type."""
        return torch.bernoulli(outputs.detach().sigmoid(), generator=generator)

    def score(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """sqrt(p (1 - p)) e for random signs e."""
        log_scale = (functional.logsigmoid(outputs) + functional.logsigmoid(-outputs)) / 2
        return log_scale.exp() * _signs(outputs, generator)

    def predictive(self, outputs: Iterable[Tensor]) -> BinaryPredictive:
        """Averaged probabilities."""
        return BinaryPredictive.average(outputs).at(float(self.temperature))


class Gaussian(Likelihood):
    """Real targets with Gaussian noise of known, learnt or input-dependent standard deviation.

    `scale` is the noise's standard deviation, `"learnt"` for one parameter per output (`outputs` of them), or
    `"heteroscedastic"` for a network with 2D outputs: D means, then D raw scales that pass through a softplus.
    A learnt scale starts at `initial`; begin below the noise you expect, because from above variational inference may
    settle for explaining everything as noise.
    """

    keeps_draws = True
    _FLOOR = 1e-4  # keeps the density finite when a network becomes certain of a point

    def __init__(self, scale: float | str = 1.0, outputs: int = 1, initial: float = 1.0) -> None:
        super().__init__()
        self.log_scale: nn.Parameter | None = None
        self.known = 0.0
        if scale == "learnt":
            if not (initial > 0 and math.isfinite(initial)):
                raise InputError(f"Gaussian('learnt', initial={initial}): a scale starts at a positive number, as 0.1.")
            self.log_scale = nn.Parameter(torch.full((outputs,), math.log(initial)))
        elif isinstance(scale, str):
            if scale != "heteroscedastic":
                raise InputError(f"Gaussian(scale={scale!r}): write a positive number, 'learnt' or 'heteroscedastic'.")
        elif not (scale > 0 and math.isfinite(scale)):
            raise InputError(f"Gaussian(scale={scale}): the noise's standard deviation is a positive number.")
        else:
            self.known = float(scale)

    def split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and noise scale of y, the first (n, D), the second broadcastable to it."""
        if self.known:
            # 0-d float64 keeps its digits and does not change the outputs' type, bfloat16 included
            return outputs, torch.tensor(self.known, dtype=torch.float64, device=outputs.device)
        if self.log_scale is not None:
            if outputs.ndim < 2 or outputs.shape[-1] != len(self.log_scale):
                raise InputError(
                    f"Gaussian('learnt', outputs={len(self.log_scale)}) has a noise level per output, and the network's"
                    f" outputs have shape {tuple(outputs.shape)}: write Gaussian('learnt', outputs=D) for shape (n, D)."
                )
            return outputs, self.log_scale.exp()
        if outputs.ndim < 2 or outputs.shape[-1] % 2:
            raise InputError(
                f"Gaussian('heteroscedastic') reads D means and D scales from 2D outputs, and the network's outputs"
                f" have shape {tuple(outputs.shape)}: double its last layer, as in nn.Linear(width, 2 * D)."
            )
        mean, raw = outputs.chunk(2, -1)
        return mean, functional.softplus(raw) + self._FLOOR

    def log_prob(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Log-likelihood of each datum, (n,)."""
        mean, scale = self.split(outputs)
        _same_shape("Gaussian", mean, y)
        each = -0.5 * ((y - mean) / scale).square() - scale.log() - 0.5 * math.log(2 * math.pi)
        return each.reshape(y.shape[0], -1).sum(1)

    def draw(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Noisy targets, (n, D), differentiable in the outputs and the noise level."""
        mean, scale = self.split(outputs)
        return mean + scale * torch.empty_like(mean).normal_(generator=generator)

    def predictive(self, outputs: Iterable[Tensor]) -> GaussianPredictive:
        """The mixture of one Gaussian per draw."""
        parts = [tuple(t.detach() for t in self.split(f)) for f in outputs]
        if not parts:
            raise InputError("no draws: ask for samples >= 1.")
        means = torch.stack([mean for mean, _ in parts])
        scales = torch.stack([scale for _, scale in parts]).to(means.dtype)
        between = [1] * (means.ndim - scales.ndim)  # one noise level for all data broadcasts over them
        return GaussianPredictive(means, scales.reshape(len(parts), *between, *scales.shape[1:]))


def _log_softmax(logits: Tensor) -> Tensor:
    """log softmax over the last axis, where torch's own takes several times as long for a handful of classes.

    It is quicker over the first axis of a copy, and so is what follows, which leaves the copy as it lies in memory.
    """
    if logits.shape[-1] > _FEW:
        return logits.log_softmax(-1)
    return logits.movedim(-1, 0).contiguous().log_softmax(0).movedim(0, -1)


def _signs(like: Tensor, generator: torch.Generator | None) -> Tensor:
    half = torch.full_like(like, 0.5, requires_grad=False)
    return 2 * torch.bernoulli(half, generator=generator) - 1


def _same_shape(name: str, outputs: Tensor, y: Tensor) -> None:
    if y.shape != outputs.shape:
        hint = ""
        if y.shape == outputs.shape[:-1] and outputs.shape[-1:] == (1,):
            hint = " Write y.unsqueeze(-1)."
        elif outputs.shape == y.shape[:-1] and y.shape[-1:] == (1,):
            hint = " Write y.squeeze(-1), or let the network keep its last axis."
        raise InputError(
            f"{name} needs targets shaped as the predictions: predictions have shape {tuple(outputs.shape)} and y has"
            f" {tuple(y.shape)}; broadcasting them would pair every target with every prediction.{hint}"
        )
