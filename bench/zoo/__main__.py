"""Run every converter on every network: `python -m bench.zoo`; writes bench/out/zoo.json and .html."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from bench.machine import here
from bench.peers import credent, peers
from bench.zoo.judge import zoo
from credent.report import Card, Column, Note, Page, Section, Table

READ = (
    "Each library that takes any network converts it and takes two training steps. Right: without noise it is the "
    "network itself, every draw keeps ties and paddings, and every weight is random. Partial: right, but some weights "
    "stay deterministic, without a word. Wrong: it runs, and is something else. Error: it raises. Libraries of layers "
    "(torchbnn, blitz, torch-uncertainty) have no converter. laplace-torch trains by the plain network's own step."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", help="converters by the beginning of their names")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "out" / "zoo.json")
    options = parser.parse_args()
    torch.set_num_threads(1)  # tiny networks
    there, skipped = peers()
    builds = dict(credent.CONVERTS)
    for peer in there:
        builds |= peer.CONVERTS
    if options.only:
        builds = {name: b for name, b in builds.items() if name.startswith(tuple(options.only))}
    verdicts = zoo(builds)
    found: dict[str, Any] = {
        "machine": here(),
        "skipped": skipped,
        "verdicts": {case: {who: vars(v) for who, v in row.items()} for case, row in verdicts.items()},
    }
    for case, row in verdicts.items():
        for who, verdict in row.items():
            print(f"{case:24} {who:24} {verdict.outcome:8} {verdict.why}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    page(found).write(options.out.with_suffix(".html"))


def page(found: dict[str, Any]) -> Page:
    """Outcomes as one table, reasons below it."""
    verdicts = found["verdicts"]
    who = list(next(iter(verdicts.values())))
    rows = tuple((case, *(row[name]["outcome"] for name in who)) for case, row in verdicts.items())
    why = tuple(
        (case, name, each["outcome"], each["why"])
        for case, row in verdicts.items()
        for name, each in row.items()
        if each["outcome"] != "right"
    )
    facts = tuple(
        Card(
            name, f"{sum(row[name]['outcome'] == 'right' for row in verdicts.values())} of {len(verdicts)}", "", "right"
        )
        for name in who
    )
    versions = tuple((name, version or "not installed") for name, version in found["machine"]["peers"].items())
    parts = (
        Section("What becomes of unusual networks", (Note(READ), Table("Outcomes", _columns("network", *who), rows))),
        Section("Why", (Table("All that is not right", _columns("network", "library", "outcome", "why"), why),)),
        Section("Versions", (Table("Peers", _columns("package", "version"), versions),)),
    )
    return Page("The conversion zoo", "", facts, parts, f"credent {found['machine']['credent']}")


def _columns(*labels: str) -> tuple[Column, ...]:
    return tuple(Column(label) for label in labels)


if __name__ == "__main__":
    main()
