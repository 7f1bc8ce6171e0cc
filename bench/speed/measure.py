"""One race: contenders made, timed in turns, and their peak memory taken in processes of their own.

A race has several heats, each in a process of its own: the same step of the same network takes up to 5 % more or less
from one process to the next, as memory happens to lie, and differently for every contender.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from bench.arithmetic import paired, summary
from bench.machine import forget_peak, resident
from bench.speed.groups import GROUPS, Race, Turn
from bench.speed.networks import NETWORKS, Setting
from credent.papers.timing import race

STEPS_FOR_MEMORY = 3
MOST_CALLS = 8  # of a turn
FEWEST_HEATS = 3
TURN = 0.04  # seconds, of the base, beside which the clock and the change of turns do not count


def measured(
    group: str, network: str, heats: int, rounds: int, seconds: float, longest: float = math.inf, ours: bool = False
) -> dict[str, Any]:
    """Ratios of every contender to every base, milliseconds, and why some are missing.

    The race has `heats` processes, one after the other, among which rounds and seconds are divided; where three rounds
    take far longer than a heat's seconds, it ends with the heat that ends after twice the race's, but not before three.
    """
    each = max(3, rounds // heats), seconds / heats, longest, int(ours)
    words = ["--heat", group, network, *map(str, each)]
    found: list[dict[str, Any]] = []
    begun = time.perf_counter()
    while len(found) < heats and (len(found) < FEWEST_HEATS or time.perf_counter() - begun < 2 * seconds):
        found.append(_elsewhere(words))
    return judged(GROUPS[group](NETWORKS[network]).bases, found)


def judged(bases: Sequence[str], heats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the heats say together; who is missing in one of them is missing."""
    missing: dict[str, str] = {}
    for each in reversed(heats):
        missing |= each["missing"]
    times = [{name: taken for name, taken in each["times"].items() if name not in missing} for each in heats]
    over: dict[str, dict[str, dict[str, Any]]] = {}
    for base in bases:
        if base in times[0]:
            ratios = [paired(each, base) for each in times]
            over[base] = {name: summary([heat[name] for heat in ratios]) for name in times[0]}
    contenders = {
        name: {
            "milliseconds": 1e3 * statistics.median(taken for each in times for taken in each[name]),
            "over": {base: found[name] for base, found in over.items()},
        }
        for name in times[0]
    }
    return {"bases": list(over), "contenders": contenders, "missing": missing}


def heat(contest: Race, rounds: int, seconds: float, longest: float = math.inf) -> dict[str, Any]:
    """Seconds of every contender in every round, in this process, and why some are missing.

    Every contender has its turn once a round, of one cycle of calls or, where they are quick, more. One that fails, or
    whose single call takes more than the `longest` seconds, is left out with its reason.
    """
    turns: dict[str, Turn] = {}
    missing: dict[str, str] = {}
    repeats = contest.cycle
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
            repeats *= max(1, min(MOST_CALLS // repeats, round(TURN / taken / repeats)))
        elif name not in contest.bases and taken > longest:
            missing[name] = f"one call takes {taken:.1f} s, and at most {longest:.0f} s were given"
            continue
        turns[name] = turn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = race(turns, rounds, repeats, seconds, seed=os.getpid())
    return {"times": times, "missing": missing}


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
    plain = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}  # which a race keeps memory by
    try:
        return int(_elsewhere(["--peak", group, network, name], plain))
    except subprocess.CalledProcessError:
        return None


def _elsewhere(words: list[str], environment: dict[str, str] | None = None) -> Any:
    """What another process, with as many threads, prints."""
    child = [sys.executable, "-m", "bench.speed", "--threads", str(torch.get_num_threads()), *words]
    done = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])
