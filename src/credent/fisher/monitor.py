"""The Fisher trace over training, on a fixed set of inputs: a monitor of `fit`.

    fit(..., monitors=[fisher.TraceMonitor(x_probe, every=100)])

writes `fisher_trace`, at the means of the weights, and, where the posterior is not a point, `fisher_trace_draws`, the
average over draws. It draws from streams of its own, the same at every look, so what changes from one row to the next
is the network and not the noise. Training stays what it was, bit for bit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from credent.errors import InputError
from credent.families.dirac import DiracPosterior
from credent.fisher.trace import trace

if TYPE_CHECKING:
    from credent.objectives import Objective


@dataclass(frozen=True, eq=False)
class TraceMonitor:
    """Tr F of the network that an objective trains, every so many optimiser steps.

    x: the inputs, some hundreds of training data; the estimate's error falls with the square root of their number.
    samples, labels, batch_size, seed: as in `fisher.trace`.
    statistics: batches of training data on which BatchNorm is re-estimated, for draws and mean alike. Without them the
        mean has the running statistics, and draws have their own on the objective's last training batches where
        BatchNorm follows random weights, as in the objective's `predict`.
    name: of the number at the means; with "_draws", of the average over draws.
    """

    x: Any
    every: int = 100
    samples: int = 5
    labels: int = 1
    batch_size: int = 128
    statistics: Iterable[Any] | None = None
    seed: int = 0
    name: str = "fisher_trace"

    def __post_init__(self) -> None:
        if min(self.every, self.samples, self.labels, self.batch_size) < 1:
            raise InputError(
                f"TraceMonitor(every={self.every}, samples={self.samples}, labels={self.labels},"
                f" batch_size={self.batch_size}): all count from 1."
            )

    def __call__(self, objective: "Objective") -> dict[str, float]:
        """The trace now."""
        found = {self.name: self._trace(objective, "mean", self.statistics)}
        if not isinstance(objective.posterior, DiracPosterior):
            recent = objective.statistics or None
            statistics = recent if self.statistics is None else self.statistics
            found[f"{self.name}_draws"] = self._trace(objective, "sampled", statistics)
        return found

    def _trace(
        self, objective: "Objective", how: Literal["sampled", "mean"], statistics: Iterable[Any] | None
    ) -> float:
        return trace(
            objective.net,
            objective.likelihood,
            self.x,
            objective.posterior,
            samples=self.samples,
            how=how,
            labels=self.labels,
            batch_size=self.batch_size,
            statistics=statistics,
            seed=self.seed,
        ).value
