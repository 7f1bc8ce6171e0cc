"""Decisions per second of several seeds side by side, beside a plain loop over one seed at equal training work.

Every contender plays the same bandit with the papers' network (117-100-100-2) and schedule (20 decisions, then 16
minibatches of 512), on one thread a process. The plain loop is written out here: `nn.Linear`, a list of trials, `MAP`
and the same sampler. Rounds in shuffled order, so that a busy machine slows all alike; the result is the median over
rounds of decisions per second in units of the plain loop's. The exit code is 1 if one is below its limit.

    OMP_NUM_THREADS=1 python bench/bandits.py [--rounds 9] [--agents SGLD BNP] [--seeds 8]
"""

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import nn

import credent as cr
from credent.bandits import BNP, PSGLD, SGLD, VI, VL, Linear, Schedule, play
from credent.papers.timing import race

WORLD = Linear(features=117, arms=2)
SCHEDULE = Schedule(random=520)
DECISIONS = 520 + 60
AGENTS = {kind.__name__: kind(schedule=SCHEDULE) for kind in (SGLD, PSGLD, BNP, VI, VL)}
LIMITS = {"side by side": 1.3, "side by side, 2 processes": 2.0}


class Plain(nn.Module):
    """One network as anybody would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = cr.models.MLP(WORLD.features, WORLD.arms, hidden=(100, 100))

    def forward(self, x: torch.Tensor, arms: torch.Tensor | None = None) -> torch.Tensor:
        """Values of all arms, or of the given ones."""
        values: torch.Tensor = self.net(x)
        return values if arms is None else values.gather(1, arms[:, None])


def plain(name: str) -> None:
    """One seed, alone."""
    torch.manual_seed(0)
    agent, net, trials = AGENTS[name], Plain(), WORLD.trials(DECISIONS, torch.Generator().manual_seed(0))
    learner = agent.learner(net)
    arms, every = torch.zeros(DECISIONS, dtype=torch.long), SCHEDULE.every
    for start in range(0, DECISIONS, every):
        x = trials.contexts[start : start + every]
        if start < SCHEDULE.random:
            arms[start : start + every] = torch.randint(WORLD.arms, (len(x),))
        else:
            arms[start : start + every] = agent.values(learner.objective, x).argmax(-1)
        seen = start + len(x)
        if seen < SCHEDULE.random:
            continue
        rewards = trials.reward(arms)[:, None]
        for _ in range(SCHEDULE.steps):
            rows = torch.randperm(seen)[: SCHEDULE.batch]
            learner.step(trials.contexts[rows], arms[rows], rewards[rows], num_data=seen)


def beside(name: str, seeds: int) -> None:
    play(WORLD, AGENTS[name], DECISIONS, range(seeds))


def contenders(name: str, seeds: int, pool: ProcessPoolExecutor) -> dict[str, tuple[Callable[[], object], int]]:
    """What is called in a turn, and for how many seeds it decides."""
    return {
        "plain loop": (lambda: plain(name), 1),
        "one seed": (lambda: beside(name, 1), 1),
        "side by side": (lambda: beside(name, seeds), seeds),
        "side by side, 2 processes": (lambda: list(pool.map(beside, [name] * 2, [seeds] * 2)), 2 * seeds),
    }


def missed(results: dict[str, dict[str, float]]) -> list[str]:
    """What is below its limit."""
    return [
        f"{name}, {kind}: {results[name][kind]:.2f}, at least {limit}"
        for name in results
        for kind, limit in LIMITS.items()
        if results[name][kind] < limit
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--agents", nargs="+", default=["SGLD", "BNP"], choices=list(AGENTS))
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {options.seeds} seeds side by side; decisions per second over the plain loop's")
    results: dict[str, dict[str, float]] = {}
    with ProcessPoolExecutor(2, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for name in options.agents:
            entries = contenders(name, options.seeds, pool)
            times = race({kind: call for kind, (call, _) in entries.items()}, options.rounds)
            results[name] = {}
            for kind, (_, seeds) in entries.items():
                each = sorted(seeds * p / t for p, t in zip(times["plain loop"], times[kind], strict=True))
                tenth, middle = len(each) // 10, each[len(each) // 2]
                results[name][kind] = middle
                rate = seeds * DECISIONS / sorted(times[kind])[len(each) // 2]
                limit = f"  (at least {LIMITS[kind]})" if kind in LIMITS else ""
                spread = f"[{each[tenth]:.2f}-{each[-1 - tenth]:.2f}]"
                print(f"{name:6} {kind:26} {middle:.2f} {spread} {rate:8.0f} a second{limit}", flush=True)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "bandits.json").write_text(json.dumps(results, indent=2) + "\n")
    slow = missed(results)
    for said in slow:
        print(f"missed: {said}", file=sys.stderr)
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
