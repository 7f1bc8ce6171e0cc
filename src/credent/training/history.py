"""The numbers of a run over time: one JSON object per line, written as they come.

A number that is not finite (the NLL of a label held impossible) is null. A line that was cut short when the machine
stopped is dropped on reading; a resumed run goes on after the rows that its checkpoint knows of.

>>> history = History(None)
>>> history.append({"step": 1, "nll": 0.5})
>>> history.rows
[{'step': 1, 'nll': 0.5}]
"""

import json
import math
from pathlib import Path
from typing import Any

from credent.errors import CredentError
from credent.files import write_atomically

Row = dict[str, Any]


class History:
    """Rows in memory, and in a file where there is one."""

    def __init__(self, path: Path | None) -> None:
        self.rows: list[Row] = []
        self._path = path

    def append(self, row: Row) -> None:
        """Add one row; in the file it is flushed at once."""
        row = {k: v if not isinstance(v, float) or math.isfinite(v) else None for k, v in row.items()}
        self.rows.append(row)
        if self._path is not None:
            try:
                with open(self._path, "a") as file:
                    file.write(json.dumps(row, allow_nan=False) + "\n")
            except OSError as error:
                raise CredentError(
                    f"cannot write {self._path}: {error}. The last checkpoint is whole: free some space, and go on from"
                    " it with resume=True."
                ) from error

    def resume(self, count: int) -> None:
        """Keep the first `count` rows of the file: those before the checkpoint."""
        assert self._path is not None
        self.rows = read(self._path)[:count]
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        write_atomically(self._path, lambda path: path.write_text(text))


def read(path: Path) -> list[Row]:
    """The whole rows of a history file."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break  # cut short by a power loss; nothing follows it
    return rows
