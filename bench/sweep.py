"""How much faster two workers finish a sweep than one: 60 runs of at least 2 s, each on one thread.

A run multiplies matrices a fixed number of times, as often as takes `seconds` and a tenth more on this machine when it
is alone; so runs that disturb each other take longer. On two idle cores the ratio should be at least 1.8.

    python bench/sweep.py [--runs 60] [--seconds 2.0] [--workers 2]
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from credent.sweeps import sweep

AIM = 1.8


def work(number: int, steps: int) -> dict[str, Any]:
    """The same work for every number."""
    started = time.perf_counter()
    a = torch.randn(256, 256, generator=torch.Generator().manual_seed(number))
    for _ in range(steps):
        a = torch.tanh(a @ a.T / 256)
    return {"took": time.perf_counter() - started}


def steps_for(seconds: float) -> int:
    """How many steps of `work` take that long on one thread, and a tenth more."""
    torch.set_num_threads(1)
    probe = 500
    fastest = min(work(0, probe)["took"] for _ in range(5))
    return math.ceil(1.1 * seconds / fastest * probe)


def measure(runs: int, steps: int, workers: int) -> tuple[float, float]:
    """Wall-clock seconds of the whole sweep, starting the workers included, and of its shortest run."""
    with tempfile.TemporaryDirectory() as out:
        started = time.perf_counter()
        done = sweep({"number": range(runs)}, out, fixed={"steps": steps}, function=work, metric="took", jobs=workers)
        took = time.perf_counter() - started
    assert len(done.rows) == runs
    assert not done.failures
    return took, min(row["took"] for row in done.rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    steps = steps_for(given.seconds)
    (alone, shortest), (together, _) = (measure(given.runs, steps, workers) for workers in (1, given.workers))
    found = {"one": round(alone, 2), "several": round(together, 2), "ratio": round(alone / together, 3), "aim": AIM}
    found["shortest run"] = round(shortest, 3)
    print(json.dumps(found | vars(given)))
    out = Path(__file__).parent / "out" / "sweep.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found | vars(given), indent=1) + "\n")
