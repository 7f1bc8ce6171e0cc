"""The page of the race and its table for machines: who is best at what, what it costs, and where others win."""

import csv
import io
from collections.abc import Mapping

from bench.quality import every_image, uci
from bench.quality.front import picture
from bench.quality.methods import METHODS
from bench.quality.race import Final, Trial
from bench.quality.scores import MAIN, Results, mean, others, scores, scores_table
from bench.quality.settings import NAMES, TRIALS, Scale
from bench.quality.turns import Turn
from bench.quality.verdicts import CLAIM, comparable, own, verdicts
from credent.cells import Cell
from credent.papers.seeds import estimate
from credent.report import Card, Column, Note, Page, Section, Table

HOW = (
    "Everyone trains the same LeNet-5 on the same batches for the same number of passes over the data, each"
    " member where there are several, unless the row says otherwise; Laplace's curvature and Variational"
    " Laplace's other passes come on top, and all of it is in the cost."
    f" Everyone has {2 * TRIALS} trials of (rate, knob): {TRIALS}, each rate and each knob once, and {TRIALS} of"
    " ranges of which one whose end had the best on Fashion-MNIST is moved by one place (not temperatures; where only"
    " rates are tried, they are between the first or beyond their best end). After these some are best at an end"
    " again, as the table of what was chosen shows. Trials are judged by NLL on validation images, those of"
    " laplace-torch's Kronecker curvature on 300 of them, since its predictions cost so much, for which it has no"
    " scores of shifted images and strangers either. The best is run again under new seeds, and only these runs, and"
    " those on every image below, see a test image. Ensembles and calibrated rows take the trials of their member,"
    " laplace-torch's row with a prior by validation those of the other. The recipe's row"
    " has no trial here: its settings were chosen before, on images of Fashion-MNIST that are no test images and"
    " with more trials, and so were the members and epochs of rows by Muon, whose rates and knobs have the same"
    " trials as everyone's. Averaged rows train at a constant rate, or by Muon at one that falls to a tenth, and"
    " predict with the average of the weights. Calibrated rows predict at the temperature that the validation images"
    " choose; of other libraries only laplace-torch has a row that chooses something by them after its training."
    " credent has more rows than any other library; verdicts take the best of them after the fact. Mean ± standard"
    " error over seeds, and of one run no error. Costs are CPU time: of training over a plain PyTorch loop with fused"
    " Adam in the same process, of prediction in forward passes; runs are of several days and machines, between which"
    " such ratios move by some per cent. Deep ensembles are trained by credent's MAP, whose steps cost up to 5 % more"
    " than plain ones."
)
SHIFTS = "Shifted images: turned by 20 degrees, noise of 0.15 of the grey scale, blurred by one pixel."
DOUBT = "AUROC is that of the entropy of the averaged prediction, test images against others."


def page(scale: str, settings: Scale, results: Results, failures: Mapping[Cell, str], version: str) -> Page:
    """Everything that has ended."""
    raced = {data: found for data in settings.sizes if (found := scores(results, data))}
    sections: list[Section] = []
    cards: list[Card] = []
    if raced:
        sections.append(Section("How it was run", (Note(HOW), *(_sized(settings, data) for data in raced))))
    reached = 0
    for data, found in raced.items():
        learnt = {method: found[method] for method in comparable(found)}
        unlearnt = {method: numbers for method, numbers in found.items() if method not in learnt}
        said = verdicts(data, found)
        reached += sum(verdict == "yes" for _, verdict, _ in said)
        points = {
            METHODS[method].label: (mean(numbers, "cost"), mean(numbers, "nll")) for method, numbers in learnt.items()
        }
        ours = frozenset(METHODS[method].label for method in found if own(method))
        sections += [
            Section(f"{NAMES[data]}: verdicts", (Table("Where others win, it is said here", CLAIM, tuple(said)),)),
            Section(
                NAMES[data],
                (
                    scores_table("Test images, least NLL first", MAIN, learnt),
                    *([scores_table("Rows that have learnt nothing, or diverged", MAIN, unlearnt)] if unlearnt else []),
                    picture("NLL against cost", points, ours, "training cost over plain PyTorch", "test NLL"),
                    scores_table(f"Other images. {DOUBT} {SHIFTS}", others(data), learnt),
                    _settings(results, data),
                ),
            ),
            *([again] if (again := every_image.section(results, data)) else []),
        ]
    if raced:
        told = f"of {5 * len(raced)}: five for each data set"
        cards.append(Card("Claims that held", f"{reached}", meaning=f"{told}; the verdicts say which."))
    if beside := uci.table(results):
        held, tested = max(uci.held(results, method) for method in uci.METHODS)
        meaning = f"of {tested}: test log-likelihood of the best row at least the published one of Monte-Carlo VI."
        cards.append(Card("UCI sets", f"{held}", meaning=meaning))
        sections.append(Section("UCI regression", (Note(uci.READ), beside, Note(uci.verdict(results)))))
    if failures:
        rows = tuple((str(cell), why) for cell, why in failures.items())
        sections.append(Section("Did not run", (Table("Failures", (Column("run"), Column("why")), rows),)))
    return Page(
        "Quality beside other libraries", f"Scale: {scale}.", tuple(cards), tuple(sections), f"credent {version}"
    )


def _sized(settings: Scale, data: str) -> Note:
    size = settings.sizes[data]
    return Note(
        f"{NAMES[data]}: {size.train or 'all'} training images, {size.val} for validation, {size.test or 'all'} test"
        f" images, {size.strange} of each shift and of each kind of stranger, {size.epochs} epochs in batches of"
        f" {size.batch}, {size.draws} draws of each member in a prediction; {len(settings.seeds)} seeds of the chosen"
        f" setting.{_close(settings, data)}"
    )


def _close(settings: Scale, data: str) -> str:
    labels = [METHODS[method].label for method in settings.close.get(data, ())]
    count = len(settings.seeds) + len(settings.more)
    return f" Rows whose order these left open have {count}: {', '.join(labels)}." if labels else ""


def _settings(results: Results, data: str) -> Table:
    """What was chosen of what was tried, so that a choice at the end of a range can be seen."""
    picked = {cell.method: cell for cell in results if isinstance(cell, Final) and cell.data == data}
    rows = []
    for method, cell in picked.items():
        of = (data, METHODS[method].tuned_as or method)
        tried = [c for c in results if isinstance(c, Trial) and (c.data, c.method) == of]
        nlls = "; ".join(f"({c.lr:g}, {c.knob:g}): {results[c].get('nll', float('nan')):.3f}" for c in tried)
        rows.append((METHODS[method].label, METHODS[method].knob, f"{cell.lr:g}", f"{cell.knob:g}", nlls))
    columns = ("method", "knob", "chosen rate", "chosen knob", "validation NLL of all trials (rate, knob)")
    return Table("Chosen on validation images", tuple(map(Column, columns)), tuple(rows))


def table(results: Results) -> str:
    """All means and standard errors as CSV: data, method, library, score, mean, error, runs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("data", "method", "library", "score", "mean", "error", "runs"))
    for data in NAMES:
        for method, numbers in scores(results, data).items():
            for name, values in numbers.items():
                writer.writerow((data, METHODS[method].label, METHODS[method].library, name, *_summary(values)))
        for method, ece in every_image.together(results, data).items():
            numbers = {**scores(results, data, Turn)[method], "ece_together": {0: ece}}
            for name, values in numbers.items():
                row = (f"{data}/turns", METHODS[method].label, METHODS[method].library, name, *_summary(values))
                writer.writerow(row)
    for (name, method), values in uci.scores(results).items():
        row = (f"uci/{name}", uci.METHODS[method], "credent", "log_likelihood", *_summary(dict(enumerate(values))))
        writer.writerow(row)
    return out.getvalue()


def _summary(values: Mapping[int, float]) -> tuple[str, str, int]:
    found = estimate(values)
    assert found is not None
    return f"{found.value:.6g}", f"{found.error:.3g}", len(values)
