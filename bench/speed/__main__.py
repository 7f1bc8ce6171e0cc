"""Race credent beside its peers: `python -m bench.speed`, options by --help; writes bench/out/speed.json and .html.

What is raced later joins what is there, in the place of the same race of before; each race says what it was run with.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from bench.machine import here, keep_memory
from bench.peers import peers
from bench.speed.groups import GROUPS
from bench.speed.growth import AXES, growth
from bench.speed.measure import heat, measured, peak, peak_elsewhere
from bench.speed.networks import NETWORKS
from bench.speed.page import page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[*GROUPS, "growth"], choices=[*GROUPS, "growth"])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES), help="of growth")
    parser.add_argument("--heats", type=int, default=6, help="processes that a race is run in")
    parser.add_argument("--rounds", type=int, default=24, help="of each race, at most, but at least three of each heat")
    parser.add_argument(
        "--seconds", type=float, default=180, help="of each race; a contender's one call may take a tenth"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-memory", action="store_true", help="without a process for each contender's peak memory")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "out" / "speed.json")
    parser.add_argument("--heat", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--peak", nargs=3, metavar=("WORK", "NETWORK", "CONTENDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        group, network, name = options.peak
        print(peak(group, NETWORKS[network], name))
        return
    if options.heat:
        group, network, rounds, seconds, longest, ours = options.heat
        contest = GROUPS[group](NETWORKS[network])
        contest = contest.only(lambda name: name.startswith("credent")) if int(ours) else contest
        print(json.dumps(heat(contest, int(rounds), float(seconds), float(longest))))
        return
    keep_memory("bench.speed")
    found = _before(options.out) | {"machine": here(), "skipped": peers()[1]}
    raced = {key: found["machine"][key] for key in ("commit", "cpu", "threads")}
    for group in (name for name in GROUPS if name in options.only):
        for network in options.networks:
            contest = measured(
                group, network, options.heats, options.rounds, options.seconds, longest=options.seconds / 10
            )
            if not options.no_memory:
                for name, each in contest["contenders"].items():
                    each["memory"] = peak_elsewhere(group, network, name)
            found["groups"].setdefault(group, {})[network] = contest | {"raced": raced}
            _say(group, network, contest)
            _write(found, options.out)
    for axis in options.axes if "growth" in options.only else []:
        each = growth(axis, options.rounds, options.seconds)
        found["growth"][axis] = each | {"raced": raced}
        for name, fit in each["exponents"].items():
            said = f"{fit['exponent']:.2f}, over plain {fit['beyond plain']:+.3f} +- {fit['error']:.3f}"
            print(f"growth with {axis:11} {name:16} exponent {said}", flush=True)
        _write(found, options.out)


def _before(out: Path) -> dict[str, Any]:
    """What is there already."""
    empty: dict[str, Any] = {"groups": {}, "growth": {}}
    return empty | json.loads(out.read_text()) if out.exists() else empty


def _say(group: str, network: str, contest: dict[str, Any]) -> None:
    for name, each in contest["contenders"].items():
        first = each["over"][contest["bases"][0]]
        said = f"{first['median']:6.2f} [{first['low']:.2f}-{first['high']:.2f}] {each['milliseconds']:9.1f} ms"
        print(f"{group:10} {network:16} {name:40} {said}", flush=True)
    for name, why in contest["missing"].items():
        print(f"{group:10} {network:16} {name:40} {why}", flush=True)


def _write(found: dict[str, Any], out: Path) -> None:
    """After every race, so that a run that is stopped has what it measured."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    page(found).write(out.with_suffix(".html"))


if __name__ == "__main__":
    main()
