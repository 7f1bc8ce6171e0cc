"""The page's section of the rows that were tested on every image."""

from collections.abc import Mapping
from typing import Any

from bench.quality import turns
from bench.quality.methods import METHODS
from bench.quality.scores import TURNED, Found, Results, mean, scores, scores_table
from bench.quality.settings import NAMES
from bench.quality.turns import Turn
from bench.quality.verdicts import CLAIM, SLACK, ahead, beats_all, comparable, own
from credent.papers.seeds import estimate
from credent.report import Column, Estimate, Note, Section, Table
from credent.report.numbers import Value

TURNS = (
    "On one test set the ECE of a network that is exactly right about itself is what the table's column says,"
    " give or take a quarter of it, and the same images decide for all seeds. So training and test images were put"
    " together and cut into parts; each part is the test set of a run that was trained on the others. Validation"
    " images are in no part: they chose the settings, those of the rows above, and the temperatures of calibrated"
    " rows. It is a second exam, made when the scores on the test images were known. Rows by Muon have members and"
    " epochs that were chosen on splits of the training images, which are in the parts. A difference of less than"
    ' two standard errors is a tie, and a verdict that rests on one says "in the mean".'
)


def section(results: Results, data: str) -> Section | None:
    """Scores, the claim, and each other row with a credent one beside it; of rows that have had all parts."""
    found = {method: scores(results, data, Turn)[method] for method in together(results, data)}
    if not found:
        return None
    names = {method: (METHODS[method].label, METHODS[method].library) for method in found}
    pooled = sorted((value, method) for method, value in together(results, data).items())
    parts = len(next(iter(found.values()))["nll"])
    return Section(
        f"{NAMES[data]}: every image once",
        (
            Note(TURNS),
            Table("Beside other libraries", CLAIM, tuple(beats_all(found, paired=True))),
            scores_table(f"Mean over {parts} parts ± standard error, least NLL first", TURNED, found),
            _pairs(found),
            Table(
                "ECE of all images together, in which gaps of single runs that differ in sign are no fault",
                (Column("method"), Column("library"), Column("ECE, 15 bins", "%", "lower")),
                tuple((*names[method], value) for value, method in pooled),
            ),
        ),
    )


def together(results: Results, data: str) -> dict[str, float]:
    """By method that has had all its parts, the ECE of all images."""
    of: dict[str, dict[int, Mapping[str, Any]]] = {}
    parts: dict[str, int] = {}
    for cell, result in results.items():
        if isinstance(cell, Turn) and cell.data == data:
            of.setdefault(cell.method, {})[cell.seed] = result
            parts[cell.method] = cell.parts
    whole = {method: each for method, each in of.items() if len(each) == parts[method]}
    return {method: turns.pooled(each.values()) for method, each in whole.items()}


def _pairs(found: Found) -> Table:
    """Each other row, and of credent's that cost no more the best: one that has both scores lower, then least NLL."""
    rows: list[tuple[Value, ...]] = []
    ours = [method for method in found if own(method)]
    for other in sorted(set(comparable(found)) - set(ours), key=lambda each: mean(found[each], "nll")):
        most = SLACK * mean(found[other], "cost")
        rivals = [method for method in ours if mean(found[method], "cost") <= most]
        if not rivals:
            rows.append((METHODS[other].label, "none costs so little", None, None))
            continue
        best = min(rivals, key=lambda each: (not ahead(found[each], found[other]), mean(found[each], "nll")))
        gaps = (_difference(found[best][name], found[other][name]) for name in ("nll", "ece"))
        rows.append((METHODS[other].label, METHODS[best].label, *gaps))
    columns = (Column("other"), Column("credent"), Column("NLL, difference"), Column("ECE, difference", "%"))
    return Table("Part by part, below zero where credent is ahead", columns, tuple(rows))


def _difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    return estimate({part: value - theirs[part] for part, value in ours.items()})
