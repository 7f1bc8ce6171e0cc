"""What is minimised: a loss in nats per datum. N and beta live here and nowhere else.

    loss = -(1/B) sum_i E_q log p(y_i | x_i, w)  +  (beta / N) r(q)

B is the size of the batch, N = `num_data` the size of the whole data set: the penalty is paid once per data set, so a
batch pays its share and neither the batch size nor the number of layers changes the optimum. r(q) is KL(q || p) for a
prior. An objective is an `nn.Module` whose forward is the loss; what it was made of stays in `last`.
"""

import math
import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from credent.calibrate import calibrate
from credent.errors import InputError
from credent.families.dirac import DiracPosterior
from credent.families.posterior import Posterior, Variational
from credent.layout import Layout, Random
from credent.likelihoods import Likelihood
from credent.network import Network
from credent.penalty import Description, Penalty
from credent.predict import How, predict
from credent.predictive import Predictive
from credent.priors.prior import Prior

Beta = float | Callable[[int], float]
"""The penalty's weight: a number, or a function of the number of training batches seen (`objectives.weights`)."""

_RECENT = 4  # training batches that are kept at hand for BatchNorm's statistics


@dataclass(frozen=True)
class Terms:
    """The parts of one loss, without gradients: loss = nll + beta * penalty / num_data."""

    nll: Tensor
    """Mean expected negative log-likelihood of the batch, nats per datum."""
    penalty: Tensor
    """r(q), the KL divergence for a prior, in nats for the whole data set."""
    beta: float
    num_data: int
    outputs: Tensor = field(repr=False)
    """The network's outputs for the batch at the last weights used, (B, ...)."""

    @property
    def loss(self) -> Tensor:
        """Nats per datum."""
        return torch.add(self.nll, self.penalty, alpha=self.beta / self.num_data)


@dataclass
class Seen:
    """What batches leave behind; apart from the module, whose own attributes take long to set."""

    batches: int = 0
    last: Terms | None = None


class Objective(nn.Module, ABC):
    """A loss over a network, a likelihood and a penalty; subclasses say how a batch becomes its two parts."""

    def __init__(
        self, net: nn.Module, likelihood: Likelihood, prior: Description, num_data: int, beta: Beta, random: Random
    ) -> None:
        super().__init__()
        whole = isinstance(num_data, SupportsIndex) and not isinstance(num_data, bool)  # numpy's integers too
        if not whole or num_data < 1:
            raise InputError(
                f"num_data={num_data!r}: the number of training examples, len(dataset), not of batches. The penalty is"
                " paid once per data set, so each batch needs to know its share."
            )
        if not callable(beta) and not beta >= 0:
            raise InputError(f"beta={beta}: the penalty's weight is not negative; 1 is Bayes' rule, 0 no penalty.")
        if not isinstance(likelihood, Likelihood):
            raise InputError(f"likelihood={likelihood!r}: write one of credent.likelihoods, such as Categorical().")
        if isinstance(prior, type) or not callable(getattr(prior, "bind", None)):
            raise InputError(
                f"prior={prior!r}: write a prior such as priors.Gaussian(), a penalty such as penalties.L1('fan_in'),"
                " or what penalties.prior_of found; there is no prior where it found none, and beta=0 takes no penalty."
            )
        self.net = net
        self.likelihood = likelihood
        self.num_data = operator.index(num_data)
        self.beta = beta
        self.network = Network(net)
        self.layout = Layout(net, random)
        self.penalty: Penalty = prior.bind(self.layout)
        self.described = repr(prior)
        self._seen = Seen()
        self._normalises = self.network.normalises_after(self.layout.names)
        self._recent: deque[Any] = deque(maxlen=_RECENT)

    @property
    def last(self) -> Terms | None:
        """The parts of the latest loss, None before the first."""
        return self._seen.last

    @last.setter
    def last(self, terms: Terms | None) -> None:
        self._seen.last = terms

    @property
    @abstractmethod
    def posterior(self) -> Variational:
        """q(w), trained so far."""

    @property
    def pays_kl(self) -> bool:
        """Whether the penalty is a KL divergence: of a distribution with a spread from a prior with a density."""
        return isinstance(self.penalty, Prior) and not isinstance(self.posterior, DiracPosterior)

    @property
    def how(self) -> How:
        """How weights become predictions, unless `predict` is told otherwise."""
        return "sampled"

    @property
    def statistics(self) -> list[Any] | None:
        """The last training batches, on which BatchNorm is re-estimated for each draw; None where no draw needs it."""
        needed = self._normalises and not isinstance(self.posterior, DiracPosterior)
        return list(self._recent) if needed else None

    @abstractmethod
    def parts(self, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean expected negative log-likelihood of the batch, r(q), and the outputs (B, ...)."""

    def forward(self, x: Any, y: Tensor) -> Tensor:
        """The loss of one batch in nats per datum."""
        if not isinstance(y, Tensor):
            raise InputError(f"targets are a tensor, and here is a {type(y).__name__}: torch.as_tensor(y).")
        rows = len(y) if y.ndim else 0
        if not rows:
            raise InputError(f"the batch is empty: y has shape {tuple(y.shape)}.")
        if rows > self.num_data:
            raise InputError(
                f"a batch of {rows} is larger than num_data={self.num_data}, the size of the whole data set:"
                " write num_data=len(dataset)."
            )
        seen = self._seen
        beta = float(self.beta(seen.batches) if callable(self.beta) else self.beta)
        if not (beta >= 0 and math.isfinite(beta)):
            raise InputError(f"beta is {beta} for batch {seen.batches}: the penalty's weight is a number >= 0.")
        nll, penalty, outputs = self.parts(x, y)
        if self.training:
            seen.batches += 1
            if self._normalises:
                self._recent.append(x)
        seen.last = Terms(nll.detach(), penalty.detach(), beta, self.num_data, outputs.detach())
        return torch.add(nll, penalty, alpha=beta / self.num_data)

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Within: the loss of every batch has all its parts, where training takes turns, too: they can be compared."""
        yield

    def predict(self, x: Any, samples: int | None = 32, **options: Any) -> Predictive:
        """What the posterior says about `x`; options are those of `credent.predict`.

        Where BatchNorm follows random weights, its statistics are re-estimated for each draw on the last training
        batches, unless `statistics=` gives others.
        """
        options = self._predicting(options)
        return predict(self.net, self._drawn(), self.likelihood, x, samples=samples, **options)

    def calibrate(self, x: Any, y: Tensor, samples: int | None = 32, **options: Any) -> float:
        """Set the temperature of predictions by data that were not trained on, and return it (`credent.calibrate`)."""
        options = {"how": self.how} | self._predicting(options)
        return calibrate(self.net, self._drawn(), self.likelihood, x, y, samples=samples, **options)

    def _drawn(self) -> Posterior:
        """What predictions draw weights from."""
        return self.posterior

    def _predicting(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a prediction with the statistics that it needs."""
        statistics = self.statistics if options.get("how", self.how) == "sampled" else None
        return options if not statistics or "statistics" in options else options | {"statistics": statistics}

    def param_groups(
        self, lr: float, scale_lr: float | None = None, *, ratio: float | None = None
    ) -> list[dict[str, Any]]:
        """Groups for any torch optimiser: means, scales (of q and of the penalty), and what is not random.

        The scales' rate is `scale_lr`, or `ratio` times that of the means, or the same. Random parameters have their
        prior, so weight decay is off for them and for the scales.
        """
        if ratio is not None:
            if scale_lr is not None:
                raise InputError(
                    f"param_groups(scale_lr={scale_lr:g}, ratio={ratio:g}) says the scales' rate twice: write"
                    f" param_groups(lr={lr:g}, scale_lr={scale_lr:g}) or param_groups(lr={lr:g}, ratio={ratio:g})."
                )
            if not (ratio >= 0 and math.isfinite(ratio)):
                raise InputError(
                    f"param_groups(ratio={ratio:g}): scales learn at ratio times the means' rate, so it is a number"
                    " >= 0, such as 0.1 for scales ten times slower."
                )
            scale_lr = ratio * lr
        means = list(self.layout.params().values())
        scales = [*self.posterior.parameters(), *self.penalty.parameters()]
        mine = {id(p) for p in [*means, *scales]}
        rest = [p for p in self.parameters() if id(p) not in mine and p.requires_grad]
        groups: list[dict[str, Any]] = [{"name": "means", "params": means, "lr": lr, "weight_decay": 0.0}]
        if scales:
            scale_lr = lr if scale_lr is None else scale_lr
            groups.append({"name": "scales", "params": scales, "lr": scale_lr, "weight_decay": 0.0})
        if rest:
            groups.append({"name": "rest", "params": rest, "lr": lr})
        return groups

    def get_extra_state(self) -> dict[str, Any]:
        """The number of training batches seen, and those kept for BatchNorm's statistics; part of `state_dict`."""
        return {"batches": self._seen.batches, "recent": list(self._recent)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._seen.batches = state["batches"]
        self._recent = deque(state["recent"], maxlen=_RECENT)
