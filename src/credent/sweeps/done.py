"""What came of a sweep: its table, its ranking, and both in a terminal."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from credent.errors import CheckpointError, CredentError
from credent.report.parts import Better
from credent.sweeps import table
from credent.sweeps.ranking import Setting, ranking


@dataclass(frozen=True)
class Sweep:
    """What came of a sweep: its table and its ranking."""

    out: Path
    rows: list[table.Row]
    varied: tuple[str, ...]
    metric: str
    better: Better
    log: tuple[str, ...] = ()
    """Fields that were drawn on a logarithmic scale."""

    @property
    def ranking(self) -> list[Setting]:
        """Settings, best first; those of which a run failed come last."""
        return ranking(self.rows, self.varied, self.metric, self.better)

    @property
    def best(self) -> Setting:
        """The first of the ranking."""
        found = self.ranking
        if not found or math.isnan(found[0].score):
            raise CredentError(f"no run in {self.out} has ended with a finite {self.metric}: {self.out}/runs.csv.")
        return found[0]

    @property
    def failures(self) -> list[table.Row]:
        """Rows of the runs that failed."""
        return [row for row in self.rows if row.get("error")]


def read(out: str | Path) -> Sweep:
    """The sweep in a directory, as far as it went."""
    out = Path(out)
    try:
        about = json.loads((out / "sweep.json").read_text())
        known = (tuple(about["varied"]), about["metric"], about["better"], tuple(about["log"]))
        return Sweep(out, table.read(out), *known)
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{out} holds no sweep that can be shown: {error}.") from error


def shown(done: Sweep, title: str, most: int) -> Table:
    """The best settings as a table for a terminal."""
    found = Table(title=title, box=None, title_justify="left")
    names = [name for name in done.varied if name != "seed"]
    for name in (*names, done.metric, "runs", "failed"):
        found.add_column(name, justify="right")
    for each in done.ranking[:most]:
        values = [_text(each.values[name]) for name in names]
        error = f" ± {each.error:.1g}" if each.error else ""
        found.add_row(*values, f"{each.score:.4g}{error}", str(each.runs), str(each.failed or ""))
    return found


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
