"""The temperature of predictions: the one that labels choose, for draws and for whatever an objective predicts."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import InputError
from credent.families import Draws
from credent.likelihoods import Bernoulli, Categorical, Gaussian


class Given(nn.Module):
    """Outputs that are its parameters, (n, C), whatever the inputs."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = nn.Parameter(outputs)

    def forward(self, x):
        return self.outputs[x[:, 0].long()]


def rows(n):
    return torch.arange(n, dtype=torch.float32)[:, None]


def naive_nll(outputs, y, temperature):
    """Of a mixture over draws, (S, n, C), raised to 1/T when it is averaged, written out in float64."""
    outputs = np.asarray(outputs, dtype=np.float64)
    probs = np.exp(outputs - outputs.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    powers = probs.mean(0) ** (1 / temperature)
    return -np.log((powers / powers.sum(-1, keepdims=True))[np.arange(len(y)), y]).mean()


@pytest.mark.parametrize("draws", [1, 5])
def test_it_is_the_least_nll_of_the_mixture(draws):
    torch.manual_seed(0)
    outputs = 3 * torch.randn(draws, 200, 4)
    y = torch.where(torch.rand(200) < 0.6, outputs.mean(0).argmax(-1), torch.randint(4, (200,)))
    likelihood, posterior = Categorical(), Draws([{"outputs": each} for each in outputs])
    found = cr.calibrate(Given(outputs[0]), posterior, likelihood, rows(200), y, samples=None)
    grid = np.exp(np.linspace(-3, 3, 6001))  # a thousandth apart
    best = grid[np.argmin([naive_nll(outputs, y.numpy(), t) for t in grid])]
    assert found == pytest.approx(best, rel=2e-3)
    assert float(likelihood.temperature) == pytest.approx(found)
    after = cr.predict(Given(outputs[0]), posterior, likelihood, rows(200), samples=None)
    assert -after.log_prob(y).mean().item() == pytest.approx(naive_nll(outputs, y.numpy(), found), abs=1e-5)
    again = cr.calibrate(Given(outputs[0]), posterior, likelihood, rows(200), y, samples=None)
    assert again == pytest.approx(found, rel=1e-4)  # it begins anew
    likelihood.temperature.fill_(1.0)
    raw = cr.predict(Given(outputs[0]), posterior, likelihood, rows(200), samples=None)
    assert torch.equal(after.label, raw.label)
    torch.testing.assert_close(after.aleatoric / after.entropy, raw.aleatoric / raw.entropy)  # shares stay
    assert abs(after.entropy.mean() / raw.entropy.mean() - 1) > 0.02


@pytest.mark.parametrize("truth", [0.4, 2.5])
def test_labels_drawn_at_a_temperature_find_it(truth):
    """Within four standard errors, by the curvature of the log-likelihood in log T."""
    torch.manual_seed(1)
    n = 20_000
    outputs = 2 * torch.randn(n, 5)
    y = torch.multinomial((outputs / truth).softmax(-1), 1)[:, 0]
    found = cr.calibrate(Given(outputs), Draws([{"outputs": outputs}]), Categorical(), rows(n), y, samples=None)
    step = 1e-2
    around = [naive_nll(outputs[None], y.numpy(), found * math.exp(s)) for s in (-step, 0, step)]
    error = 1 / math.sqrt(n * (around[0] - 2 * around[1] + around[2]) / step**2)
    assert error < 0.02
    assert abs(math.log(found / truth)) < 4 * error


def test_yes_and_no():
    """Half of the outputs say 2, and are right three times in four; the others say -2, likewise: T = 2 / log 3."""
    outputs = torch.tensor([2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0])[:, None]
    y = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])[:, None]
    found = cr.calibrate(Given(outputs), Draws([{"outputs": outputs}]), Bernoulli(), rows(8), y, samples=None)
    assert found == pytest.approx(2 / math.log(3), rel=1e-4)


def objective(kind, normalise):
    torch.manual_seed(2)
    middle = nn.BatchNorm1d(16) if normalise else nn.Identity()
    net = nn.Sequential(nn.Linear(6, 16), middle, nn.Softplus(), nn.Linear(16, 3))
    bnn = kind(net, Categorical(), num_data=256, beta=0.1)
    x = torch.randn(512, 6)
    y = (x[:, :3] + 1.5 * torch.randn(512, 3)).argmax(-1)
    optimizer = torch.optim.Adam(bnn.param_groups(lr=2e-2))
    for _ in range(150):  # until it is too sure of 256 noisy labels
        optimizer.zero_grad()
        bnn(x[:256], y[:256]).backward()
        optimizer.step()
    return bnn.eval(), x[256:], y[256:]


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("kind", [cr.MAP, cr.VI, cr.VL])
def test_an_objective_is_calibrated_as_it_predicts(kind, normalise):
    """At its own draws, its own way of predicting, and its own statistics of BatchNorm: no other T is better."""
    bnn, x, y = objective(kind, normalise)

    def nll(temperature):
        bnn.likelihood.temperature.fill_(temperature)
        return -bnn.predict(x, samples=8).log_prob(y).double().mean().item()

    found = bnn.calibrate(x, y, samples=8)
    assert found > 1.1
    best = nll(found)
    assert best < min(nll(found * 1.05), nll(found / 1.05), nll(1.0))


def test_training_does_not_see_it_and_a_file_keeps_it(tmp_path):
    bnn, x, y = objective(cr.MAP, normalise=False)
    before = bnn(x, y).item()
    found = bnn.calibrate(x, y)
    assert bnn(x, y).item() == before
    cr.save(bnn, tmp_path / "posterior.safetensors")
    fresh, _, _ = objective(cr.MAP, normalise=False)
    cr.load(fresh, tmp_path / "posterior.safetensors")
    assert float(fresh.likelihood.temperature) == pytest.approx(found)
    assert torch.equal(fresh.predict(x).probs, bnn.predict(x).probs)


def test_what_cannot_be_calibrated():
    outputs = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    draws = Draws([{"outputs": outputs}])
    with pytest.raises(InputError, match="Gaussian has none"):
        cr.calibrate(Given(outputs), draws, Gaussian(scale=1.0), rows(2), torch.zeros(2, 2))
    likelihood = Categorical()
    with pytest.raises(InputError, match="labels run from 0 to 5"):
        cr.calibrate(Given(outputs), draws, likelihood, rows(2), torch.tensor([0, 5]), samples=None)
    with pytest.raises(InputError, match="targets 0 or 1"):
        cr.calibrate(Given(outputs), draws, Bernoulli(), rows(2), torch.full((2, 2), 0.3), samples=None)
    with pytest.raises(InputError, match=r"got ndarray: torch\.as_tensor\(y\)"):
        cr.calibrate(Given(outputs), draws, likelihood, rows(2), np.array([0, 1]), samples=None)
    with pytest.raises(InputError, match="not all finite"):
        cr.calibrate(Given(outputs), Draws([{"outputs": outputs / 0}]), likelihood, rows(2), torch.tensor([0, 1]))
    assert likelihood.temperature == 1


@pytest.mark.parametrize("outputs", [torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.zeros(2, 2)])
def test_where_no_temperature_is_best_it_stays(outputs):
    """All labels are right, or all classes are alike."""
    likelihood, draws = Categorical(), Draws([{"outputs": outputs}])
    likelihood.temperature.fill_(1.5)
    with pytest.warns(UserWarning, match=r"stays at 1\.5"):
        assert cr.calibrate(Given(outputs), draws, likelihood, rows(2), torch.tensor([0, 1]), samples=None) == 1.5


def test_stacked_chains_are_calibrated_together():
    torch.manual_seed(3)
    nets = [nn.Linear(4, 3) for _ in range(3)]
    stacked = cr.objectives.Stacked(nets, Categorical(), num_data=50)
    x = 3 * torch.randn(200, 4)
    mixed = torch.stack([net(x).softmax(-1) for net in nets]).mean(0).detach()
    y = torch.multinomial(mixed.sqrt(), 1)[:, 0]  # which is their truth at T = 2
    found = stacked.calibrate(x, y)
    assert 1.5 < found < 2.7
    powers = mixed ** (1 / found)
    torch.testing.assert_close(stacked.predict(x).probs, powers / powers.sum(-1, keepdim=True))
