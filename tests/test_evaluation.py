import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import credent as cr
from credent.data import Data
from credent.errors import ConvergenceWarning
from credent.evaluation import evaluate, strange_inputs
from credent.families import Draws
from credent.pictures import figures, page


def linear_case(target_std=2.0):
    """Two draws of a slope, y standardised: outputs 1x and 3x, noise 1."""
    x = torch.tensor([[0.0], [1.0], [2.0]])
    y = torch.tensor([[0.0], [2.5], [3.0]])
    part = TensorDataset(x, y)
    data = Data("line", part, part, part, None, (1,), torch.zeros(1), torch.ones(1), 5.0, target_std)
    net = nn.Linear(1, 1, bias=False)
    objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=1.0), num_data=3)
    return objective, Draws([{"weight": torch.tensor([[1.0]])}, {"weight": torch.tensor([[3.0]])}]), data


@pytest.mark.filterwarnings("ignore:2 draws of a chain")
def test_regression_scores_by_hand_in_original_units():
    objective, posterior, data = linear_case()
    scores = evaluate(objective, posterior, data).scores
    x, y = np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.5, 3.0])
    assert scores["rmse"] == pytest.approx(2 * math.sqrt(np.mean((2 * x - y) ** 2)))
    density = 0.5 * stats.norm.pdf(2 * y, 2 * x, 2) + 0.5 * stats.norm.pdf(2 * y, 6 * x, 2)  # y in original units
    assert scores["nll"] == pytest.approx(-np.log(density).mean(), rel=1e-6)
    assert scores["coverage"] == 1.0
    half = stats.norm.ppf(0.975)
    assert scores["interval_width"] > 2 * 2 * half  # the draws disagree, so wider than the noise alone


def test_a_page_warns_of_what_its_scores_are_worth():
    with pytest.warns(ConvergenceWarning, match="2 draws of a chain are too few"):
        html = page(*linear_case()).html()
    assert "Warning: 2 draws of a chain are too few" in html


def test_class_scores_and_strangers():
    data = cr.data.load("digits")
    net = cr.models.MLP(64, 10, (8,))
    objective = cr.MAP(net, cr.likelihoods.Categorical(), num_data=1000)
    found = evaluate(objective, objective.posterior, data)
    x, y = data.test[:]
    with torch.no_grad():
        probs = net(x).softmax(-1).double()
    assert found.scores["accuracy"] == pytest.approx((probs.argmax(1) == y).double().mean().item())
    assert found.scores["nll"] == pytest.approx(-probs[torch.arange(500), y].log().mean().item(), rel=1e-6)
    top = probs.max(1).values
    bins = torch.ceil(top * 15).long()
    spread = torch.zeros(16).double().index_add_(0, bins, top * (1 - top)).sqrt().sum()
    assert found.scores["ece_by_chance"] == pytest.approx(math.sqrt(2 / math.pi) * spread.item() / 500, rel=1e-5)
    assert set(found.strange) == {"shuffled", "noise"}
    assert 0 <= found.scores["auroc_noise"] <= 1


def test_strange_inputs_keep_values_and_lose_shape():
    x = torch.rand(20, 1, 8, 8)
    strange = strange_inputs(x, seed=0)
    assert torch.equal(strange["shuffled"].flatten(1).sort(1).values, x.flatten(1).sort(1).values)
    assert not torch.equal(strange["shuffled"], x)
    assert set(strange["noise"].flatten().tolist()) <= set(x.flatten().tolist())
    again = strange_inputs(x, seed=0)
    assert all(torch.equal(strange[k], again[k]) for k in strange)


@pytest.mark.filterwarnings("ignore:2 draws of a chain")
def test_figures_of_both_kinds():
    objective, posterior, data = linear_case()
    found = evaluate(objective, posterior, data)
    drawn = figures(objective, posterior, data, found, [{"step": 1, "nll": 1.0}])
    assert len(drawn) == 3  # band, intervals, training
    data = cr.data.load("digits")
    bnn = cr.VI(cr.models.MLP(64, 10, (8,)), cr.likelihoods.Categorical(), num_data=1000)
    found = evaluate(bnn, bnn.posterior, data, samples=4)
    drawn = figures(bnn, bnn.posterior, data, found, [])
    assert len(drawn) == 5  # reliability, refusing, two separations, the hardest inputs
    assert all(figure.caption for figure in drawn)
    assert f"would have {100 * found.scores['ece_by_chance']:.1f}% on so many inputs" in drawn[0].caption


def test_a_page_takes_one_line(tmp_path):
    data = cr.data.load("digits")
    bnn = cr.VI(cr.models.MLP(64, 10, (8,)), cr.likelihoods.Categorical(), num_data=1000)
    written = cr.pictures.page(bnn, bnn.posterior, data, [{"step": 1, "nll": 1.0}], settings={"lr": 1e-3})
    html = written.write(tmp_path / "run.html").read_text()
    score = evaluate(bnn, bnn.posterior, data).scores["accuracy"]
    for words in (
        "VI on digits",
        f"{100 * score:.2f}",
        "Training",
        "Did the scales converge?",
        "lr",
        "500 test examples",
    ):
        assert words in html
