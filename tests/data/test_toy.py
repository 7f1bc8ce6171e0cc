import numpy as np
import pytest
import torch

from credent.data import toy

CASES = [
    (toy.cubic, toy.CUBIC, 20, lambda x: x * x * x, lambda x: 3.0 + 0 * x),
    (toy.sine_gap, toy.SINE_GAP, 50, lambda x: np.sin(3 * x), lambda x: 0.1 + 0 * x),
    (toy.heteroscedastic, toy.HETEROSCEDASTIC, 200, np.sin, lambda x: 0.05 + 0.25 * (1 + np.tanh(x))),
]


def raw(data, part):
    x, y = (tensor.double().numpy()[:, 0] for tensor in part[:])
    return x * data.std.item() + data.mean.item(), y * data.target_std + data.target_mean


@pytest.mark.parametrize(("make", "curve", "num_train", "f", "s"), CASES)
def test_residuals_have_the_stated_law(make, curve, num_train, f, s):
    parts = [[], [], []]
    for seed in range(50):
        data = make(seed)
        for residuals, part in zip(parts, (data.train, data.val, data.test), strict=True):
            x, y = raw(data, part)
            residuals.append((y - f(x)) / s(x))
    for residuals in map(np.concatenate, parts):
        n = len(residuals)
        assert abs(residuals.mean()) < 4 / n**0.5
        assert abs(residuals.std() - 1) < 4 / (2 * n) ** 0.5
    x = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(curve.mean(x), f(x))
    np.testing.assert_allclose(curve.scale(x), s(x))


@pytest.mark.parametrize(("make", "curve", "num_train", "f", "s"), CASES)
def test_points_lie_in_their_intervals(make, curve, num_train, f, s):
    data = make(seed=1)
    assert len(data.train) == num_train
    for part in (data.train, data.val):
        x, _ = raw(data, part)
        inside = [(x > low - 1e-6) & (x < high + 1e-6) for low, high in curve.intervals]
        assert np.all(sum(inside) == 1)
        assert all(each.sum() == len(x) / len(inside) for each in inside)


@pytest.mark.parametrize("make", [case[0] for case in CASES])
def test_same_seed_same_data(make):
    assert torch.equal(make(3).train[:][1], make(3).train[:][1])
    assert not torch.equal(make(3).train[:][1], make(4).train[:][1])
    assert make().name == make.__name__
