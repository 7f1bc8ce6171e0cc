import json
import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from credent import models
from credent.layout import Layout
from credent.papers import EXPERIMENTS, Scale, reproduce_paper
from credent.papers.pp.kl import Curve, Learnt, gap, group_kl
from credent.papers.pp.settings import BAYESIAN, NETS, PENALTIES, SEEDS, SIZES, USUAL
from credent.papers.pp.table import PUBLISHED, best, strongest
from credent.papers.pp.training import Training, build, description, gone, without

TABLE, FIGURES = EXPERIMENTS["pp/table"], EXPERIMENTS["pp/figures"]
PEAK = {"usual": 1.0, "bayesian": 0.1}


def result(cell, peak=PEAK, top=0.8, slope=0.02, noise=0.001):
    """Accuracies that fall with the distance of log beta from a known peak, and rise a little with the seed."""
    off = 4.0 if cell.penalty == "none" else abs(math.log10(cell.beta / peak[cell.factors]))
    accuracy = top - slope * off + noise * cell.seed
    counts = {
        f"{name}_{over}": 10 * (name == "neurons") for name in ("neurons", "gone") for over in ("rows", "columns")
    }
    kept = {f"test_accuracy_without_{over}": accuracy - 0.1 for over in ("rows", "columns")}
    return {"val_accuracy": accuracy + 0.05, "test_accuracy": accuracy, **counts, **kept}


def faked(scale=Scale.CPU, **known):
    return {cell: result(cell, **known) for cell in TABLE.cells(scale)}


def test_smoke_runs_everything_and_judges_nothing(tmp_path):
    index, done = reproduce_paper([TABLE, FIGURES], Scale.SMOKE, tmp_path, jobs=1, progress=False)
    assert index.exists()
    for each in done:
        assert not each.failures
        assert {v.outcome for v in each.verdicts} == {"not testable at this scale"}
        assert json.loads(each.summary.read_text())["tables"]
    for cell, record in done[0].records.items():
        assert 0 <= record.result["test_accuracy"] <= 1, cell
        assert record.result["images"] == 200


def test_cells_are_the_grid_and_the_theory_is_in_it():
    for scale in Scale:
        cells = TABLE.cells(scale)
        per_seed = 2 * (1 + 4 * (len(USUAL[scale]) + len(BAYESIAN[scale])))
        assert len(set(cells)) == len(cells) == per_seed * len(SEEDS[scale])
        assert 1.0 in BAYESIAN[scale]
    assert TABLE.needs(Scale.SMOKE) == ()
    assert TABLE.needs(Scale.PAPER) == ("cifar10",)


def test_best_and_strongest_weight_are_chosen_on_validation_images():
    results = faked()
    for net in NETS:
        assert best(Scale.CPU, net, "l1", "usual", results) == 1.0
        assert best(Scale.CPU, net, "l1", "bayesian", results) == 0.1
        assert strongest(Scale.CPU, net, "rows", "bayesian", results) == 0.1
    # a slope of 0.8 points a decade: 0.3 is 0.38 points below the peak, which counts as equal, and 1.0 is not
    assert strongest(Scale.CPU, "cvnn", "rows", "bayesian", faked(slope=0.008)) == 0.3
    assert best(Scale.CPU, "cvnn", "l2", "bayesian", faked(slope=0.0)) == 3.0  # of equals the largest
    for cell in results:
        results[cell]["test_accuracy"] = 1 - results[cell]["test_accuracy"]  # test images have no say
    assert best(Scale.CPU, "cvnn", "l1", "bayesian", results) == 0.1


def outcomes(**known):
    verdicts = TABLE.verdicts(Scale.CPU, faked(**known))
    assert len(verdicts) == 8
    assert [v.outcome for v in verdicts[:4]] == [v.outcome for v in verdicts[4:]]  # both networks are faked alike
    return [v.outcome == "replicated" for v in verdicts[:4]]


def test_verdicts_follow_the_accuracies():
    assert outcomes() == [True, True, True, True]  # best at 0.1, 2 points better than at 1
    assert outcomes(slope=0.05) == [True, True, False, True]  # 5 points better
    assert outcomes(peak={"usual": 1.0, "bayesian": 1.0}) == [False, False, True, True]  # the theory is right
    one = faked()
    for cell in one:
        if cell.factors == "usual" and cell.net == "vgg19" and cell.penalty == "columns":
            one[cell]["test_accuracy"] += 0.01
    failing = [v for v in TABLE.verdicts(Scale.CPU, one) if v.outcome != "replicated"]
    assert [v.claim.partition(":")[0] for v in failing] == ["VGG-19"]
    assert "usual" in failing[0].claim


def test_the_table_has_the_published_numbers_beside_ours():
    section = TABLE.sections(Scale.CPU, faked())[1]
    table = section.parts[0]
    none, l2, *_, columns = table.texts()
    assert section.title == "VGG-19"
    assert none[1].startswith("72.05")
    assert l2[1].startswith("80.05") and l2[2] == "93.35 ± 0.15"  # noqa: PT018
    assert l2[5].startswith("78.05") and l2[6] == "93.28 ± 0.17"  # noqa: PT018
    assert l2[7:] == ["1", "1"]
    assert columns[4] == "93.03 ± 0.15"
    ends = TABLE.sections(Scale.CPU, faked(peak={"usual": 1.0, "bayesian": 1e-3}))[0].parts[0].texts()
    assert ends[1][7] == "≥ 3"
    assert PUBLISHED["cvnn"]["columns"][3] == 1.5


def test_failed_cells_are_left_out():
    results = faked()
    results = {cell: {} if cell.beta == 0.1 else found for cell, found in results.items()}
    assert best(Scale.CPU, "cvnn", "l2", "bayesian", results) == 0.3
    assert TABLE.sections(Scale.CPU, results)
    assert len(TABLE.verdicts(Scale.CPU, results)) == 8


@pytest.mark.parametrize(
    ("penalty", "usual", "bayesian"),
    [("l2", 1, 9 / 2), ("l1", 1, math.sqrt(18)), ("rows", 3, math.sqrt(90)), ("columns", 6, math.sqrt(37 * 9))],
)
def test_factors_of_the_first_convolution(penalty, usual, bayesian):
    """One channel into four by 3x3: fan_in 9, a column holds 4 * 9 numbers."""
    net = build("cvnn", 4, 1, 8)
    for kind, expected in (("usual", usual), ("bayesian", bayesian)):
        bound = description(penalty, kind, net).bind(Layout(net))
        assert bound.factor["body.0.weight"] == pytest.approx(expected)
        assert len(bound.factor) == 4


def test_gone_neurons_are_found_and_removed():
    torch.manual_seed(0)
    net = models.CVNN(width=4, in_channels=1, pixels=8)
    assert not any(each.any() for over in ("rows", "columns") for each in gone(net, over).values())
    net.body[3].weight.data[2] *= 1e-3  # an incoming row of the second convolution
    net.body[3].bias.data[2] = -1.0
    net.head.weight.data[:, 5] = 0  # an outgoing column of the head
    rows, columns = gone(net, "rows"), gone(net, "columns")
    assert "head.weight" not in rows
    assert "body.0.weight" not in columns
    assert {name: each.nonzero().flatten().tolist() for name, each in rows.items()} == {
        "body.0.weight": [],
        "body.3.weight": [2],
        "body.7.weight": [],
    }
    assert columns["head.weight"].nonzero().flatten().tolist() == [5]
    pruned = without(net, "rows", rows)
    assert not pruned.body[3].weight[2].any()
    assert net.body[3].weight[2].any()
    x = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(pruned(x), net(x))  # its bias had silenced it already
    assert not torch.equal(without(net, "columns", {"head.weight": torch.arange(16) < 3})(x), net(x))


def test_a_cell_decides_its_numbers():
    cell = Training("digits", "cvnn", "rows", "usual", 1.0, SIZES[Scale.SMOKE]["cvnn"], 0)
    torch.manual_seed(5)
    once = cell.run()
    torch.manual_seed(6)
    assert cell.run() == once


def test_group_kl_against_quadrature_and_draws():
    """One number: by quadrature of q (log q - log p). Sixteen: by draws, within five standard errors."""
    mean, noise = 0.8, 0.6
    q, p = stats.norm(mean, noise), stats.laplace(scale=math.sqrt(0.5))
    pieces = ((-12, 0), (0, 12))
    kl = sum(integrate.quad(lambda w: q.pdf(w) * (q.logpdf(w) - p.logpdf(w)), *ends)[0] for ends in pieces)
    assert group_kl(np.array([mean]), noise, 1)[0] == pytest.approx(kl, abs=1e-7)
    n, factor = 16, math.sqrt(17)
    # log Z from the radius: the sphere's surface times the integral of r^15 exp(-factor r)
    radial = integrate.quad(lambda r: r**15 * math.exp(-factor * r), 0, 40)[0]
    log_z = math.log(2 * math.pi ** (n / 2) / special.gamma(n / 2) * radial)
    e = np.random.default_rng(0).standard_normal((200_000, n))
    mu = np.full(n, 2.0 / math.sqrt(n))
    lengths = np.linalg.norm(mu + noise * e, axis=1)
    draws = factor * lengths + log_z - n * stats.norm(scale=noise).entropy()
    error = draws.std() / math.sqrt(len(draws))
    assert abs(group_kl(np.array([2.0]), noise, n)[0] - draws.mean()) < 5 * error


def test_gaps():
    assert gap(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0
    # L1 under noise: |mu| is right far away and short by sigma sqrt(2 / pi) at zero, half of which a constant takes
    expected = math.sqrt(2) * 0.1 * math.sqrt(2 / math.pi) / 2
    assert Curve("l1", 0.1).run()["gap"] == pytest.approx(expected, rel=1e-6)
    assert Curve("l2", 0.3).run()["gap"] < 1e-12
    # L2 alone misses a(sigma^2), which is 0 at sigma 1 and (0.01 - log 0.01 - 1) / 2 at 0.1
    assert Learnt("alone").run()["gap"] == pytest.approx((0.01 - math.log(0.01) - 1) / 4)
    assert Learnt("exchanged").run()["gap"] < 1e-12
    assert Learnt("printed").run()["gap"] > 1


def test_verdicts_of_the_figures():
    results = {cell: cell.run() for cell in FIGURES.cells(Scale.CPU)}
    said = [v.outcome for v in FIGURES.verdicts(Scale.CPU, results)]
    assert said == ["replicated", "not replicated", "replicated", "not replicated", "replicated"]


def test_published_numbers_are_the_slides():
    """Largest losses and the range of ratios that `about` states."""
    loss = {net: max(b.value - t.value for _, b, t, _ in PUBLISHED[net].values()) for net in NETS}
    assert loss["cvnn"] == pytest.approx(0.0283)
    assert loss["vgg19"] == pytest.approx(0.0020)
    ratios = [each[3] for net in NETS for each in PUBLISHED[net].values()]
    assert (min(ratios), max(ratios), len(ratios)) == (0.5, 2.0, 2 * len(PENALTIES))
