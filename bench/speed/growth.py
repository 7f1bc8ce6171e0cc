"""How cost grows with width, depth, batch, draws and number of parameters, beside the plain network's own growth.

At every size the plain network and credent are raced, each step over the plain one of the same optimiser: fused Adam's
of VI and VL, SGD's of SGLD. Two exponents are fitted: that of the time, and that of the ratio to the plain network,
which is 0 where nothing grows faster than the network itself does.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import credent as cr
from bench.arithmetic import exponent, grows_faster, paired
from bench.machine import available
from bench.peers import Build, Task, credent, plain
from bench.speed.groups import Turn
from credent.models import MLP
from credent.papers.timing import race

BYTES = 140  # for each parameter, while all contenders of a size are alive
ADAM, SGD, FORWARDS = "plain step, fused Adam", "plain step, SGD", "plain prediction"
OVER = {ADAM: ADAM, SGD: SGD, "VI step": ADAM, "VL step": ADAM, "SGLD step": SGD}
OVER |= {FORWARDS: FORWARDS, "prediction": FORWARDS}
"""What each is measured against."""


@dataclass(frozen=True)
class Size:
    """A fully connected network, its batch, and the draws of a prediction."""

    width: int = 400
    depth: int = 2
    batch: int = 128
    draws: int = 8

    def net(self) -> MLP:
        """784 inputs, 10 classes."""
        torch.manual_seed(0)
        return MLP(784, 10, hidden=(self.width,) * self.depth)

    @property
    def num_params(self) -> int:
        """Weights and biases."""
        return 785 * self.width + (self.depth - 1) * self.width * (self.width + 1) + 10 * (self.width + 1)


AXES: dict[str, tuple[Callable[[Size], float], list[Size]]] = {
    "width": (lambda s: s.width, [Size(width=w) for w in (200, 400, 800, 1600, 3200)]),
    "depth": (lambda s: s.depth, [Size(depth=d) for d in (2, 4, 8, 16, 32)]),
    "batch": (lambda s: s.batch, [Size(batch=b) for b in (64, 128, 256, 512, 1024, 2048)]),
    "draws": (lambda s: s.draws, [Size(draws=d) for d in (2, 4, 8, 16, 32, 64)]),
    "parameters": (lambda s: s.num_params, [Size(width=w) for w in (100, 600, 2650, 9600)]),  # to 1e8
}
STEPS: dict[str, tuple[Build, Task]] = {
    ADAM: (plain.adam, Task(fused=True)),
    SGD: (plain.sgd, Task(lr=1e-9)),
    "VI step": (credent.VI["credent"], Task()),
    "VL step": (credent.VL["credent VL"], Task()),
    "SGLD step": (credent.SAMPLERS["credent SGLD"], Task(lr=1e-9)),
}


def growth(axis: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Ratios to the plain network by size, and the exponents."""
    measure, sizes = AXES[axis]
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for size in sizes:
        if BYTES * size.num_params > available():
            need = BYTES * size.num_params / 2**30
            left_out[str(size)] = f"{size.num_params:,} parameters need about {need:.0f} GiB"
            continue
        row: dict[str, Any] = {"size": measure(size), "parameters": size.num_params, "times": {}, "ratios": {}}
        for turns in [_predictions(size)] if axis == "draws" else [_steps(size), _predictions(size)]:
            times = race(turns, rounds, 2, seconds / len(sizes))  # two: some is paid for every other step
            for name, taken in times.items():
                row["times"][name] = statistics.median(taken)
                row["ratios"][name] = statistics.median(paired(times, OVER[name])[name])
        rows.append(row)
    return {"axis": axis, "rows": rows, "left out": left_out, "exponents": _exponents(rows)}


def _exponents(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    if len(rows) < 2:
        return {}
    sizes = [row["size"] for row in rows]
    found = {}
    for name in rows[0]["times"]:
        own, _ = exponent(sizes, [row["times"][name] for row in rows])
        beyond, error = exponent(sizes, [row["ratios"][name] for row in rows])
        faster = grows_faster(beyond, error)
        found[name] = {"exponent": own, "beyond plain": beyond, "error": error, "faster": faster}
    return found


def _steps(size: Size) -> dict[str, Turn]:
    torch.manual_seed(1)
    x, y = torch.randn(size.batch, 784), torch.randint(10, (size.batch,))

    def turn(build: Build, task: Task) -> Turn:
        bayesian = build(size.net(), task)
        return lambda: bayesian.step(x, y)

    return {name: turn(build, task) for name, (build, task) in STEPS.items()}


def _predictions(size: Size) -> dict[str, Turn]:
    torch.manual_seed(1)
    x, net = torch.randn(size.batch, 784), size.net()
    bnn = cr.VI(size.net(), cr.likelihoods.Categorical(), num_data=60_000)

    @torch.no_grad()
    def forwards() -> None:
        for _ in range(size.draws):
            net(x).softmax(-1)

    return {FORWARDS: forwards, "prediction": lambda: bnn.predict(x, samples=size.draws)}
