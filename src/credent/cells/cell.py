"""A cell: one run, told apart from every other by plain values, and named after them.

>>> @dataclass(frozen=True)
... class Train(Cell):
...     method: str
...     seed: int
...     def run(self):
...         return {"nll": 0.1}
>>> Train("vi", 0).key == Train("vi", 0).key, Train("vi", 0).key == Train("vi", 1).key
(True, False)
>>> Train("vi", 0).key.partition("-")[0]
'train'
"""

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from credent.cells import strict
from credent.errors import InputError


@dataclass(frozen=True)
class Cell(ABC):
    """One run. Subclasses are frozen dataclasses of plain values, or of frozen dataclasses of plain values.

    Everything that changes the numbers must be a field: two cells that are equal are run once. A cell computes on one
    thread, so that its numbers do not depend on how many run beside it. An `exclusive` cell is for timings: it runs
    alone, after the others, with as many threads as torch has.
    """

    exclusive: ClassVar[bool] = False

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """The results: numbers, words, lists and dicts of them by name, as JSON has them."""

    @property
    def key(self) -> str:
        """The cell's name on disk: its class, and a hash of its fields."""
        text = json.dumps(values(self), sort_keys=True, separators=(",", ":"))
        return f"{type(self).__name__.lower()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {value}" for name, value in values(self).items())
        return f"{type(self).__name__} ({listed})"


def values(cell: Cell) -> dict[str, Any]:
    """The fields that tell the cell apart, all but those declared `compare=False`, as plain JSON values."""
    if "__dataclass_fields__" not in vars(type(cell)):
        name = type(cell).__name__
        raise InputError(f"{name} is a Cell but no dataclass of its own: write @dataclass(frozen=True) above it.")
    found: dict[str, Any] = strict.plain(cell, type(cell).__name__)
    return found
