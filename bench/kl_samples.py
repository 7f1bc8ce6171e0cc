"""What a KL from M draws costs, in time and in memory, for M from 1 to 1,000.

Each row is a process of its own that takes training steps of ResNet-18 with a KL from M draws of its own. Time: seconds
of the second step, less those of a step whose KL takes the likelihood's one draw. Memory: peak resident memory, over
that of M = 1. "naive" keeps the graphs of all M draws until the backward pass.

    python bench/kl_samples.py [--draws 1 10 100 1000] [--priors horseshoe gaussian] [--naive 10]
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

import credent as cr

PRIORS = {"horseshoe": cr.priors.Horseshoe(), "mixture": cr.priors.ScaleMixture(), "gaussian": cr.priors.Gaussian()}
LIMIT = 1.1


def measure(prior: str, draws: int, naive: bool) -> tuple[float, int]:
    """Seconds of a training step and peak resident bytes of this process (VmHWM: rusage's begins with the parent's)."""
    torch.manual_seed(0)
    bnn = cr.VI(
        cr.models.ResNet18(),
        cr.likelihoods.Categorical(),
        PRIORS[prior],
        num_data=50_000,
        estimator="path",
        kl_samples=None if naive else 1,
    )
    optimizer = torch.optim.Adam(bnn.param_groups(lr=1e-3))
    x, y = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    for m in (1, draws):  # the first step is for the optimiser's own memory
        if not naive:
            bnn.kl_samples = m
        start = time.perf_counter()
        loss = bnn(x, y)
        if naive and m > 1:
            loss = loss + bnn.kl([bnn.q.rsample() for _ in range(m - 1)]) / bnn.num_data
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - start
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return seconds, int(line.split()[1]) * 1024


def in_process(prior: str, draws: int, naive: bool) -> tuple[float, int]:
    """The same in a process of its own."""
    child = [sys.executable, __file__, "--one", prior, str(draws), str(int(naive))]
    seconds, peak = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--naive", type=int, nargs="*", default=[10])
    parser.add_argument("--priors", nargs="+", default=["horseshoe", "gaussian"], choices=list(PRIORS))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]), options.one[2] == "1")))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; ResNet-18, one step, KL from M draws")
    results = []
    for prior in options.priors:
        plain, _ = in_process(prior, 1, naive=True)
        first = 0
        for naive, draws in [*((False, m) for m in options.draws), *((True, m) for m in options.naive)]:
            seconds, peak = in_process(prior, draws, naive)
            first = first or peak
            way = "naive" if naive else "one at a time"
            print(
                f"{prior:10} {way:14} M = {draws:<5} {seconds - plain:8.2f} s {peak / 2**20:8.0f} MiB"
                f" {peak / first:5.2f} x M = {options.draws[0]}" + ("" if naive else f"  (limit {LIMIT})"),
                flush=True,
            )
            results.append({"prior": prior, "way": way, "draws": draws, "seconds": seconds - plain, "bytes": peak})
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "kl_samples.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
