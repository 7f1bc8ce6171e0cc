"""One race: contenders made, timed in turns, and their peak memory taken in processes of their own."""

import json
import math
import os
import subprocess
import sys
import time
import warnings
from typing import Any

from bench.arithmetic import paired, summary
from bench.machine import forget_peak, resident
from bench.speed.groups import GROUPS, Race, Turn
from bench.speed.networks import Setting
from credent.papers.timing import race

STEPS_FOR_MEMORY = 3
TURN = 0.04  # seconds, of the base, beside which the clock and the change of turns do not count


def measured(contest: Race, rounds: int, seconds: float, longest: float = math.inf) -> dict[str, Any]:
    """Ratios of every contender to every base, milliseconds, and why some are missing.

    Every contender has its turn once a round, of two calls or, where they are quick, more. One that fails, or whose
    single call takes more than the `longest` seconds, is left out with its reason.
    """
    turns: dict[str, Turn] = {}
    missing: dict[str, str] = {}
    repeats = 2
    for name, make in contest.contenders.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # peers speak of what they will deprecate
                turn = make()
                turn()
                start = time.perf_counter()
                turn()
                taken = time.perf_counter() - start
        except Exception as error:  # whatever a library raises on this network
            missing[name] = _told(error)
            continue
        if name == contest.bases[0]:
            repeats = 2 * max(1, min(4, round(TURN / taken / 2)))  # even: noise in pairs is paid for every other step
        elif name not in contest.bases and taken > longest:
            missing[name] = f"one call takes {taken:.1f} s, and at most {longest:.0f} s were given"
            continue
        turns[name] = turn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = race(turns, rounds, repeats, seconds)
    over = {base: {k: summary(v) for k, v in paired(times, base).items()} for base in contest.bases if base in times}
    contenders = {
        name: {
            "milliseconds": 1e3 * sorted(taken)[len(taken) // 2],
            "over": {base: found[name] for base, found in over.items()},
        }
        for name, taken in times.items()
    }
    return {"bases": list(over), "contenders": contenders, "missing": missing}


def _told(error: Exception) -> str:
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0] if first else ''}"[:200]


def peak(group: str, setting: Setting, name: str) -> int:
    """Bytes by which this process grows, at most, while the contender is made and takes a few turns."""
    contest = GROUPS[group](setting)
    forget_peak()
    before = resident("VmRSS")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        turn = contest.contenders[name]()
        for _ in range(STEPS_FOR_MEMORY):
            turn()
    return resident("VmHWM") - before


def peak_elsewhere(group: str, network: str, name: str) -> int | None:
    """The same in a process of its own; None where it fails there."""
    child = [sys.executable, "-m", "bench.speed", "--peak", group, network, name]
    plain = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}  # which a race keeps memory by
    done = subprocess.run(child, capture_output=True, text=True, check=False, env=plain)
    return int(json.loads(done.stdout)) if done.returncode == 0 else None
