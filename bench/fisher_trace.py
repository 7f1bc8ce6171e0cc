"""What the Fisher trace of a probe batch costs, in plain backward passes of the same batch, without the forward pass.

Rounds in which the plain forward, the plain backward and the trace's norms each have their turn, in shuffled order; in
every round (norms - forward) / backward, and the median over rounds. All parts run with BatchNorm in evaluation mode.

    python bench/fisher_trace.py [--rounds 15] [--networks lenet5 resnet20 preact_resnet18]
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import credent as cr
from credent.fisher.norms import Norms
from credent.papers.timing import race

NETWORKS = {
    "lenet5": (cr.models.LeNet5, (128, 1, 28, 28)),
    "resnet20": (cr.models.ResNet20, (128, 3, 32, 32)),
    "preact_resnet18": (cr.models.PreActResNet18, (32, 3, 32, 32)),
}
LIMITS = {"resnet20": 3.0}  # backward passes; the aim is 2


def measure(name: str, rounds: int) -> dict[str, float]:
    """Backward passes that the trace costs, and the milliseconds of each part."""
    build, shape = NETWORKS[name]
    torch.manual_seed(0)
    net, x = build().eval(), torch.randn(shape)
    norms = Norms(net)
    backward: list[float] = []

    def score(outputs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(outputs.argmax(-1), outputs.shape[-1]) - outputs.softmax(-1)

    def plain() -> None:
        outputs = net(x)
        start = time.perf_counter()
        outputs.backward(score(outputs.detach()))
        backward.append(time.perf_counter() - start)
        net.zero_grad()

    times = race({"forward": lambda: net(x), "plain": plain, "trace": lambda: norms({}, x, score)}, rounds)
    backward = backward[-rounds:]  # without those that warmed up
    costs = [
        (trace - forward) / back
        for trace, forward, back in zip(times["trace"], times["forward"], backward, strict=True)
    ]
    tenth = len(costs) // 10
    return {
        "backward passes": statistics.median(costs),
        "low": sorted(costs)[tenth],
        "high": sorted(costs)[-1 - tenth],
        "forward ms": 1e3 * statistics.median(times["forward"]),
        "backward ms": 1e3 * statistics.median(backward),
        "trace ms": 1e3 * statistics.median(times["trace"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; in backward passes of the same batch")
    results = {}
    for name in options.networks:
        results[name] = found = measure(name, options.rounds)
        cost = f"{found['backward passes']:.2f} [{found['low']:.2f}-{found['high']:.2f}] backward passes"
        limit = f"  (limit {LIMITS[name]}{', MISSED' * (found['low'] > LIMITS[name])})" if name in LIMITS else ""
        print(f"{name:16} {cost}   " + ", ".join(f"{k} {v:.0f}" for k, v in found.items() if k.endswith("ms")) + limit)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "fisher_trace.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
