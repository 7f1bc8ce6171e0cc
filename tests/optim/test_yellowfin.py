"""YellowFin against known values, a naive scalar version, and the robust region."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize

from credent.errors import InputError
from credent.optim.yellowfin import YellowFin, tuned


@pytest.mark.parametrize(
    ("given", "x", "mu", "lr"),
    [
        ((1.0, 1.0, 1.0, 1.0), 0.4102455, 0.1683014, 0.3478104),
        ((0.1, 2.0, 0.5, 50.0), 0.13117, 0.6694215, 0.0661157),
        ((10.0, 0.1, 1.0, 4.0), 0.9227293, 0.8514294, 0.0059708),
    ],
)
def test_the_tuning_rule(given, x, mu, lr):
    assert tuned(*given) == pytest.approx((mu, lr), abs=1e-7)
    variance, distance, low, high = given
    found = optimize.minimize_scalar(
        lambda x: x**2 * distance**2 + (1 - x) ** 4 * variance / low**2, bounds=(0, 1), options={"xatol": 1e-12}
    )
    assert found.x == pytest.approx(x, abs=1e-5)
    kappa = math.sqrt(high / low)
    assert mu == pytest.approx(max(found.x**2, ((kappa - 1) / (kappa + 1)) ** 2), abs=1e-5)


def naive(gradients, w=0.0, lr=1e-4, momentum=0.0, decay=0.999, window=20):
    """One weight, written with whole histories in the place of running sums."""
    weights, v, seen = [], 0.0, []
    highs, lows, ratios = [], [], []

    def debiased(values):
        shares = decay ** np.arange(len(values))[::-1]
        return float(np.dot(shares, values) / shares.sum())

    for t, g in enumerate(gradients, 1):
        seen.append(g)
        h = [s**2 for s in seen[-window:]]
        highs.append(math.log(max(h)))
        lows.append(math.log(min(h)))
        high, low = math.exp(debiased(highs)), math.exp(debiased(lows))
        square = debiased([s**2 for s in seen])
        ratios.append(debiased([abs(s) for s in seen]) / square)
        if t > 1:
            variance = max(square - debiased(seen) ** 2, 1e-6)
            momentum, lr = tuned(variance, debiased(ratios), low, high)
            lr *= min(1.0, t / (10 * window))
        v = momentum * v - lr * g * min(1.0, math.sqrt(high) / abs(g))
        w += v
        weights.append(w)
    return weights


def test_steps_equal_the_naive_version():
    rng = np.random.default_rng(0)
    gradients = rng.normal(1.0, 2.0, 300)
    gradients[150] = 1e4  # one that is cut
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = YellowFin([w])
    found = []
    for g in gradients:
        w.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
        found.append(w.item())
    np.testing.assert_allclose(found, naive(gradients), rtol=1e-9)


def noisy_quadratic(optimizer, w, curvatures, steps, seed=0):
    """One coordinate at a time, residual +-1: at the optimum the squared gradient is the curvature."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        i = rng.integers(len(curvatures))
        root = math.sqrt(curvatures[i])
        w.grad = torch.zeros_like(w)
        w.grad[i] = root * (root * w.detach()[i] + rng.choice((-1.0, 1.0)))
        optimizer.step()


@pytest.mark.parametrize("kappa", [10.0, 100.0, 1000.0])
def test_it_tunes_itself_into_the_robust_region(kappa):
    curvatures = np.array([1.0, kappa])
    w = torch.tensor([0.1, 0.1], dtype=torch.float64, requires_grad=True)
    optimizer = YellowFin([w], decay=0.99)
    noisy_quadratic(optimizer, w, curvatures, 3000)
    group = optimizer.param_groups[0]
    root, alpha = math.sqrt(group["momentum"]), group["lr"]
    low, high = group["averages"]["log low"], group["averages"]["log high"]
    measured = np.exp([low, high])  # what it believes the curvatures are
    assert (1 - root) ** 2 <= alpha * measured[0] * (1 + 1e-9)
    assert alpha * measured[1] <= (1 + root) ** 2 * (1 + 1e-9)
    for h in curvatures:
        companion = np.array([[1 + group["momentum"] - alpha * h, -group["momentum"]], [1.0, 0.0]])
        radius = max(abs(np.linalg.eigvals(companion)))
        assert radius < 1.0
    assert radius == pytest.approx(root, rel=1e-6)  # the stiff direction contracts at sqrt(mu): inside the region


def test_a_saved_state_goes_on_and_groups_are_tuned_apart():
    def build():
        a = torch.zeros(2, requires_grad=True)
        b = torch.zeros(3, requires_grad=True)
        return (a, b), YellowFin([{"params": [a]}, {"params": [b]}])

    def walk(params, optimizer, steps):
        for t in steps:
            generator = torch.Generator().manual_seed(t)
            for scale, p in zip((1.0, 10.0), params, strict=True):
                p.grad = scale * torch.randn(p.shape, generator=generator)
            optimizer.step()

    whole, optimizer = build()
    walk(whole, optimizer, range(30))
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates[0] > 20 * rates[1]  # curvature 100 times as large
    first, before = build()
    walk(first, before, range(15))
    second, after = build()
    for p, q in zip(second, first, strict=True):
        p.data.copy_(q.data)
    after.load_state_dict(before.state_dict())
    walk(second, after, range(15, 30))
    assert all(torch.equal(p, q) for p, q in zip(whole, second, strict=True))


def test_a_closure_gives_its_loss():
    w = torch.ones(1, requires_grad=True)
    optimizer = YellowFin([w])

    def closure():
        optimizer.zero_grad()
        loss = (w**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1.0
    assert w.item() == pytest.approx(1 - 1e-4 * 2)


def test_bad_rates_are_refused():
    with pytest.raises(InputError, match="positive rate"):
        YellowFin([torch.zeros(1, requires_grad=True)], lr=0.0)
