"""Figures 5.6 and 5.7: how far Adam comes in a short training, over its two betas.

    m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   w <- w - alpha m / (sqrt(v) + eps)        without corrections

At b2 = 0 that is m / |g|, which for b1 = 0 is the sign of the gradient: large and small gradients move weights alike.

>>> found = Step().run()
>>> [round(step, 4) for step in found["adam"]], found["sgd"]        # gradients 1 and 0.01 at rate 1
([1.0, 1.0], [1.0, 0.01])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.optim import SGD, Adam, Optimizer

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import by_seed, estimate
from credent.papers.tb.ranks import rises
from credent.papers.tb.search import Row, described, finite, known, landscape, run
from credent.papers.tb.settings import NAMES, needs
from credent.papers.tb.training import Training
from credent.papers.verdict import Outcome, Verdict, lower
from credent.report import Column, Section, Table
from credent.sweeps.plan import settings
from credent.sweeps.vary import Uniform

POINTS = {
    Scale.SMOKE: {"digits": 6},
    Scale.CPU: {"mnist": 80, "cifar10": 60},
    Scale.PAPER: {"mnist": 1000, "cifar10": 300},
}
SEEDS = {Scale.SMOKE: (0, 1), Scale.CPU: (0, 1, 2, 3), Scale.PAPER: tuple(range(8))}
CHOSEN = {"the default": (0.9, 0.999), "a low beta2": (0.9, 0.1), "both low": (0.1, 0.1)}


@dataclass(frozen=True)
class Step(Cell):
    """One step of Adam with both betas 0, and of SGD, at rate 1."""

    def run(self) -> dict[str, Any]:
        """How far they go on gradients of 1 and 0.01."""

        def moved(kind: type[Optimizer], **options: Any) -> list[float]:
            w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
            w.grad = torch.tensor([1.0, 0.01], dtype=torch.float64)
            kind([w], lr=1.0, **options).step()  # type: ignore[call-arg]
            return (-w.detach()).tolist()

        return {"adam": moved(Adam, betas=(0.0, 0.0)), "sgd": moved(SGD)}


class _Betas(Experiment):
    """One data set."""

    data: ClassVar[str]
    epochs: ClassVar[int]

    def setting(self, scale: Scale) -> str:
        """Runs and ranges."""
        data = self._data(scale)
        listed = ", ".join(f"({b1:g}, {b2:g})" for b1, b2 in CHOSEN.values())
        return (
            f"{described(scale, data, self.epochs)} Adam at rate 0.001, {POINTS[scale][data]} runs of one seed with"
            f" both betas uniform below 1; and betas {listed} with {len(SEEDS[scale])} seeds each."
        )

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """What is read."""
        return needs((self._data(scale),))

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """The landscape, the chosen betas, and the step."""
        chosen = [self._run(scale, betas, seed) for seed in SEEDS[scale] for betas in CHOSEN.values()]
        return [*self._runs(scale), *chosen, Step()]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """NLL and accuracy over the plane, and the chosen betas."""
        rows = known(self._runs(scale), results)
        where = NAMES[self._data(scale)]
        figures = tuple(
            landscape(
                f"{label} on {where}",
                rows,
                lambda cell: cell.betas,
                value,
                ("beta1", "beta2", label),
                "A dot is a run; a cross diverged. The outer tenths of the values have one colour each.",
                clip=(0.1, 0.9),
                better=better,
            )
            for value, label, better in (("val_nll", "NLL", "lower"), ("accuracy", "accuracy", "higher"))
        )
        columns = (Column("betas"), Column("accuracy", "%", "higher"), Column("NLL", "nats", "lower"))
        table = tuple(
            (
                f"{label}, {betas[0]:g} and {betas[1]:g}",
                *(estimate(self._numbers(scale, betas, name, results)) for name in ("accuracy", "val_nll")),
            )
            for label, betas in CHOSEN.items()
        )
        return (Section("Landscape", (*figures, Table("Chosen betas, on held-out images", columns, table))),)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Low beta2, the default, and what Adam without memory is."""
        rows = finite(known(self._runs(scale), results))
        default, low, _ = (self._numbers(scale, betas, "val_nll", results) for betas in CHOSEN.values())
        step = results[Step()]
        return (
            rises("A low beta2 is better: the NLL rises with beta2", *_pairs(rows, 1, "val_nll")),
            rises("A low beta2 is better: the error rises with beta2", *_pairs(rows, 1, "accuracy", sign=-1)),
            lower("At beta1 = 0.9 a beta2 of 0.1 has a lower NLL than the default 0.999", low, default),
            _sgd(step["adam"], step["sgd"]),
        )

    def _data(self, scale: Scale) -> str:
        return "digits" if scale is Scale.SMOKE else self.data

    def _run(self, scale: Scale, betas: tuple[float, float], seed: int) -> Training:
        return run(scale, self._data(scale), self.epochs, seed, {"optimizer": "adam", "betas": betas})

    def _runs(self, scale: Scale) -> list[Training]:
        vary = {"beta1": Uniform(0.0, 1.0), "beta2": Uniform(0.0, 1.0)}
        drawn = settings(vary, POINTS[scale][self._data(scale)])
        return [self._run(scale, (float(each["beta1"] or 0), float(each["beta2"] or 0)), 0) for each in drawn]

    def _numbers(self, scale: Scale, betas: tuple[float, float], name: str, results: Results) -> dict[int, float]:
        return by_seed(results, name, betas=betas)


class Figure5_6(_Betas):
    """MNIST."""

    name = "tb/figure5_6"
    title = "The betas of Adam on MNIST"
    about = (
        "Figure 5.6: in one epoch on MNIST low values of Adam's beta2 perform better, against the default of 0.999. SGD"
        " is said to be the special case beta2 = 0."
    )
    takes: ClassVar = {Scale.SMOKE: "5 s", Scale.CPU: "1 min on 2 cores"}
    data = "mnist"
    epochs = 1


class Figure5_7(_Betas):
    """CIFAR-10."""

    name = "tb/figure5_7"
    title = "The betas of Adam on CIFAR-10"
    about = "Figure 5.7: in ten epochs on CIFAR-10 low values of Adam's beta2 perform better, as on MNIST."
    takes: ClassVar = {Scale.SMOKE: "5 s", Scale.CPU: "2 min on 2 cores"}
    data = "cifar10"
    epochs = 10


def _pairs(rows: Sequence[Row], beta: int, name: str, sign: int = 1) -> tuple[list[float], list[float]]:
    return [cell.betas[beta] for cell, _ in rows], [sign * result[name] for _, result in rows]


def _sgd(adam: Sequence[float], sgd: Sequence[float]) -> Verdict:
    ratios = adam[0] / adam[1], sgd[0] / sgd[1]
    same: Outcome = "replicated" if abs(ratios[0] / ratios[1] - 1) < 1e-6 else "not replicated"
    told = (
        f"On gradients of 1 and 0.01 its steps are as {ratios[0]:.3g} to 1, those of SGD as {ratios[1]:.3g} to 1: it"
        " takes m / |g|, the gradient's sign where beta1 is 0 too."
    )
    return Verdict("SGD is the special case beta2 = 0 of Adam", same, told)
