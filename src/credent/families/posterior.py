"""What every posterior offers: the thin waist between inference and everything that uses it.

Prediction, metrics, bandits and reports see a `Posterior` and nothing else. `Variational` adds what training needs:
differentiable draws, entropy and moments of a q(w) that sits on a network.

Shapes: `Params` map parameter names to tensors of the parameters' shapes; `sample(n)` puts n in front.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.layout import Layout
from credent.network import Params

if TYPE_CHECKING:
    from credent.priors.prior import Prior


class Posterior(ABC):
    """A distribution over the random parameters of a layout."""

    @abstractmethod
    def mean(self) -> Params:
        """Mean of every random parameter."""

    @abstractmethod
    def stddev(self) -> Params:
        """Standard deviation of every random parameter."""

    @abstractmethod
    def draws(self, n: int | None = None, seed: int | None = None) -> Iterator[Params]:
        """n draws, one at a time; the same seed gives the same draws, None goes on with the posterior's own stream."""

    def sample(self, n: int, seed: int | None = None) -> Params:
        """n draws at once, stacked in front: tensors (n, *shape)."""
        if n < 1:
            raise InputError(f"sample({n}): ask for at least one draw.")
        draws = [{k: w.clone() for k, w in params.items()} for params in self.draws(n, seed)]
        return {k: torch.stack([params[k] for params in draws]) for k in draws[0]}


class Variational(nn.Module, Posterior, ABC):
    """A trainable q(w) whose means are the network's own parameters."""

    layout: Layout

    def cached(self) -> AbstractContextManager[None]:
        """Within: what follows from q's parameters alone is computed once; for the length of one loss."""
        return nullcontext()

    @abstractmethod
    def rsample(self) -> Params:
        """One draw that gradients flow through, to the means and to q's own parameters; not independent of the last."""

    def rsample_and_kl(self, prior: "Prior") -> tuple[Params, Tensor | None]:
        """One draw and the closed-form KL, which some families have cheaper together than one by one."""
        return self.rsample(), self.kl(prior)

    @abstractmethod
    def log_prob(self, params: Params, detached: bool = False) -> Tensor:
        """log q(w) in nats; `detached` holds q's parameters constant, for the path derivative."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy of q in nats."""

    @abstractmethod
    def kl(self, prior: "Prior") -> Tensor | None:
        """KL(q || p) in nats where it has a closed form, else None."""
