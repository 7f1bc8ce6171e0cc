"""Variational Laplace's experiments: they run, and their verdicts follow the numbers."""

import math

import pytest

from credent.papers import Scale, reproduce
from credent.papers.vl.cost import Table2
from credent.papers.vl.curvature import Ways
from credent.papers.vl.quality import PUBLISHED, Figure1, Table1
from credent.papers.vl.rates import Figure2
from credent.papers.vl.settings import BETAS, SIZES, datasets, seeds
from credent.papers.vl.training import HOWS, Training

FAST = (Table1(), Figure1())
SLOW = (Table2(), Figure2(), Ways())


@pytest.mark.parametrize(
    "experiment", [*FAST, *(pytest.param(e, marks=pytest.mark.slow) for e in SLOW)], ids=lambda e: e.name
)
def test_the_smoke_scale_runs(experiment, tmp_path_factory):
    out = tmp_path_factory.getbasetemp() / "vl-smoke"  # table and figure share their cells
    done = reproduce(experiment, Scale.SMOKE, out, jobs=1, progress=False)
    assert not done.failures
    assert done.page.read_text().count("<section") > 1
    for record in done.records.values():
        for name, value in record.result.items():
            if name.endswith(("_nll", "_ece", "_accuracy", "_auroc", "elbo", "still_moving")):
                assert math.isfinite(value), name
            if name.endswith(("_ece", "_accuracy", "_auroc", "still_moving")):
                assert 0 <= value <= 1, name


def made_up(nll):
    """Results of the cpu scale with this NLL for a cell; the rest says nothing."""
    results = {}
    for cell in Table1().cells(Scale.CPU):
        numbers = {"gap": 0.0}
        for how in HOWS[cell.method]:
            for part in ("val", "test"):
                value = nll(cell) + 0.001 * cell.seed
                numbers |= {f"{part}_{how}_{s}": value for s in ("nll", "ece", "accuracy", "auroc")}
        results[cell] = numbers
    return results


def outcomes(results):
    return {v.claim: v.outcome for v in Table1().verdicts(Scale.CPU, results)}


def test_verdicts_follow_the_numbers():
    better = outcomes(made_up(lambda c: {"vl": 0.2, "vi": 0.3, "map": 0.4}[c.method]))
    worse = outcomes(made_up(lambda c: {"vl": 0.35, "vi": 0.3, "map": 0.4}[c.method]))
    for data, name in (("fashion_mnist", "Fashion-MNIST"), ("cifar10", "CIFAR-10")):
        assert len(seeds(Scale.CPU, data)) == 3
        for score in ("NLL (nats)", "ECE"):
            claim = f"{name}: VL's {score} is below that of MAP and VI"
            assert (better[claim], worse[claim]) == ("replicated", "not replicated")
    assert better["SVHN: VL's ECE is below that of MAP and VI"] == "not testable at this scale"  # one seed


def test_beta_is_chosen_on_validation_images():
    best = BETAS[Scale.CPU][1]
    results = made_up(lambda c: 0.3 if c.beta == best else 0.5)
    for cell, numbers in results.items():
        numbers |= {k: 0.1 for k in numbers if k.startswith("test") and cell.beta != best}
    table = Table1().sections(Scale.CPU, results)[0].parts[0]
    assert {row[1] for row in table.rows} == {f"{best:g}"}
    assert all(abs(row[2].value - 0.301) < 1e-9 for row in table.rows)


def test_the_published_table_is_whole():
    assert set(PUBLISHED) == set(datasets(Scale.PAPER))
    for rows in PUBLISHED.values():
        nll, accuracy, ece = zip(*rows.values(), strict=True)
        assert min(nll) == rows["VL (mean)"][0]  # the paper prints VL in bold everywhere
        assert max(accuracy) == rows["VL (mean)"][1]
        assert min(ece) == rows["VL (mean)"][2]


def test_both_start_where_the_paper_does():
    rho = {}
    for method in ("vi", "vl"):
        cell = Training("digits", method, 0.1, SIZES[Scale.SMOKE], 0)
        objective = cell._objective(cell._images()[0])
        spread = objective.penalty.stddev()
        scales = objective.posterior.layout.unflatten(objective.posterior.scales.rho.detach())
        weights = [k for k, role in objective.layout.roles.items() if role.kind == "weight"]
        rho[method] = {k: float(scales[k].mean()) - math.log(spread[k]) for k in weights}
    for each in rho.values():
        assert all(value == pytest.approx(-3, abs=1e-5) for value in each.values())
