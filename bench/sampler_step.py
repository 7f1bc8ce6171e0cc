"""What a Langevin step costs beside a plain step of the same network, and a prediction from draws beside the forwards.

Every contender has its turn once a round, in shuffled order; a result is the median over rounds of the ratio.

    step          plain: cross-entropy alone, torch's default SGD. The samplers walk on MAP's gradient, prior included:
                  SGLD; pSGLD and BNP once their preconditioners are frozen, and (adapting) while they learn
    prediction    `predict` for 1,000 inputs from draws in memory and on disk, over as many forward passes: what a draw
                  costs does not depend on how many there are, so large networks have fewer

No row goes on for much longer than `--seconds`; one that had fewer than `--rounds` rounds says how many.

    python bench/sampler_step.py [--rounds 15] [--seconds 120] [--networks mlp lenet5 resnet20 preact_resnet18]
        [--only steps draws]
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import credent as cr
from credent.families.draws import DrawFiles, Draws
from credent.papers.timing import Ratio, race, ratios

NETWORKS = {
    "mlp": (lambda: cr.models.MLP(784, 10), (128, 1, 28, 28), 8),
    "lenet5": (cr.models.LeNet5, (128, 1, 28, 28), 4),
    "resnet20": (cr.models.ResNet20, (128, 3, 32, 32), 1),
    "preact_resnet18": (cr.models.PreActResNet18, (32, 3, 32, 32), 1),
}
NUM_DATA, INPUTS = 60_000, 1000
DRAWS = {"mlp": 32, "lenet5": 32, "resnet20": 4, "preact_resnet18": 1}
PLAIN, MAP = "plain SGD", "MAP, SGD"
OPTIMISERS: dict[str, Callable[[torch.nn.Module], torch.optim.Optimizer]] = {
    PLAIN: lambda net: torch.optim.SGD(net.parameters(), lr=1e-9),
    MAP: lambda net: torch.optim.SGD(net.parameters(), lr=1e-9),
    "SGLD": lambda net: cr.samplers.SGLD(net.parameters(), lr=1e-9, num_data=NUM_DATA),
    "pSGLD": lambda net: cr.samplers.PSGLD(net.parameters(), lr=1e-12, num_data=NUM_DATA, burn_in=1),
    "pSGLD, adapting": lambda net: cr.samplers.PSGLD(net.parameters(), lr=1e-12, num_data=NUM_DATA, burn_in=None),
    "BNP": lambda net: cr.samplers.BNPSGLD(net, lr=1e-9, num_data=NUM_DATA, burn_in=1),
    "BNP, adapting": lambda net: cr.samplers.BNPSGLD(net, lr=1e-9, num_data=NUM_DATA, burn_in=None),
}
OVER_PLAIN = {"mlp": 1.75, "lenet5": 1.05, "resnet20": 1.02, "preact_resnet18": 1.06}  # of SGLD
OVER_SGLD = {
    "mlp": {"pSGLD": 1.05, "BNP": 1.3, "BNP, adapting": 1.3},
    "lenet5": {"pSGLD": 1.05, "BNP": 1.15, "BNP, adapting": 1.15},
    "resnet20": {"pSGLD": 1.05, "pSGLD, adapting": 1.05, "BNP": 1.06, "BNP, adapting": 1.06},
    "preact_resnet18": {"pSGLD": 1.04, "BNP": 1.05, "BNP, adapting": 1.05},
}
OVER_FORWARDS = {"mlp": 1.03, "lenet5": 1.03, "resnet20": 1.02, "preact_resnet18": 1.03}


def contender(kind: str, name: str) -> Callable[[], None]:
    """A function that takes one training step."""
    torch.manual_seed(0)
    build, shape, _ = NETWORKS[name]
    net = build()
    x, y = torch.randn(shape), torch.randint(10, shape[:1])
    log_joint = cr.MAP(net, cr.likelihoods.Categorical(), num_data=NUM_DATA)
    optimizer = OPTIMISERS[kind](net)

    def step() -> None:
        loss = functional.cross_entropy(net(x), y) if kind == PLAIN else log_joint(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def predictions(name: str, directory: Path) -> dict[str, Callable[[], object]]:
    """Functions that go through the network once for each draw."""
    torch.manual_seed(0)
    build, shape, _ = NETWORKS[name]
    net = build().eval()
    x = torch.randn(INPUTS, *shape[1:])
    memory = [{k: w + 0.01 * torch.randn_like(w) for k, w in net.state_dict(keep_vars=True).items() if w.requires_grad}
              for _ in range(DRAWS[name])]  # fmt: skip
    memory = [{k: w.detach() for k, w in draw.items()} for draw in memory]
    disk = DrawFiles(directory)
    for draw in memory:
        disk.append(draw)

    @torch.no_grad()
    def forwards() -> None:
        for _ in range(DRAWS[name]):
            net(x)

    def averaged(draws: Any) -> Callable[[], object]:
        posterior = Draws(draws)
        return lambda: cr.predict(net, posterior, cr.likelihoods.Categorical(), x, samples=None)

    return {"forwards": forwards, "from memory": averaged(memory), "from disk": averaged(str(directory))}


def line(name: str, kind: str, ratio: Ratio, over: str, limit: float | None) -> None:
    said = f"  (limit {limit}{', MISSED' * (ratio.low > limit)})" if limit else ""
    print(f"{name:16} {kind:16} over {over:9} {ratio!s:18} {ratio.milliseconds:8.1f} ms{said}", flush=True)


def told(times: dict[str, list[float]], wanted: int) -> None:
    rounds = min(map(len, times.values()))
    if rounds < wanted:
        print(f"time is up after {rounds} rounds of {wanted}:", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--only", nargs="+", default=["steps", "draws"], choices=["steps", "draws"])
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    results: dict[str, dict[str, Any]] = {name: {} for name in options.networks}
    for name in options.networks if "steps" in options.only else []:
        contenders = {kind: contender(kind, name) for kind in OPTIMISERS}
        times = race(contenders, options.rounds, NETWORKS[name][2], options.seconds)
        told(times, options.rounds)
        plain, sgld = ratios(times, PLAIN), ratios(times, "SGLD")
        for kind in (MAP, "SGLD"):
            line(name, kind, plain[kind], "plain SGD", OVER_PLAIN[name] if kind == "SGLD" else None)
        for kind in list(OPTIMISERS)[3:]:
            line(name, kind, sgld[kind], "SGLD", OVER_SGLD[name].get(kind))
        results[name]["over plain SGD"] = {k: vars(r) for k, r in plain.items()}
        results[name]["over SGLD"] = {k: vars(r) for k, r in sgld.items()}
    for name in options.networks if "draws" in options.only else []:
        with tempfile.TemporaryDirectory() as directory:
            times = race(predictions(name, Path(directory)), options.rounds, seconds=options.seconds)
        told(times, options.rounds)
        found = ratios(times, "forwards")
        for kind in ("from memory", "from disk"):
            line(name, kind, found[kind], "forwards", OVER_FORWARDS[name])
        results[name]["prediction"] = {k: vars(r) for k, r in found.items()}
    out = Path(__file__).parent / "out" / "sampler_step.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
