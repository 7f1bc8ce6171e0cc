"""Race for quality: `python -m bench.quality`, options by --help; writes cells, a page and a table below --out.

A run that is stopped goes on where it was; parts that are asked for later are added to the same page.
"""

import argparse
from importlib.metadata import version
from pathlib import Path

from bench.quality import page, race, uci
from bench.quality.methods import METHODS
from bench.quality.settings import NAMES, SCALES
from bench.quality.turns import turns
from credent.cells import Cell, finish
from credent.cells.record import read
from credent.files import write_atomically


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("--scale", default="cpu", choices=list(SCALES))
    parser.add_argument("--data", type=_listed, default=None, help="of: " + ", ".join((*NAMES, "uci", *_sets())))
    parser.add_argument("--methods", type=_listed, default=None, help="of: " + ", ".join(METHODS))
    parser.add_argument("--splits", type=int, default=20, help="of UCI sets, the first so many")
    parser.add_argument("--jobs", type=int, default=None, help="cells side by side; one a core")
    parser.add_argument("--out", type=Path, default=Path("results/bench/quality"))
    options = parser.parse_args()
    scale = SCALES[options.scale]
    data = options.data or [*scale.sizes, "uci"]
    _check(parser, data, (*scale.sizes, "uci", *_sets()))
    _check(parser, options.methods or [], METHODS)
    cells = options.out / options.scale / "cells"
    wanted: dict[str, list[str]] = {
        name: options.methods or list(scale.methods[name] or METHODS) for name in scale.sizes if name in data
    }
    tried = [cell for name, methods in wanted.items() for cell in race.trials(scale, name, methods)]
    sets = [name for name in uci.SETS if "uci" in data or f"uci/{name}" in data]
    searched = uci.searches(options.scale, sets)
    done = finish([*tried, *searched], cells, options.jobs)
    picked = race.chosen(done.results)
    second: list[Cell] = [
        cell for name, methods in wanted.items() for cell in race.finals(scale, name, methods, picked)
    ]
    second += [cell for name, methods in wanted.items() for cell in turns(scale, name, methods, picked)]
    second += uci.splits(uci.chosen(done.results), options.splits)
    ended = finish(second, cells, options.jobs)
    everything = _everything(options.scale, options.splits, cells)
    failures = {**done.failures, **ended.failures}
    made = page.page(options.scale, scale, everything, failures, version("credent"))
    made.write(options.out / options.scale / "quality.html")
    text = page.table(everything)
    write_atomically(options.out / options.scale / "quality.csv", lambda part: part.write_text(text, encoding="utf-8"))
    print(f"{len(everything)} runs in {options.out / options.scale / 'quality.html'}, {len(failures)} failed")


def _everything(name: str, splits: int, cells: Path) -> page.Results:
    """What has ended of the whole scale, in this run or before."""
    scale = SCALES[name]
    tried = {data: list(methods or METHODS) for data, methods in scale.methods.items()}
    first = _finished([c for data in tried for c in race.trials(scale, data, METHODS)], cells)
    first |= _finished(uci.searches(name, uci.SETS), cells)
    picked = race.chosen(first)
    second: list[Cell] = [c for data in tried for c in race.finals(scale, data, METHODS, picked)]
    second += [c for data in tried for c in turns(scale, data, METHODS, picked)]
    second += uci.splits(uci.chosen(first), splits)
    return {**first, **_finished(second, cells)}


def _finished(wanted: list[Cell], cells: Path) -> dict[Cell, dict[str, object]]:
    found = {cell: read(cell, cells) for cell in wanted}
    return {cell: record.result for cell, record in found.items() if record is not None}


def _sets() -> list[str]:
    return [f"uci/{name}" for name in uci.SETS]


def _listed(text: str) -> list[str]:
    return text.split(",")


def _check(parser: argparse.ArgumentParser, given: list[str], known: object) -> None:
    unknown = [name for name in given if name not in known]  # type: ignore[operator]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(known)}")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
