"""What an objective adds to the data's loss: r(q), a number of nats that grows with how far q is from simple.

A penalty is described by a small frozen object and bound to a network, where it learns fan-ins and keeps what state it
has. A prior is a penalty that also has a density (`credent.priors`).
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, TypeVar

from torch import Tensor, nn

from credent.families.posterior import Variational
from credent.layout import Layout

Q = TypeVar("Q", bound=Variational)


class Penalty(nn.Module, ABC):
    """r(q) for one layout."""

    changes_q: ClassVar[bool] = False
    """Whether `sampled` makes another distribution of q, so that the posterior depends on the penalty."""

    @abstractmethod
    def forward(self, q: Variational) -> Tensor:
        """r(q) in nats, differentiable in q's parameters."""

    def sampled(self, q: Q) -> Q:
        """What weights are drawn from, and so the posterior: q itself, or what this prior makes of it."""
        return q


class Description(Protocol):
    """Hyper-parameters of a penalty or prior, before it meets a layout."""

    def bind(self, layout: Layout) -> Penalty:
        """The penalty for this network's random parameters."""
        ...
