import math

import numpy as np
import pytest
from scipy import integrate

from credent.papers import EXPERIMENTS, Scale
from credent.papers.tb.logical_and import COPIES, DRAWS, SEEDS, STEPS
from credent.papers.tb.perceptron import INPUTS, Gradient, Learning, by_mean, by_scale, neuron

FIGURE = EXPERIMENTS["tb/figure2_2"]
MEAN, SCALE = np.array([0.7, -0.4, 0.3]), np.array([0.5, 0.9, 0.6])
AND = (0.0, 0.0, 0.0, 1.0)


def gaussian(mean, scale):
    return lambda x: math.exp(-(((x - mean) / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))


def nll(mean, scale, y):
    q = gaussian(mean, scale)
    return integrate.quad(lambda a: q(a) * (math.log1p(math.exp(a)) - y * a), -12, 12)[0]


def kl(mean, scale):
    q, p = gaussian(mean, scale), gaussian(0, 1)
    ends = mean - 8 * scale, mean + 8 * scale
    return integrate.quad(lambda w: q(w) * math.log(q(w) / p(w)), *ends)[0]


def loss(mean, scale):
    """By adaptive quadrature over each logit, and over each weight for the KL."""
    rows = np.array([[*x, 1.0] for x in INPUTS])
    logits = zip(rows @ mean, np.sqrt(rows**2 @ scale**2), AND, strict=True)
    return sum(nll(*each) for each in logits) + sum(kl(m, s) for m, s in zip(mean, scale, strict=True))


def slope(index, which, step=1e-4):
    shift = step * np.eye(3)[index]
    up, down = (
        ((MEAN + shift, SCALE), (MEAN - shift, SCALE))
        if which == "mean"
        else (
            (MEAN, SCALE + shift),
            (MEAN, SCALE - shift),
        )
    )
    return (loss(*up) - loss(*down)) / (2 * step)


def test_gradients_are_the_slopes_of_the_bound_and_the_printed_one_is_not():
    means = [slope(k, "mean") for k in range(3)]
    assert by_mean(MEAN, SCALE) == pytest.approx(means, abs=1e-6)
    assert by_scale(MEAN, SCALE) == pytest.approx([slope(k, "scale") for k in range(3)], abs=1e-6)
    # (2.4.4) has the likelihood's sign turned and 1 in the place of w
    printed = by_mean(MEAN, SCALE, printed=True)
    assert printed == pytest.approx(-(np.array(means) - MEAN) + 1)
    assert np.abs(printed - means).min() > 0.1


def test_autograd_agrees_with_the_formulas():
    found = Gradient(draws=1000, seed=3).run()
    z = (np.array(found["autograd"]) - found["formula"]) / found["error"]
    assert np.abs(z).max() < 4
    assert found["slope"] == pytest.approx(found["formula"], abs=1e-7)
    assert np.abs((np.array(found["autograd"][:3]) - found["printed"]) / found["error"][:3]).max() > 10


def test_it_starts_as_the_thesis_says():
    scales = neuron("relu", 4, seed=0).posterior.stddev()
    assert all(value.flatten().tolist() == pytest.approx([math.sqrt(0.5)] * value.numel()) for value in scales.values())


def test_with_enough_data_it_learns_and():
    found = Learning("logistic", copies=25, steps=300, seed=0).run()
    assert found["last_loss"] < found["first_loss"]
    zero, *ones, both = found["after"]["inputs"]
    assert zero < min(ones) < max(ones) < both


def faked(right):
    results = {}
    for cell in FIGURE.cells(Scale.CPU):
        if isinstance(cell, Gradient):
            results[cell] = {
                "autograd": [1.0] * 6,
                "error": [0.1] * 6,
                "slope": [1.0] * 6,
                "formula": [1.0] * 6,
                "printed": [1.2] * 3,
            }
        else:
            probs = {"inputs": [0.1, 0.2, 0.2, 0.9], "square": [0.5] * 441}
            results[cell] = {
                "losses": [1.0, 0.5],
                "first_loss": 1.0 + 0.01 * cell.seed,
                "last_loss": 0.5,
                "before": probs,
                "after": probs,
                "right": int(right(cell)),
            }
    return results


def test_verdicts_and_page():
    results = faked(lambda cell: cell.copies == 25)
    said = [v.outcome == "replicated" for v in FIGURE.verdicts(Scale.CPU, results)]
    assert said == [False, True, *([True, False, True, True] * 2)]
    assert len(FIGURE.sections(Scale.CPU, results)) == 3
    one_wrong = faked(lambda cell: cell.seed != 3)
    assert [v.outcome for v in FIGURE.verdicts(Scale.CPU, one_wrong)][3] == "not replicated"


def test_cells():
    for scale in Scale:
        cells = FIGURE.cells(scale)
        assert len(set(cells)) == len(cells) == len(SEEDS[scale]) * (1 + 2 * len(COPIES))
        assert {cell.steps for cell in cells if isinstance(cell, Learning)} == {STEPS[scale]}
        assert {cell.draws for cell in cells if isinstance(cell, Gradient)} == {DRAWS[scale]}
        assert FIGURE.needs(scale) == ()
