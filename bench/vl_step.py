"""What a Variational Laplace step costs beside a MAP step of the same softplus network, in time and in memory.

Time: the median over rounds of the ratio to MAP's step and to a plain step (cross-entropy alone, torch's default Adam),
every contender once a round in shuffled order; all take fused Adam, as `fit` does, except those that say so.
Memory: peak resident memory of a process that takes a few steps, less what it held before its first, over the same of
MAP's.

    python bench/vl_step.py [--rounds 15] [--networks mlp lenet5 resnet20 preact_resnet18]
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

import credent as cr
from credent.papers.timing import race, ratios

NETWORKS = {
    "mlp": (lambda: cr.models.MLP(784, 10), (128, 1, 28, 28), 4),
    "lenet5": (cr.models.LeNet5, (128, 1, 28, 28), 2),
    "resnet20": (cr.models.ResNet20, (128, 3, 32, 32), 1),
    "preact_resnet18": (cr.models.PreActResNet18, (32, 3, 32, 32), 1),
}
PLAIN = "plain, default Adam"
OBJECTIVES = {
    PLAIN: lambda net: cr.MAP(net, cr.likelihoods.Categorical(), num_data=60_000, beta=0.0),
    "MAP": lambda net: cr.MAP(net, cr.likelihoods.Categorical(), num_data=60_000),
    "MAP, default Adam": lambda net: cr.MAP(net, cr.likelihoods.Categorical(), num_data=60_000),
    "VL": lambda net: cr.VL(net, cr.likelihoods.Categorical(), num_data=60_000),
    "VL, fraction 1/4": lambda net: cr.VL(net, cr.likelihoods.Categorical(), num_data=60_000, fraction=1 / 4),
    "VL, exact": lambda net: cr.VL(net, cr.likelihoods.Categorical(), num_data=60_000, fraction=1, curvature="exact"),
}
LIMITS = {"VL": 1.5, "VL, exact": 3.4}
PLAIN_LIMITS = {"mlp": 1.6, "lenet5": 1.5, "resnet20": 1.45, "preact_resnet18": 1.45}  # of VL over the plain step
MEMORY_LIMIT = 1.3


def contender(kind: str, name: str) -> Callable[[], None]:
    """A function that takes one training step."""
    torch.manual_seed(0)
    build, shape, _ = NETWORKS[name]
    objective = OBJECTIVES[kind](cr.smooth(build()))
    x, y = torch.randn(shape), torch.randint(10, shape[:1])
    fused = not kind.endswith("default Adam")
    optimizer = torch.optim.Adam(objective.param_groups(lr=1e-3, scale_lr=1e-2), fused=fused)

    def step() -> None:
        loss = functional.cross_entropy(objective.net(x), y) if kind == PLAIN else objective(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def peak(kind: str, name: str) -> int:
    """Peak bytes of a few steps in this process (VmHWM: rusage's peak begins with the parent's)."""
    before = _resident("VmRSS")
    step = contender(kind, name)
    for _ in range(4):
        step()
    return _resident("VmHWM") - before


def _resident(which: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) * 1024


def memory(name: str, kind: str) -> float:
    """Peak memory of a step over MAP's."""
    peaks = []
    for each in (kind, "MAP"):
        child = [sys.executable, __file__, "--peak", each, "--networks", name]
        peaks.append(int(subprocess.run(child, check=True, capture_output=True, text=True).stdout))
    return peaks[0] / peaks[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak, options.networks[0]))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; ratio to MAP's step, fused Adam")
    results = {}
    for name in options.networks:
        _, _, repeats = NETWORKS[name]
        times = race({k: contender(k, name) for k in OBJECTIVES}, options.rounds, repeats)
        found, plain = ratios(times, "MAP"), ratios(times, PLAIN)
        for kind, ratio in found.items():
            limit = (
                f"  (limit {LIMITS[kind]}{', MISSED' if ratio.low > LIMITS[kind] else ''})" if kind in LIMITS else ""
            )
            print(f"{name:16} {kind:19} {ratio!s:18} {ratio.milliseconds:7.1f} ms{limit}; over plain {plain[kind]}")
        print(
            f"{name:16} VL over plain: limit {PLAIN_LIMITS[name]}{', MISSED' * (plain['VL'].low > PLAIN_LIMITS[name])}"
        )
        peaks = {kind: memory(name, kind) for kind in ("VL", "VL, exact")}
        for kind, value in peaks.items():
            print(f"{name:16} {kind:17} memory {value:.2f}" + (f"  (limit {MEMORY_LIMIT})" if kind == "VL" else ""))
        results[name] = {
            "time": {k: vars(r) for k, r in found.items()},
            "time over plain": {k: vars(r) for k, r in plain.items()},
            "memory": peaks,
        }
    out = Path(__file__).parent / "out" / "vl_step.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
