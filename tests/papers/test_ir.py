"""The inverse-reference paper's experiments: they run, and their verdicts follow the numbers."""

import json
import warnings

import pytest
import torch

from credent.papers import EXPERIMENTS, Scale, reproduce_paper
from credent.papers.ir.settings import NETWORKS, PRIORS, SEEDS, SIZES, datasets, rates
from credent.papers.ir.table1 import PUBLISHED, cell
from credent.papers.ir.toy import Band
from credent.papers.ir.training import EPSILONS, Training
from credent.papers.ir.training import network as build

PARTS = ("table1", "figure1", "figure2", "figure3", "figure4", "table2", "table3")
ALL = [EXPERIMENTS[f"ir/{part}"] for part in PARTS]
TABLE1, FIGURE1, FIGURE2, FIGURE3, FIGURE4, TABLE2, TABLE3 = ALL
NOT_TESTABLE = "not testable at this scale"


@pytest.mark.slow
def test_smoke_runs_everything_and_judges_nothing(tmp_path):
    index, done = reproduce_paper(ALL, Scale.SMOKE, tmp_path, jobs=1, progress=False)
    assert index.exists()
    for each in done:
        assert not each.failures
        assert {v.outcome for v in each.verdicts} == {NOT_TESTABLE}
        assert json.loads(each.summary.read_text())["name"] == each.experiment.name


def test_a_run_is_decided_by_its_fields_and_is_watched():
    once, again = (cell(Scale.SMOKE, "digits", "resnet", "hybrid", 0).run() for _ in range(2))
    assert once == again
    epochs = SIZES[Scale.SMOKE].epochs
    assert len(once["accuracies"]) == len(once["traces"]) == epochs
    assert once["accuracy"] == max(once["accuracies"])
    assert once["max_trace"] == max(once["traces"]) > 0


def scored(experiment, number, value):
    """Every cell of an experiment with a result: `value(cell)`, and a little more with every seed."""
    results = {}
    for each in experiment.cells(Scale.CPU):
        if isinstance(each, Training):
            found = value(each) * (1 + 1e-3 * each.seed)
            results[each] = {
                "accuracy": found,
                "max_trace": found,
                "log_scale_change": 0.0,
                "accuracies": [found],
                "traces": [found],
                "attacks": {e: {"accuracy": found, "drop": 0.1} for e in ("0", *EPSILONS)},
            }
        elif isinstance(each, Band):
            results[each] = {"log_seen": 0.0, "log_unseen": value(each) + 1e-3 * each.seed}
    return results


def outcomes(experiment, results, words):
    return [v.outcome for v in experiment.verdicts(Scale.CPU, results) if words in v.claim]


@pytest.mark.parametrize(
    ("reading", "expected"), [(0.5, "replicated"), (0.4, "not replicated"), (0.3, "not replicated")]
)
def test_table1_says_whether_the_readings_are_best(reading, expected):
    def value(c):
        return {"hybrid": reading, "inner": reading, "none": 0.35}.get(c.prior, 0.4)

    results = scored(TABLE1, "accuracy", value)
    said = outcomes(TABLE1, results, "more accurate than the three")
    assert said == [expected] * (2 * len(NETWORKS) * len(datasets(Scale.CPU)))
    above = "replicated" if reading > 0.35 else "not replicated"
    assert outcomes(TABLE1, results, "does something") == [above] * 2


def test_table1_shows_the_published_numbers_beside_ours():
    section = TABLE1.sections(Scale.CPU, scored(TABLE1, "accuracy", lambda c: 0.4))[0]
    (table,) = section.parts
    rows = {row[0]: row for row in table.rows}
    assert rows["Gaussian"][2::2] == PUBLISHED["cifar10"]["gaussian"]
    assert rows["IR, hybrid"][2::2] == PUBLISHED["cifar10"]["ir"]
    assert rows["no KL"][2::2] == (None, None, None)


def test_figure2_wants_larger_traces_at_small_rates():
    results = scored(FIGURE2, "max_trace", lambda c: 1 / c.lr * (0.5 if c.prior == "inner" else 1.0))
    assert set(outcomes(FIGURE2, results, "for every prior")) == {"replicated"}
    assert set(outcomes(FIGURE2, results, "IR, inner has a smaller")) == {"replicated"}
    assert set(outcomes(FIGURE2, results, "IR, hybrid has a smaller")) == {"not replicated"}


def test_figure3_compares_how_much_the_rate_matters():
    steady = scored(FIGURE3, "accuracy", lambda c: 0.4 + (0 if c.prior == "hybrid" else 1) * 100 * c.lr * 0.1)
    assert outcomes(FIGURE3, steady, "IR, hybrid") == ["replicated"]
    assert outcomes(FIGURE3, steady, "IR, inner") == ["not replicated"]


def test_figure4_wants_more_doubt_away_from_the_data():
    results = scored(FIGURE4, "log_unseen", lambda c: {"hybrid": 0.5, "inner": 0.8, "gaussian": 0.0}.get(c.prior, -1.0))
    yes, no = "replicated", "not replicated"
    assert outcomes(FIGURE4, results, "(log of the mean width)") == [yes] * 4
    assert outcomes(FIGURE4, results, "less than twice") == [yes, no] * 2  # log 2 is between the two
    narrow = scored(FIGURE4, "log_unseen", lambda c: -1.0 if c.prior == "hybrid" else 0.0)
    assert outcomes(FIGURE4, narrow, "(log of the mean width)") == [no] * 4


def test_attacked_compares_accuracy_and_its_loss():
    results = scored(TABLE2, "attacks", lambda c: 0.5 if c.prior == "hybrid" else 0.4)
    assert set(outcomes(TABLE2, results, "IR, hybrid is the most accurate")) == {"replicated"}
    assert set(outcomes(TABLE2, results, "loses the least")) == {"not replicated"}


def test_attacked_marks_the_best_prior_at_each_size():
    """Rows are priors: the most accurate and the least harmed of each column are marked, to two standard errors."""
    results = scored(TABLE2, "attacks", lambda c: 0.5 if c.prior == "hybrid" else 0.4)
    for each, found in results.items():
        harm = {"gaussian": 0.1, "inner": 0.1001}.get(each.prior, 0.3) + 1e-3 * each.seed
        for attack in found["attacks"].values():
            attack["drop"] = harm
    accuracy, drop = TABLE2.sections(Scale.CPU, results)[0].parts
    names = list(PRIORS.values())
    for table in (accuracy, drop):
        assert [row[0] for row in table.rows] == names
    ours = [i for i, column in enumerate(accuracy.columns) if column.better]
    assert [accuracy.columns[i].label for i in ours] == [f"epsilon {e}" for e in ("0", *EPSILONS)]
    assert accuracy.best() == {(names.index("IR, hybrid"), i) for i in ours}
    assert drop.caption.startswith("Drop of the mean log-likelihood")
    both = (names.index("Gaussian"), names.index("IR, inner"))
    assert drop.best() == {(r, c) for r in both for c in range(1, 1 + len(EPSILONS))}


def test_attacked_shows_the_published_numbers_beside_ours():
    table = TABLE2.sections(Scale.CPU, scored(TABLE2, "attacks", lambda c: 0.4))[0].parts[0]
    labels = [c.label for c in table.columns]
    assert [label for label in labels if "published" in label] == [
        "epsilon 0.0001, published",
        "epsilon 0.001, published",
    ]
    rows = {row[0]: dict(zip(labels, row, strict=True)) for row in table.rows}
    assert rows["Gaussian"]["epsilon 0.001, published"] == 0.789
    assert rows["IR, inner"]["epsilon 0.0001, published"] == rows["IR, hybrid"]["epsilon 0.0001, published"] == 0.849
    assert rows["no KL"]["epsilon 0.001, published"] is None
    others = TABLE3.sections(Scale.CPU, scored(TABLE3, "attacks", lambda c: 0.4))[0].parts[0].columns
    assert not any("published" in c.label for c in others)  # SVHN stands in for CIFAR-100 there


def test_a_run_leaves_the_caller_s_warnings_alone():
    before = list(warnings.filters)
    cell(Scale.SMOKE, "digits", "resnet", "hybrid", 0).run()
    Band("cubic", "hybrid", 0.03, 3, 0).run()
    assert warnings.filters == before


def test_at_the_paper_s_scale_it_is_the_paper():
    size = SIZES[Scale.PAPER]
    assert (size.width, size.epochs, size.lr) == (64, 100, 1e-3)
    assert len(SEEDS[Scale.PAPER]) == 5
    assert rates(Scale.PAPER, "densenet")[0] == 1e-5
    assert {c.prior for c in TABLE1.cells(Scale.PAPER)} == set(PRIORS)
    assert datasets(Scale.PAPER) == ("cifar10", "cifar100", "svhn")
    train = torch.utils.data.TensorDataset(torch.zeros(1, 3, 32, 32), torch.zeros(1))
    counts = {n: sum(p.numel() for p in build(n, "cifar10", train, size).parameters()) for n in NETWORKS}
    assert counts == {"densenet": 6_956_298, "resnet": 11_173_962, "vgg": 14_724_042}
