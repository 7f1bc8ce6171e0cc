"""The BNP paper's experiments: they run, their verdicts follow the numbers, and their settings are the paper's."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from credent.papers import EXPERIMENTS, Scale, reproduce_paper
from credent.papers.bnp import average, calibration, cost
from credent.papers.bnp.griewank import Chain, _rmse, curve, data, inputs, nuts
from credent.papers.bnp.regret import AGENTS
from credent.papers.bnp.settings import ARMS, DROPS, SEEDS, SIZES
from credent.papers.bnp.training import BINS, PAPER_DATA, Training, build, conditions
from credent.papers.bnp.training import _Look as Look

FIGURE3_1, FIGURE4_1, FIGURE4_2, TABLE4_1, FIGURE4_3, FIGURE4_4, TABLE4_2 = (
    EXPERIMENTS[f"bnp/{part}"]
    for part in ("figure3_1", "figure4_1", "figure4_2", "table4_1", "figure4_3", "figure4_4", "table4_2")
)
ALL = [FIGURE3_1, FIGURE4_1, FIGURE4_2, TABLE4_1, FIGURE4_3, FIGURE4_4, TABLE4_2]
ON_RESNET = [FIGURE4_2, TABLE4_1, FIGURE4_3, FIGURE4_4]
PLENTY = {"replicated": "replicated", "not": "not replicated", "none": "not testable at this scale"}


@pytest.mark.slow
def test_smoke_runs_everything_and_judges_nothing(tmp_path):
    index, done = reproduce_paper(ALL, Scale.SMOKE, tmp_path, jobs=1, progress=False)
    assert index.exists()
    for each in done:
        assert not each.failures
        assert {v.outcome for v in each.verdicts} == {PLENTY["none"]}
        assert json.loads(each.summary.read_text())["tables"]


def said(experiment, results, scale=Scale.CPU):
    return {v.claim: v.outcome for v in experiment.verdicts(scale, results)}


# -- Griewank ---------------------------------------------------------------------------------------------------------


def test_the_data_are_the_paper_s():
    x, y = data()
    low, high = x.amin(0), x.amax(0)
    assert -7.5 <= low[0] < -7.4
    assert -5.1 < high[0] <= -5
    assert -2.5 <= low[1] < -2.3
    assert 14.8 < high[1] <= 15
    by_hand = 1 + (6.0**2 + 4.0**2) / 4000 - math.cos(-6.0) * math.cos(4.0 / math.sqrt(2))
    assert curve(torch.tensor([[-6.0, 4.0]])).item() == pytest.approx(by_hand, abs=1e-6)
    noise = (y - curve(x)).double()
    assert abs(noise.mean()) < 4 * math.sqrt(0.1 / 1000)
    assert noise.var().item() == pytest.approx(0.1, rel=4 * math.sqrt(2 / 1000))  # a variance, not a deviation


def test_nuts_is_of_these_data():
    kept = nuts()
    points = inputs(40_000, seed=1)[:200]
    assert len(kept["mean"]) == len(kept["sd"]) == 200
    far = np.subtract(kept["mean"], curve(points)[:, 0].numpy())
    assert np.sqrt((far**2).mean()) < 0.16  # other points would be off by 0.7; the noise has a deviation of 0.32
    assert 0.02 < np.mean(kept["sd"]) < 0.15


def test_a_chain_decides_its_numbers_and_learns():
    cell = Chain("bnp", 1e-5, 12, 4, 0)
    torch.manual_seed(5)
    once = cell.run()
    torch.manual_seed(6)
    assert cell.run() == once
    assert once["draws"] == 4
    assert len(once["errors"]) == 12
    assert once["errors"][-1] < once["errors"][0]
    assert len(once["mean"]) == len(once["sd"]) == 200


def test_the_error_follows_from_the_nll():
    residual = torch.tensor([0.3, -0.5, 0.1])
    nll = -torch.distributions.Normal(0.0, math.sqrt(0.1)).log_prob(residual).mean().item()
    assert _rmse(nll) == pytest.approx(math.sqrt((0.09 + 0.25 + 0.01) / 3), rel=1e-5)


def chains(errors):
    """Results whose curves are off the truth by so much, and more with every seed."""
    results = {}
    for cell in FIGURE3_1.cells(Scale.CPU):
        off = 0.0 if cell.seed >= 100 else errors[cell.method, cell.epochs] * (1 + 0.01 * cell.seed)
        mean = (np.array(nuts()["mean"]) + off).tolist()
        results[cell] = {"mean": mean, "sd": nuts()["sd"], "rmse": off, "draws": 50, "errors": [1.0] * 100}
    return results


def test_griewank_verdicts_follow_the_curves():
    paper = {("bnp", 500): 0.1, ("sgld", 500): 0.3, ("psgld", 500): 0.4}
    later = {("bnp", 1000): 0.1, ("sgld", 1000): 0.2, ("psgld", 1000): 0.1}
    assert set(said(FIGURE3_1, chains(paper | later)).values()) == {PLENTY["replicated"]}
    worse = list(said(FIGURE3_1, chains(paper | later | {("psgld", 500): 0.05})).values())
    assert worse == [PLENTY["not"]] * 4  # pSGLD is ahead, and falls back
    assert FIGURE3_1.sections(Scale.CPU, chains(paper | later))
    table = FIGURE3_1.sections(Scale.CPU, chains(paper | later))[0].parts[0]
    bnp = table.rows[0]
    assert bnp[:2] == ("BNP", 500)
    assert [bnp[i].value for i in (2, 3, 4)] == pytest.approx([0.101] * 3)
    assert bnp[5].value == pytest.approx(1.0)


def test_failed_chains_are_left_out():
    for experiment in ALL:
        results = {cell: {} for cell in experiment.cells(Scale.CPU)}
        assert experiment.sections(Scale.CPU, results)
        assert set(said(experiment, results).values()) == {PLENTY["none"]}


# -- the residual network ---------------------------------------------------------------------------------------------


def test_tables_and_figures_share_their_chains():
    for scale in Scale:
        cells = FIGURE4_2.cells(scale)
        assert len(set(cells)) == len(cells) == 7 * len(SEEDS[scale])
        assert all(each.cells(scale) == cells for each in ON_RESNET)
    assert FIGURE4_2.needs(Scale.SMOKE) == ()
    assert FIGURE4_2.needs(Scale.PAPER) == ("cifar100",)


def test_a_step_is_the_paper_s_whatever_the_data():
    """Drift (eps/2) N and noise eps T do not depend on N; the paper has eps 1e-6, N 50,000 and T 1."""
    for method, rate in {"sgld": 1e-6, "bnp": 1e-6, "psgld": 1e-6, "psgld_fast": 5e-6}.items():
        cell = Training("digits", method, "batch", SIZES[Scale.CPU], 15, 0)
        for count in (PAPER_DATA, 5000):
            sampler = cell._sampler(build("batch", 10, 2, 1), count)
            group = sampler.param_groups[0]
            assert group["lr"] * count == pytest.approx(rate * 50_000)
            assert group["lr"] * group["temperature"] == pytest.approx(rate)
            assert group["momentum"] == 0.9
    sgd = Training("digits", "sgd", "batch", SIZES[Scale.CPU], 15, 0)._sampler(build("batch", 10, 2, 1), 5000)
    assert sgd.param_groups[0]["temperature"] == 0


def test_without_norm_layers_there_are_biases():
    torch.manual_seed(0)
    net = build("none", 10, 4, 3)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in net.modules())
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 19
    assert all(m.bias is not None for m in convolutions)
    assert sum(isinstance(m, nn.BatchNorm2d) for m in build("batch", 10, 4, 3).modules()) == 19
    torch.manual_seed(0)
    plain = build("batch", 10, 4, 3)
    ratio = [(a.weight / b.weight).mean().item() for a, b in zip(convolutions, _convolutions(plain), strict=True)]
    assert ratio == pytest.approx([1.0] + [1.0, 0.1] * 9)


def _convolutions(net):
    return [m for m in net.modules() if isinstance(m, nn.Conv2d)]


def test_the_average_is_over_the_ends_of_the_epochs_after_the_drop():
    """Three looks, of which two count: the mean of their probabilities, and the accuracy of each look."""

    class Says:
        def __init__(self, probs):
            self.probs, self.network = probs, self

        def mean(self, x):
            return self.probs.log()[x[:, 0].long()]

        def eval(self):
            return self

        train = eval

    x, y = torch.arange(2.0)[:, None], torch.tensor([0, 1])
    part = torch.utils.data.TensorDataset(x, y)
    look = Look(7, 1, part, part)
    for probs in ([[0.1, 0.9], [0.9, 0.1]], [[0.9, 0.1], [0.7, 0.3]], [[0.3, 0.7], [0.1, 0.9]]):
        assert look(Says(torch.tensor(probs))) == {}
    found = look.found()
    assert found["draws"] == 2
    assert found["test_accuracies"] == [0.0, 0.5, 0.5]
    assert found["test_accuracy"] == 1.0  # both averages are (0.6, 0.4) for the right class
    assert found["test_nll"] == pytest.approx(-math.log(0.6), rel=1e-6)
    assert found["test_ece"] == pytest.approx(0.4, rel=1e-6)


def test_condition_numbers_are_sorted_by_layer():
    rows = [
        {"epoch": 1, "nll": 0.5},
        {"epoch": 2, "condition/body.0/full": None, "condition/body.3/full": 4.0},
        {"epoch": 4, "condition/body.0/full": 9.0, "condition/body.3/full": 2.0},
    ]
    found = conditions(rows)
    assert found["epochs"] == [2, 4]
    assert list(found["layers"]) == ["body.0", "body.3"]
    assert found["layers"]["body.3"]["full"] == [4.0, 2.0]
    assert math.isnan(found["layers"]["body.0"]["full"][0])


def network(cell, speed, accuracy, ece, condition):
    """A made-up result."""
    epochs = SIZES[Scale.CPU].epochs
    gain = accuracy * (1 - np.exp(-speed * np.arange(1, epochs + 1))) + 0.0005 * cell.seed
    count = np.zeros(BINS)
    count[7] = 100
    kinds = ("elementwise", "percentiles", "full", "preconditioned", "preconditioned_elementwise")
    level = condition * (1 + 0.01 * cell.seed)
    return {
        "losses": (5 - gain).tolist(),
        "draws": epochs - DROPS[Scale.CPU],
        "test_accuracies": gain.tolist(),
        "test_last": float(gain[-1]) - 0.01,
        "test_accuracy": float(gain[-1]),
        "test_nll": 3.0,
        "test_ece": ece + 0.0005 * cell.seed,
        "test_mce": ece + 0.0005 * cell.seed,
        "count": count.tolist(),
        "confidence": [0.75 if n else "nan" for n in count],
        "correct": [0.75 - ece - 0.0005 * cell.seed if n else "nan" for n in count],
        "conditions": {
            "epochs": [4, 8],
            "layers": {f"body.{i}": {kind: [2 * level, level] for kind in kinds} for i in range(19)},
        },
    }


def made_up(bnp, others):
    return {cell: network(cell, **(bnp if cell.method == "bnp" else others)) for cell in FIGURE4_2.cells(Scale.CPU)}


def test_verdicts_on_the_network_follow_the_numbers():
    fast = {"speed": 1.0, "accuracy": 0.4, "ece": 0.08, "condition": 1e2}
    slow = {"speed": 0.3, "accuracy": 0.39, "ece": 0.10, "condition": 1e4}
    for experiment in ON_RESNET:
        good, bad = (said(experiment, results) for results in (made_up(fast, slow), made_up(slow, fast)))
        assert set(good.values()) == {PLENTY["replicated"]}
        turned = {claim for claim, outcome in bad.items() if outcome == PLENTY["not"]}
        kept = {claim.partition(": ")[2] for claim in bad.keys() - turned}
        assert kept <= {
            "BNP's average is right more often than its last network",
            "every sampler is overconfident, its confidence above its accuracy",
        }
        assert turned


def test_one_layer_is_enough_to_fail():
    fast = {"speed": 1.0, "accuracy": 0.4, "ece": 0.08, "condition": 1e2}
    results = made_up(fast, fast | {"condition": 1e4})
    for cell, found in results.items():
        if cell.method == "bnp":
            found["conditions"]["layers"]["body.7"]["elementwise"] = [1e5, 1e5]
    outcomes = list(said(FIGURE4_3, results).values())
    assert [o == PLENTY["replicated"] for o in outcomes] == [False, True, True, True] * 2
    assert "18 of 19" in FIGURE4_3.verdicts(Scale.CPU, results)[0].evidence


def test_a_layer_that_is_lower_by_noise_alone_does_not_replicate():
    """Every layer's mean is below SGLD's; in one of them by less than two standard errors over three seeds."""
    fast = {"speed": 1.0, "accuracy": 0.4, "ece": 0.08, "condition": 1e2}
    results = made_up(fast, fast | {"condition": 1e4})
    for cell, found in results.items():
        if cell.method == "bnp":
            noisy = 10 ** (4 + (-3.0, 1.5, 1.4)[cell.seed])  # -0.03 on average, with an error of 1.5
            found["conditions"]["layers"]["body.7"]["elementwise"] = [noisy, noisy]
    verdict = FIGURE4_3.verdicts(Scale.CPU, results)[0]
    assert verdict.outcome == PLENTY["not"]
    assert "18 of 19" in verdict.evidence
    assert "to -0.0" in verdict.evidence


def test_early_is_the_first_third():
    result = {"test_accuracies": [*range(20)], "losses": [0.0] * 20}
    results = dict.fromkeys(FIGURE4_2.cells(Scale.CPU), result)
    assert FIGURE4_2._early(Scale.CPU, "batch", "bnp", "test_accuracies", results)[0] == 3.0  # mean of 0 ... 6


def test_reliability_is_over_all_chains():
    fast = {"speed": 1.0, "accuracy": 0.4, "ece": 0.08, "condition": 1e2}
    section = FIGURE4_4.sections(Scale.CPU, made_up(fast, fast))[0]
    table, figure = section.parts[0], section.parts[1]
    assert figure.title == "BNP, 3 chains"
    assert table.texts()[0][2] == "8.58"
    assert table.rows[0][4].value == pytest.approx(0.0805)
    assert len(section.parts) == 1 + len(ARMS["batch"]) - 1  # no diagram of SGD


# -- bandits and time -------------------------------------------------------------------------------------------------


def regrets(last):
    results = {}
    for place in ("mushroom", "statlog", "covertype", "census"):
        for agent in AGENTS:
            cell = FIGURE4_1._cell(Scale.CPU, place, agent)
            ends = [[last[agent] / 2, last[agent] + seed] for seed in range(5)]
            results[cell] = {"after": [1000, 2000], "regret": ends}
    return results


def test_regret_verdicts_follow_the_curves():
    paper = {"BNP": 100, "pSGLD": 110, "SGD": 150, "Dropout": 160, "EpsGreedy": 200, "SGLD": 120, "uniform": 900}
    assert set(said(FIGURE4_1, regrets(paper)).values()) == {PLENTY["replicated"]}
    ahead = said(FIGURE4_1, regrets(paper | {"pSGLD": 90}))
    assert {c.partition(": ")[2] for c, o in ahead.items() if o == PLENTY["not"]} == {
        "BNP's cumulative regret is the lowest"
    }
    table = FIGURE4_1.sections(Scale.CPU, regrets(paper))[0].parts[0]
    assert table.rows[0][1].value == 102.0
    assert table.rows[0][1].error == pytest.approx(np.std([0, 1, 2, 3, 4], ddof=1) / math.sqrt(5))


def test_a_seed_that_diverged_is_not_counted_as_a_number():
    paper = {"BNP": 100, "pSGLD": 110, "SGD": 150, "Dropout": 160, "EpsGreedy": 200, "SGLD": 120, "uniform": 900}
    results = regrets(paper)
    results[FIGURE4_1._cell(Scale.CPU, "census", "BNP")]["regret"][3] = [50.0, math.nan]
    claims = said(FIGURE4_1, results)
    assert claims["Census: BNP's cumulative regret is the lowest"] == PLENTY["none"]
    assert claims["Statlog: BNP's cumulative regret is the lowest"] == PLENTY["replicated"]
    assert "curve BNP" in FIGURE4_1.sections(Scale.CPU, results)[1].parts[3].drawing


def test_bandits_are_the_paper_s():
    cells = FIGURE4_1.cells(Scale.CPU)
    assert len(cells) == 28
    assert {cell.steps for cell in cells} == {2000}
    assert {len(cell.seeds) for cell in cells} == {5}
    assert FIGURE4_1.needs(Scale.SMOKE) == ()
    assert FIGURE4_1.needs(Scale.CPU) == tuple(
        f"bandits/{name}" for name in ("mushroom", "shuttle", "covertype", "adult")
    )


def test_time_is_judged_against_the_paper_s():
    def results(bnp, psgld, spread=0.005):
        each = {"BNP": bnp, "pSGLD": psgld, "SGLD": 1.0, "SGD": 0.98, cost.DEARER: bnp / psgld}
        found = {
            name: {"median": m, "low": m - spread, "high": m + spread, "milliseconds": 1.0} for name, m in each.items()
        }
        return dict.fromkeys(TABLE4_2.cells(Scale.CPU), found)

    assert list(said(TABLE4_2, results(1.06, 1.03)).values()) == [PLENTY["replicated"]] * 4
    assert list(said(TABLE4_2, results(1.30, 1.03)).values()) == [PLENTY["replicated"], PLENTY["not"]] * 2
    assert list(said(TABLE4_2, results(1.02, 1.03)).values()) == [PLENTY["not"], PLENTY["replicated"]] * 2
    wide = said(TABLE4_2, results(1.06, 1.03, spread=0.1)).values()
    assert set(wide) == {PLENTY["none"]}  # ranges hold 1 and the paper's ratio: medians alone decide nothing
    assert all(cell.exclusive for cell in TABLE4_2.cells(Scale.CPU))


def test_published_numbers_are_the_paper_s():
    assert average.PUBLISHED == {"bnp": 0.6968, "sgld": 0.6964, "psgld": 0.6959}
    assert calibration.PUBLISHED == {"bnp": 0.0858, "sgld": 0.1044, "psgld": 0.1067}
    assert cost.PUBLISHED["BNP"] == pytest.approx(1.206, abs=5e-4)
    assert cost.PUBLISHED["pSGLD"] == pytest.approx(1.052, abs=5e-4)
