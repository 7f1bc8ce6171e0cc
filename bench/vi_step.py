"""What a VI training step costs beside the plain step of the same network, in time and in memory.

Time: rounds in which every contender takes a few steps, in shuffled order, so that a busy machine slows all alike; the
result is the median over rounds of the ratio to the plain step with torch's default Adam. Memory: peak resident memory
of a process that takes a few steps, less the plain process's, in units of the parameters' own size.

    python bench/vi_step.py [--rounds 15] [--networks mlp lenet5 resnet20 preact_resnet18]
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
    "mlp": (lambda: cr.models.MLP(784, 10), (128, 1, 28, 28), 8),
    "lenet5": (cr.models.LeNet5, (128, 1, 28, 28), 4),
    "resnet20": (cr.models.ResNet20, (128, 3, 32, 32), 1),
    "preact_resnet18": (cr.models.PreActResNet18, (32, 3, 32, 32), 1),
}
LIMITS = {"mlp": 1.75, "lenet5": 1.12, "resnet20": 1.05, "preact_resnet18": 1.10}
MEMORY_LIMIT = 7.0


def contender(kind: str, build: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> Callable[[], None]:
    """A function that takes one training step."""
    torch.manual_seed(0)
    net = build()
    x, y = torch.randn(shape), torch.randint(10, shape[:1])
    loss: Callable[[], torch.Tensor]
    if kind == "credent VI":
        bnn = cr.VI(net, cr.likelihoods.Categorical(), num_data=60_000)
        optimizer = torch.optim.Adam(bnn.param_groups(lr=1e-3, scale_lr=1e-2), fused=True)
        loss = lambda: bnn(x, y)  # noqa: E731
    else:
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=kind == "plain, fused Adam")
        loss = lambda: functional.cross_entropy(net(x), y)  # noqa: E731

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def peak(kind: str, name: str) -> int:
    """Peak resident bytes of this process after a few steps (VmHWM: rusage's peak begins with the parent's)."""
    build, shape, _ = NETWORKS[name]
    step = contender(kind, build, shape)
    for _ in range(4):
        step()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def memory(name: str) -> float:
    """Peak memory of the VI step over the plain step's, in units of the parameters' size."""
    peaks = {}
    for kind in ("plain, default Adam", "credent VI"):
        child = [sys.executable, __file__, "--peak", kind, "--networks", name]
        peaks[kind] = int(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
    size = 4 * sum(p.numel() for p in NETWORKS[name][0]().parameters())
    return (peaks["credent VI"] - peaks["plain, default Adam"]) / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak, options.networks[0]))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; ratio to the plain step with default Adam")
    results = {}
    for name in options.networks:
        build, shape, repeats = NETWORKS[name]
        kinds = ("plain, default Adam", "plain, fused Adam", "credent VI")
        times = race({kind: contender(kind, build, shape) for kind in kinds}, options.rounds, repeats)
        found = ratios(times, "plain, default Adam")
        results[name] = {"time": {kind: vars(ratio) for kind, ratio in found.items()}}
        for kind, ratio in found.items():
            limit = f"  (limit {LIMITS[name]})" if kind == "credent VI" else ""
            print(f"{name:16} {kind:19} {ratio!s:18} {ratio.milliseconds:7.1f} ms{limit}")
    for name in ("mlp", "preact_resnet18"):  # networks whose parameters outweigh the rest
        if name in options.networks:
            results[name]["memory"] = memory(name)
            print(f"{name:16} memory over plain {results[name]['memory']:.1f} x parameters (limit {MEMORY_LIMIT})")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "vi_step.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
