"""Whether credent has become slower: `python -m bench.speed.check [recorded.json]`, a few minutes.

Credent's contenders are raced again on the smaller networks against what they are measured against. A ratio fails when
the lower end of its bootstrap interval lies above the recorded upper end by more than 5 % (`bench.arithmetic.worse`),
and does so again when it is raced a second time.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.arithmetic import worse
from bench.machine import here, keep_memory
from bench.speed.measure import measured

RECORDED = Path(__file__).parents[2] / "results" / "bench" / "speed.json"
WORK = ("vi", "vl", "samplers", "prediction")
SMALL = ("mlp", "lenet5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", nargs="?", type=Path, default=RECORDED)
    parser.add_argument("--heats", type=int, default=4, help="processes that a race is run in")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30, help="of each race, at most")
    options = parser.parse_args()
    keep_memory("bench.speed.check")
    if not options.recorded.exists():
        sys.exit(f"{options.recorded} does not exist: `make bench` on a quiet machine makes it.")
    recorded = json.loads(options.recorded.read_text())["groups"]
    slower = [
        said
        for group in WORK
        for network in SMALL
        if network in recorded.get(group, {})
        for said in _slower(group, network, recorded[group][network], options)
    ]
    for said in slower:
        print(f"slower: {said}", file=sys.stderr)
    if slower and (told := another_cpu(recorded, here()["cpu"])):
        print(told, file=sys.stderr)
    sys.exit(1 if slower else 0)


def another_cpu(recorded: dict[str, Any], cpu: str) -> str:
    """What to do where the recording is another machine's, whose ratios are others."""
    checked = (recorded[group][network] for group in WORK for network in SMALL if network in recorded.get(group, {}))
    theirs = {contest["raced"]["cpu"] for contest in checked} - {cpu}
    if not theirs:
        return ""
    return (
        f"The recording is of {', '.join(sorted(theirs))}, and this is {cpu}: ratios differ between CPUs. Record the"
        " code of before on this machine (python -m bench.speed --out before.json), and check against before.json."
    )


def _slower(group: str, network: str, before: dict[str, Any], options: argparse.Namespace) -> list[str]:
    first = compared(_again(group, network, options), before)
    again = compared(_again(group, network, options), before) if first else {}
    found = [f"{group}, {network}, {name}: {said}" for name, said in again.items() if name in first]
    print(f"{group:10} {network:8} {'slower' if found else 'as recorded, or faster'}", flush=True)
    return found


def _again(group: str, network: str, options: argparse.Namespace) -> dict[str, Any]:
    return measured(group, network, options.heats, options.rounds, options.seconds, ours=True)


def compared(now: dict[str, Any], before: dict[str, Any]) -> dict[str, str]:
    """What is worse now, with both intervals; a contender that was recorded and no longer runs is."""
    found = {}
    for name, each in before["contenders"].items():
        if not name.startswith("credent"):
            continue
        if name not in now["contenders"]:
            found[name] = f"recorded, and now: {now['missing'].get(name, 'gone')}"
            continue
        for base, old in each["over"].items():
            new = now["contenders"][name]["over"][base]
            if worse(new, old):
                found[f"{name} over {base}"] = f"{new['interval']}, recorded {old['interval']}"
    return found


if __name__ == "__main__":
    main()
