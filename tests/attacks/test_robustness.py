"""Robustness against closed forms, a naive reference and a second library."""

import json
import math
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import credent as cr
from credent.attacks import FGSM, GREY_LEVELS, PAPER, PGD, Averaged, Box, robustness
from credent.families import Draws
from credent.likelihoods import Bernoulli, Categorical, Gaussian
from credent.report import plots

HERE = Path(__file__).parent / "reference"
MAKE, KEPT = runpy.run_path(str(HERE / "make_foolbox.py")), json.loads((HERE / "foolbox.json").read_text())


def test_the_named_radii():
    assert PAPER == (0.0001, 0.001)
    assert GREY_LEVELS == (1 / 255, 2 / 255, 4 / 255, 8 / 255)
    net = nn.Linear(2, 2)
    averaged = Averaged(net, Draws([dict(net.named_parameters())]), Categorical())
    found = robustness(averaged, torch.rand(3, 2), torch.tensor([0, 1, 1]), PGD(steps=1))
    assert [row.epsilon for row in found.rows] == [0.0, *PAPER, *GREY_LEVELS]


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("attack", [FGSM, lambda norm: PGD(norm, steps=20)])
def test_scores_of_a_linear_model_are_the_closed_forms(norm, attack):
    torch.manual_seed(0)
    net = nn.Linear(5, 1).double()
    x = torch.randn(200, 5).double()
    y = (net(x) + torch.randn(200, 1) > 0).double().detach()
    box, epsilons = Box(-math.inf, math.inf), [0.01, 0.1, 0.5]
    averaged = Averaged(net, Draws([dict(net.named_parameters())]), Bernoulli())
    found = robustness(averaged, x, y, attack(norm), epsilons, box)
    dual = net.weight.abs().sum() if norm == "linf" else net.weight.norm()
    margin = ((2 * y - 1) * net(x))[:, 0].detach()
    clean = nn.functional.softplus(-margin)
    assert found.measure == "accuracy"
    assert found.norm == norm
    for row, epsilon in zip(found.rows, [0.0, *epsilons], strict=True):
        loss = nn.functional.softplus(-(margin - epsilon * dual.item()))
        assert row.epsilon == epsilon
        assert row.score == (margin > epsilon * dual.item()).double().mean().item()
        assert row.nll == pytest.approx(loss.mean().item(), rel=1e-9)
        assert row.drop == pytest.approx((loss - clean).mean().item(), abs=1e-9)
        assert row.drop_error == pytest.approx((loss - clean).std().item() / math.sqrt(200), abs=1e-9)
    assert found.rows[0].score > found.rows[3].score


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_drop_is_first_order_in_the_input_gradient(norm):
    """Not quadratic, as the paper has it: the gradient by the input does not vanish, here or at any optimum."""
    torch.manual_seed(0)
    net = cr.models.MLP(6, 3, (16,), nn.Tanh).double()
    draws = [{k: p + 0.1 * torch.randn_like(p) for k, p in net.named_parameters()} for _ in range(4)]
    averaged = Averaged(net, Draws(draws), Categorical(), samples=None)
    x, y = torch.rand(50, 6).double() * 0.8 + 0.1, torch.randint(3, (50,))
    slope = averaged.gradient(x, y)[1].norm(dim=1, p=1 if norm == "linf" else 2).mean().item()
    found = robustness(averaged, x, y, FGSM(norm), [1e-4, 1e-3])
    for row in found.rows[1:]:
        assert row.drop == pytest.approx(row.epsilon * slope, rel=20 * row.epsilon)


def test_other_draws_may_keep_the_score():
    torch.manual_seed(0)
    net = cr.models.MLP(6, 3, (16,))
    bnn = cr.VI(net, Categorical(), cr.priors.Gaussian(), num_data=50, family=cr.families.Gaussian(2.0))
    x = torch.rand(50, 6)
    averaged = Averaged(net, bnn.posterior, Categorical(), samples=2)
    y = averaged.predict(x).label
    other = replace(averaged, seed=1)
    mine, theirs = robustness(averaged, x, y, FGSM(), [0.1]), robustness(averaged, x, y, FGSM(), [0.1], scored_by=other)
    assert theirs.rows[0].nll == pytest.approx(-other.predict(x).log_prob(y).mean().item(), rel=1e-5)
    attacked = FGSM()(averaged, x, y, 0.1)
    assert theirs.rows[1].score == other.predict(attacked).score(y)[1]
    assert theirs.rows[1].nll == pytest.approx(-other.predict(attacked).log_prob(y).mean().item(), rel=1e-5)
    assert theirs.rows[1].drop < mine.rows[1].drop  # an attack fits its own draws


def test_regression_has_an_error_in_place_of_an_accuracy():
    """y = w x with residual 0.2: the attack moves the prediction away by epsilon |w|."""
    averaged = Averaged(nn.Linear(1, 1, bias=False), Draws([{"weight": torch.tensor([[3.0]])}]), Gaussian(scale=0.5))
    x = torch.tensor([[0.4], [0.6]])
    for attack in (FGSM(), PGD(steps=10)):
        found = robustness(averaged, x, 3 * x + 0.2, attack, [0.1])
        assert found.measure == "rmse"
        assert found.rows[0].score == pytest.approx(0.2, rel=1e-5)
        assert found.rows[1].score == pytest.approx(0.5, rel=1e-5)
        assert found.rows[1].drop == pytest.approx((0.5**2 - 0.2**2) / (2 * 0.25), rel=1e-5)


def test_table_and_curve():
    averaged = Averaged(nn.Linear(1, 1, bias=False), Draws([{"weight": torch.tensor([[4.0]])}]), Bernoulli())
    found = robustness(averaged, torch.tensor([[0.5], [0.75]]), torch.ones(2, 1), FGSM(), [0.25, 0.5])
    assert found.curve() == ([0.0, 0.25, 0.5], [1.0, 1.0, 0.5])
    lines = str(found).splitlines()
    assert lines[0].split() == ["epsilon", "(linf)", "accuracy", "nll", "drop"]
    assert lines[2].split()[:2] == ["0.250000", "1.0000"]
    assert len(lines) == 4
    single = robustness(averaged, torch.tensor([[0.5]]), torch.ones(1, 1), FGSM(), [0.25])
    assert math.isnan(single.rows[1].drop_error)
    figure = plots.robustness_curve({"one": found.curve(), "two": ([0.0, 1.0], [0.9, 0.2])})
    for name in ("one", "two"):
        assert figure.drawing.count(f'data-part="curve {name}"') == 1
    assert "one ends at 50; two ends at 20" in figure.drawing


@pytest.fixture(scope="module")
def trained():
    """The network of reference/foolbox.json, its inputs as they were then."""
    pixels, labels, checksum = MAKE["images"]()
    assert checksum == KEPT["checksum"]
    mean, std = (torch.tensor(KEPT[k]).reshape(1, 1, 1) for k in ("mean", "std"))
    return MAKE["rebuilt"](KEPT), pixels, labels, mean, std


def accuracies(trained, attack, epsilons):
    net, pixels, y, mean, std = trained
    averaged = Averaged(net, Draws([dict(net.named_parameters())]), Categorical())
    found = robustness(averaged, (pixels - mean) / std, y, attack, epsilons, Box(mean=mean, std=std))
    return [row.score for row in found.rows[1:]]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_robust_accuracy_of_fgsm_is_that_of_a_naive_one(trained, norm):
    net, pixels, y, mean, std = trained
    epsilons = [0.02, 0.05, 0.1] if norm == "linf" else [0.1, 0.4, 0.8]
    z = pixels.clone().requires_grad_()
    (slope,) = torch.autograd.grad(nn.functional.cross_entropy(net((z - mean) / std), y, reduction="sum"), z)
    direction = slope.sign() if norm == "linf" else slope / slope.flatten(1).norm(dim=1)[:, None, None, None]
    expected = []
    for epsilon in epsilons:
        attacked = (pixels + epsilon * direction).clamp(0, 1)
        with torch.no_grad():
            expected.append((net((attacked - mean) / std).argmax(1) == y).double().mean().item())
    assert accuracies(trained, FGSM(norm), epsilons) == pytest.approx(expected, abs=0.0051)  # one rounded input
    assert expected[0] - expected[-1] > 0.2


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_robust_accuracy_is_that_of_foolbox(trained, norm):
    """reference/foolbox.json has foolbox's accuracies; reference/make_foolbox.py made it."""
    theirs = KEPT["accuracies"][norm]
    epsilons = theirs["epsilons"]
    assert accuracies(trained, FGSM(norm), epsilons) == pytest.approx(theirs["FGSM"], abs=0.0051)  # one rounded input
    attack = PGD(norm, steps=MAKE["STEPS"], step=MAKE["STEP"], restarts=0)
    mine, reference = accuracies(trained, attack, epsilons), theirs["PGD"]
    assert mine == pytest.approx(reference, abs=0.0101)  # ours keeps the worst point on the way, theirs the last
    assert all(a < b + 1e-6 for a, b in zip(mine, reference, strict=True))
    assert reference[-1] < theirs["FGSM"][-1] - 0.02  # the two attacks are told apart
