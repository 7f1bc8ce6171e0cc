"""Numbers of finished runs by row, score and seed, and a table of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.quality.methods import METHODS
from bench.quality.race import Final
from bench.quality.settings import NAMES, STRANGERS
from bench.quality.turns import Turn
from credent.cells import Cell
from credent.papers.seeds import by_seed, estimate
from credent.report import Column, Table
from credent.report.numbers import Value
from credent.report.parts import Better

Results = Mapping[Cell, Mapping[str, Any]]
Found = Mapping[str, Mapping[str, dict[int, float]]]
"""By method, by score, by seed."""


@dataclass(frozen=True)
class Score:
    """A column: the number's name in a cell, its label, its unit, and on which side it is better."""

    name: str
    label: str
    unit: str = ""
    better: Better = "lower"

    def column(self) -> Column:
        """Of a table."""
        return Column(self.label, self.unit, self.better)


MAIN = (
    Score("accuracy", "accuracy", "%", "higher"),
    Score("nll", "NLL"),
    Score("ece", "ECE, 15 bins", "%"),
    Score("brier", "Brier"),
    Score("cost", "training cost"),
    Score("predicting", "prediction, forwards"),
)
CHANCE = Score("chance", "of it by chance", "%", "")
TURNED = (*MAIN[:3], CHANCE, *MAIN[3:-1])
JUDGED = ("accuracy", "nll", "ece", "brier")


def others(data: str) -> tuple[Score, ...]:
    """Scores of images that are not the test's: strangers and shifted ones."""
    shifts = tuple(
        Score(f"{shift}_{name}", f"{shift}: {label}", unit, better)
        for shift in ("rotation", "noise", "blur")
        for name, label, unit, better in (("nll", "NLL", "", "lower"), ("accuracy", "accuracy", "%", "higher"))
    )
    strangers = {STRANGERS[data]: NAMES.get(STRANGERS[data], "SVHN"), "noise": "noise"}
    return (*(Score(f"auroc_{name}", f"AUROC, {label}", "%", "higher") for name, label in strangers.items()), *shifts)


def scores(
    results: Results, data: str, kind: type[Final] | type[Turn] = Final
) -> dict[str, dict[str, dict[int, float]]]:
    """Numbers by method, by name, by seed, of the finished finals of a data set, or of its parts."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for method in dict.fromkeys(cell.method for cell in results if isinstance(cell, kind) and cell.data == data):
        found[method] = {}
        for score in (*MAIN, CHANCE, *others(data)):
            having = {
                cell: result  # runs of before knew no chance
                for cell, result in results.items()
                if isinstance(cell, kind) and (cell.data, cell.method) == (data, method) and score.name in result
            }
            if having:
                found[method][score.name] = by_seed(having, score.name)
    return found


def scores_table(caption: str, columns: Sequence[Score], found: Found) -> Table:
    """A row each, least NLL first."""
    rows: list[tuple[Value, ...]] = []
    for method in sorted(found, key=lambda name: mean(found[name], "nll")):
        values = (estimate(found[method].get(score.name, {})) for score in columns)
        rows.append((METHODS[method].label, METHODS[method].library, *values))
    return Table(caption, (Column("method"), Column("library"), *(score.column() for score in columns)), tuple(rows))


def mean(found: Mapping[str, dict[int, float]], name: str) -> float:
    """Over seeds; infinite where there is none."""
    value = estimate(found.get(name, {}))
    return value.value if value is not None else float("inf")
