"""Chains in processes, started by a script as a user's would be: `start` lives in its __main__.

python side_by_side.py DIRECTORY
"""

import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import credent as cr

STEPS = 12


def start(
    seed: int, *, killed: Path | None = None, failing: bool = False, stopped: bool = False, **where: Any
) -> cr.Result:
    """A chain from weights of its own; it may kill its process once, in step nine, or raise or stop in step five."""
    net = nn.Linear(2, 1)  # seeded by whoever calls
    x = torch.linspace(-1, 1, 20).reshape(10, 2)
    objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=0.5), num_data=10)
    sampler = cr.samplers.SGLD(net.parameters(), lr=1e-3, num_data=10)
    seen = 0

    def count(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if failing and seen == 5:
            raise ArithmeticError("by zero")
        if stopped and seen == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        if killed is not None and seen == 9 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    objective.register_forward_pre_hook(count)
    options = {"steps": STEPS, "keep": cr.Thin(after=0.0, every=1), "checkpoint_every": 4}
    return cr.fit(objective, sampler, [(x, x.sum(1, keepdim=True))], **options, **where)


def main(directory: Path) -> None:
    """Quiet chains, and chains of which one is killed, raises, or is asked to stop."""
    cr.chains(start, 3, jobs=1, run_dir=directory / "quiet")
    mark = directory / "mark"
    cr.chains(lambda seed, **where: start(seed, killed=mark, **where), 3, jobs=2, run_dir=directory / "killed")
    first: list[int] = []

    def third_fails(seed: int, **where: Any) -> cr.Result:
        return start(seed, failing=where["run_dir"].name == "chain-2", **where)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rest = cr.chains(third_fails, 3, jobs=2, run_dir=directory / "raised")
    first.append(len(rest.chains))
    (directory / "said").write_text("\n".join(str(each.message) for each in caught))
    both = cr.chains(start, 4, jobs=2, run_dir=directory / "raised", resume=True)  # and one more
    (directory / "counts").write_text(f"{first[0]} {len(both.chains)} {len(both)}")

    def second_stops(seed: int, **where: Any) -> cr.Result:
        return start(seed, stopped=where["run_dir"].name == "chain-1", **where)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cr.chains(second_stops, 3, jobs=2, run_dir=directory / "stopped")
    (directory / "stop").write_text("\n".join(str(each.message) for each in caught))
    cr.chains(start, 3, jobs=2, run_dir=directory / "stopped", resume=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
