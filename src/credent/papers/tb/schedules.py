"""Figure 3.2: learning-rate schedules on linear regression with SGD.

The excess of a loss is its distance to that of least squares, in nats per datum under noise of standard deviation one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch.optim import SGD, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import by_seed, estimate
from credent.papers.verdict import Verdict, lower
from credent.report import Column, Figure, Section, Table, plots

Schedule = Literal["constant", "step", "exponential", "cosine", "cyclic", "warm-up", "plateau"]
SCHEDULES: dict[Schedule, str] = {
    "constant": "constant",
    "step": "a tenth after half and three quarters",
    "exponential": "exponential, to a hundredth",
    "cosine": "cosine, to zero",
    "cyclic": "cyclic, five triangles down to a tenth",
    "warm-up": "warm-up over a tenth, then constant",
    "plateau": "plateau, halved after two epochs without a better loss",
}
EPOCHS = {Scale.SMOKE: 5, Scale.CPU: 50, Scale.PAPER: 100}
SEEDS = {Scale.SMOKE: (0, 1), Scale.CPU: tuple(range(8)), Scale.PAPER: tuple(range(20))}
_ROWS, _COLUMNS, _BATCH, _RATE = 200, 10, 10, 0.1
_STEPS = _ROWS // _BATCH  # of an epoch


@dataclass(frozen=True)
class Descent(Cell):
    """Linear regression on data of this seed."""

    schedule: Schedule
    epochs: int
    seed: int

    def run(self) -> dict[str, Any]:
        """Rate and excess loss after every epoch, and the logarithm of the mean excess over the last tenth of them."""
        torch.manual_seed(self.seed)
        x = torch.randn(_ROWS, _COLUMNS, dtype=torch.float64) * torch.logspace(0, -0.5, _COLUMNS, dtype=torch.float64)
        y = x @ torch.randn(_COLUMNS, 1, dtype=torch.float64) + torch.randn(_ROWS, 1, dtype=torch.float64)

        def loss(at: torch.Tensor, rows: torch.Tensor | slice = slice(None)) -> torch.Tensor:
            return 0.5 * (x[rows] @ at - y[rows]).square().mean()

        least = float(loss(torch.linalg.lstsq(x, y).solution))
        w = torch.zeros(_COLUMNS, 1, dtype=torch.float64, requires_grad=True)
        optimizer = SGD([w], lr=_RATE)
        schedule = _schedule(self.schedule, optimizer, self.epochs * _STEPS)
        rates, excess = [], []
        for _ in range(self.epochs):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            for rows in torch.randperm(_ROWS).view(-1, _BATCH):
                (w.grad,) = torch.autograd.grad(loss(w, rows), w)
                optimizer.step()
                if schedule is not None and not isinstance(schedule, ReduceLROnPlateau):
                    schedule.step()
            excess.append(float(loss(w.detach())) - least)
            if isinstance(schedule, ReduceLROnPlateau):
                schedule.step(excess[-1])
        tail = excess[-max(1, self.epochs // 10) :]
        return {"rates": rates, "excess": excess, "log_excess": math.log10(sum(tail) / len(tail))}


def _schedule(name: Schedule, optimizer: SGD, steps: int) -> LRScheduler | None:
    if name == "step":
        return lr_scheduler.MultiStepLR(optimizer, [steps // 2, 3 * steps // 4])
    if name == "exponential":
        return lr_scheduler.ExponentialLR(optimizer, 0.01 ** (1 / steps))
    if name == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, steps)
    if name == "cyclic":
        return lr_scheduler.LambdaLR(optimizer, lambda step: 0.1 + 0.9 * abs(1 - 10 * step / steps % 2))
    if name == "warm-up":
        return lr_scheduler.LinearLR(optimizer, 0.01, total_iters=max(1, steps // 10))
    if name == "plateau":
        return ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
    return None


class Figure3_2(Experiment):
    """Schedules."""

    name = "tb/figure3_2"
    title = "Learning-rate schedules on linear regression"
    about = (
        "Figure 3.2 and section 3.3: examples of learning-rate schedules for linear regression with SGD. There is"
        " little motivation to rely on a constant learning rate."
    )
    takes: ClassVar = {Scale.SMOKE: "2 s", Scale.CPU: "15 s", Scale.PAPER: "1 min"}

    def setting(self, scale: Scale) -> str:
        """Data and rates."""
        return (
            f"{_ROWS} data of {_COLUMNS} inputs whose spreads fall from 1 to 0.3, noise of standard deviation 1; SGD in"
            f" batches of {_BATCH}, {EPOCHS[scale]} epochs, largest rate {_RATE:g}; {len(SEEDS[scale])} seeds, each"
            " with its own data. The thesis prints neither its data nor which schedules it drew: these are the kinds"
            " that it names, and three usual ones."
        )

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Every schedule on the same data."""
        return [Descent(name, EPOCHS[scale], seed) for seed in SEEDS[scale] for name in SCHEDULES]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Rates, excess losses, and where they end."""
        columns = (Column("schedule"), Column("excess loss at the end, log10 of nats", "", "lower"))
        rows = tuple((label, estimate(self._ends(scale, name, results))) for name, label in SCHEDULES.items())
        figures = (
            self._curves(scale, results, "rates", "learning rate", "First seed, at the start of each epoch."),
            self._curves(scale, results, "excess", "excess loss, log10 of nats", "Means of logarithms over seeds."),
        )
        return (Section("Schedules", (*figures, Table("Over the last tenth of the epochs", columns, rows))),)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Each schedule against the constant rate."""
        constant = self._ends(scale, "constant", results)
        return tuple(
            lower(
                f"Ends below the constant rate (log10 of the excess): {label}",
                self._ends(scale, name, results),
                constant,
            )
            for name, label in SCHEDULES.items()
            if name != "constant"
        )

    def _ends(self, scale: Scale, name: Schedule, results: Results) -> dict[int, float]:
        return by_seed(results, "log_excess", schedule=name, epochs=EPOCHS[scale])

    def _curves(self, scale: Scale, results: Results, what: str, label: str, caption: str) -> Figure:
        named: dict[str, tuple[list[int], list[float]]] = {}
        for name in SCHEDULES:
            found = [results[Descent(name, EPOCHS[scale], seed)] for seed in SEEDS[scale]]
            runs = [each[what] for each in found if each]
            if runs:
                mean = runs[0] if what == "rates" else [_mean_log(at) for at in zip(*runs, strict=True)]
                named[name] = (list(range(1, len(mean) + 1)), mean)
        return plots.curves(label.partition(",")[0].capitalize(), named, "epoch", label, caption)


def _mean_log(values: Sequence[float]) -> float:
    return sum(math.log10(value) for value in values) / len(values)
