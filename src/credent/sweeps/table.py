"""The tidy table of a sweep, one row a run: its number, what was varied, what it returned, seconds, and the error.

    OUT/runs.csv        numbers in full, empty where there is none
    OUT/runs.parquet    the same, where pyarrow is installed

Both are replaced whole, so that whoever reads them while the sweep goes on sees a table.
"""

import csv
import io
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from credent.files import write_atomically

Row = dict[str, Any]


def columns(rows: Sequence[Row]) -> list[str]:
    """All names, in the order in which they first come; seconds and the error last."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [*(name for name in names if name not in ("seconds", "error")), "seconds", "error"]


def write(rows: Sequence[Row], directory: Path) -> None:
    """Replace the table by these rows."""
    names = columns(rows)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(
        directory / "runs.csv", lambda path: path.write_text(text.getvalue(), encoding="utf-8", newline="")
    )
    if find_spec("pyarrow") is not None:
        _write_parquet(rows, names, directory / "runs.parquet")


def read(directory: Path) -> list[Row]:
    """The rows of runs.csv, numbers as numbers, without the empty cells."""
    with open(directory / "runs.csv", encoding="utf-8", newline="") as file:
        return [{name: number(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def number(text: str) -> float | int | str:
    """What a cell of the table says: a number where it can be read as one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _write_parquet(rows: Sequence[Row], names: Sequence[str], path: Path) -> None:
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    arrays = {name: _column([row.get(name) for row in rows]) for name in names}
    write_atomically(path, lambda part: parquet.write_table(pyarrow.table(arrays), part))


def _column(values: list[Any]) -> list[Any]:
    """One type a column: words if any is a word, else numbers."""
    if any(isinstance(value, str) for value in values):
        return [None if value is None else str(value) for value in values]
    return [float(value) if isinstance(value, int) and _mixed(values) else value for value in values]


def _mixed(values: list[Any]) -> bool:
    return any(isinstance(value, float) for value in values)
