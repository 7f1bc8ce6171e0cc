"""What a page is made of: cards, figures, tables, notes, and the sections that hold them.

All are frozen and know nothing of HTML except a figure's drawing, which must be `Markup` (what `credent.report.plots`
returns): the page escapes everything else it is given.

>>> Table("Two runs", (Column("run"), Column("error", "%", "lower")), (("a", 0.02), ("b", 0.01))).best()
{(1, 1)}
"""

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from markupsafe import Markup

from credent.errors import InputError
from credent.report.numbers import Value, centre, decimals, figures, spread

Better = Literal["lower", "higher", ""]


@dataclass(frozen=True)
class Card:
    """One key number, with what it says in plain words."""

    label: str
    value: Value
    unit: str = ""
    meaning: str = ""
    better: Better = ""


@dataclass(frozen=True)
class Figure:
    """A drawing with its title, and a caption that says what it shows and what good looks like.

    `topic` is the heading under which `run_page` and `comparison_page` group it; a `wide` figure takes a whole row.
    """

    title: str
    drawing: Markup
    caption: str
    topic: str = "Results"
    wide: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.drawing, Markup):
            raise InputError(
                f"Figure({self.title!r}): the drawing is a plain {type(self.drawing).__name__}, which the page would "
                "show as text because it may hold anything. If you made this SVG yourself and trust it, write "
                "Figure(title, Markup(svg), caption) with `from markupsafe import Markup`."
            )


@dataclass(frozen=True)
class Column:
    """A table's column: its header, unit, and which direction is better (the best cells are then marked)."""

    label: str
    unit: str = ""
    better: Better = ""


@dataclass(frozen=True)
class Table:
    """Rows of values under columns; the first column names the row."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(
                    f"Table({self.caption!r}): the row {row!r} has {len(row)} values for {len(self.columns)} columns; "
                    "write None where a value is missing."
                )

    def best(self) -> set[tuple[int, int]]:
        """(row, column) of each value within two standard errors of its column's best."""
        found: set[tuple[int, int]] = set()
        for c, column in enumerate(self.columns):
            known = [(number, r) for r, row in enumerate(self.rows) if (number := centre(row[c])) is not None]
            if not column.better or len(known) < 2:
                continue
            top, where = min(known) if column.better == "lower" else max(known)
            error = spread(self.rows[where][c])
            found |= {(r, c) for v, r in known if abs(v - top) <= 2 * math.hypot(error, spread(self.rows[r][c]))}
        return found

    def words(self) -> list[bool]:
        """Which columns hold words, to be set flush left, rather than numbers."""
        return [any(isinstance(row[c], str) for row in self.rows) for c in range(len(self.columns))]

    def texts(self) -> list[list[str]]:
        """The cells as written, with as many decimals for all of a column."""
        places = [decimals((row[c] for row in self.rows), column.unit) for c, column in enumerate(self.columns)]
        return [
            [
                figures(value, column.unit, None if isinstance(value, Integral) else places[c])
                for c, (value, column) in enumerate(zip(row, self.columns, strict=True))
            ]
            for row in self.rows
        ]


@dataclass(frozen=True)
class Note:
    """A paragraph of plain text."""

    text: str


Part = Figure | Table | Note


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    parts: tuple[Part, ...]
