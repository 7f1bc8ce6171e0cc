"""AdaBound, AMSBound and RAdam are other libraries': held here to their definitions, step by step."""

import math

import pytest
import torch
from pytorch_optimizer import AdaBound


def walk(optimizer, w, gradients):
    found = []
    for g in gradients:
        w.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
        found.append(w.item())
    return found


def weight():
    return torch.zeros(1, dtype=torch.float64, requires_grad=True)


def bounded(gradients, largest, lr=1e-3, final=0.1, gamma=1e-3, betas=(0.9, 0.999), eps=1e-8):
    """Adam whose rate for each weight is held between bounds that close on `final`; AMSBound's v never falls."""
    w = m = v = highest = 0.0
    found = []
    for t, g in enumerate(gradients, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        highest = max(highest, v)
        rate = lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) / (math.sqrt(highest if largest else v) + eps)
        w -= min(max(rate, final * (1 - 1 / (gamma * t + 1))), final * (1 + 1 / (gamma * t))) * m
        found.append(w)
    return found


def test_adabound_has_its_published_values():
    w = weight()
    expected = [-9.999996837723347e-4, -1.9321790588180672e-3, -2.5288899290101963e-3]
    assert walk(AdaBound([w], lr=1e-3), w, [1.0, 0.5, -0.2]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("largest", [False, True])
def test_bounds_close_on_the_final_rate(largest):
    gradients = torch.randn(3000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    gradients[5] = 30.0  # AMSBound remembers it, AdaBound forgets
    w = weight()
    found = walk(AdaBound([w], lr=1e-3, ams_bound=largest), w, gradients)
    assert found == pytest.approx(bounded(gradients, largest), rel=1e-6)


def test_radam_is_momentum_until_the_sixth_step_and_then_rectified():
    gradients, (b1, b2), lr = [1.0, 0.5, -0.2, 0.4, 0.3, 0.7, -0.5, 0.1], (0.9, 0.999), 1e-3
    w = weight()
    found = walk(torch.optim.RAdam([w], lr=lr, betas=(b1, b2)), w, gradients)
    at = m = v = 0.0
    limit = 2 / (1 - b2) - 1
    for t, g in enumerate(gradients, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        rho = limit - 2 * t * b2**t / (1 - b2**t)
        step = lr * m / (1 - b1**t)
        if rho > 5:
            r = math.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
            step *= r * math.sqrt(1 - b2**t) / (math.sqrt(v) + 1e-8)
            if t == 6:
                assert r == pytest.approx(0.0258211, abs=1e-7)
        at -= step
        assert found[t - 1] == pytest.approx(at, rel=1e-6)
