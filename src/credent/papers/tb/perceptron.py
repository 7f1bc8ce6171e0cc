"""A perceptron with Gaussian weights that learns AND, and the gradient of its loss.

With q = N(mu, sigma^2) on two weights and a bias, prior N(0, 1) and logits a_i = w . x_i ~ N(m_i, s_i^2), the bias
being a weight of input 1, the loss of the data set and its gradients are one-dimensional expectations,

    L = sum_i E[softplus(a_i) - y_i a_i] + KL(q || p)
    dL/dmu_k    = E[-d/dw_k log p(y | w, x) + w_k] = sum_i x_ik (E[s(a_i)] - y_i) + mu_k
    dL/dsigma_k = E[e_k (-d/dw_k log p(y | w, x) + w_k)] - 1 / sigma_k
                = sigma_k (sum_i x_ik^2 E[s'(a_i)] + 1) - 1 / sigma_k

where s is the logistic function. The thesis prints E[d/dw_k log p(y | w, x) + 1] for the first (2.4.4).

>>> exact, printed = by_mean([0.0, 0.0, 0.0], [1e-9] * 3), by_mean([0.0, 0.0, 0.0], [1e-9] * 3, printed=True)
>>> exact.round(6).tolist(), printed.round(6).tolist()      # AND at w = 0, where s = 1/2: sums of 1/2 - y
([0.0, 0.0, 1.0], [1.0, 1.0, 0.0])
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from credent import families, priors
from credent.cells import Cell
from credent.likelihoods import Bernoulli
from credent.objectives import VI
from credent.predictive import BinaryPredictive
from credent.training import fit

Vector = NDArray[np.float64]
Neuron = Literal["logistic", "relu"]
NEURONS: dict[Neuron, str] = {"logistic": "logistic neuron", "relu": "ReLU as the probability"}
INPUTS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
SIDE = 21  # points to a side of the drawn square
_SPREAD = 1 / math.sqrt(2)  # Kaiming's for two inputs, with the thesis's a = 1
_ROWS = np.array([[*x, 1.0] for x in INPUTS])
_AND = np.array([0.0, 0.0, 0.0, 1.0])
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)


def bound(mean: ArrayLike, scale: ArrayLike) -> float:
    """L of the four data in nats, by quadrature."""
    mu, sigma = np.asarray(mean, float), np.asarray(scale, float)
    a = _logits(mu, sigma)
    nll = _expect(np.logaddexp(0, a) - _AND[:, None] * a).sum()
    return float(nll + (0.5 * (mu**2 + sigma**2 - 1) - np.log(sigma)).sum())


def by_mean(mean: ArrayLike, scale: ArrayLike, *, printed: bool = False) -> Vector:
    """dL/dmu (3,) by the formula above, or by the thesis's."""
    mu, sigma = np.asarray(mean, float), np.asarray(scale, float)
    minus_score = _ROWS.T @ (_expect(_logistic(_logits(mu, sigma))) - _AND)
    found: Vector = -minus_score + 1 if printed else minus_score + mu
    return found


def by_scale(mean: ArrayLike, scale: ArrayLike) -> Vector:
    """dL/dsigma (3,)."""
    mu, sigma = np.asarray(mean, float), np.asarray(scale, float)
    s = _logistic(_logits(mu, sigma))
    found: Vector = sigma * (_ROWS.T**2 @ _expect(s * (1 - s)) + 1) - 1 / sigma
    return found


def _logits(mu: Vector, sigma: Vector) -> Vector:
    spread: Vector = np.sqrt(_ROWS**2 @ sigma**2)[:, None]
    logits: Vector = (_ROWS @ mu)[:, None] + spread * _NODES
    return logits


def _expect(values: Vector) -> Vector:
    mean: Vector = values @ _WEIGHTS / _WEIGHTS.sum()
    return mean


def _logistic(a: Vector) -> Vector:
    return np.exp(-np.logaddexp(0, -a))


class Clipped(nn.Module):
    """Logits whose probability is the input's positive part, cut to where its logarithms are finite."""

    def forward(self, a: Tensor) -> Tensor:
        """Logits of the shape of a."""
        return a.clamp(1e-3, 1 - 1e-3).logit()


def neuron(kind: Neuron, num_data: int, seed: int) -> VI:
    """The perceptron as the thesis starts it: means drawn at the Kaiming spread, which is also every sigma."""
    torch.manual_seed(seed)
    layer = nn.Linear(2, 1).double()
    for p in layer.parameters():
        nn.init.normal_(p, std=_SPREAD)
    net = layer if kind == "logistic" else nn.Sequential(layer, Clipped())
    bnn = VI(
        net, Bernoulli(), priors.Gaussian(scale=1.0), num_data=num_data, family=families.Gaussian(), estimator="path"
    )
    with torch.no_grad():
        bnn.q.get_parameter("scales.rho").fill_(math.log(_SPREAD))
    return bnn


@dataclass(frozen=True)
class Gradient(Cell):
    """The gradient of L where training starts, four ways."""

    draws: int
    seed: int

    def run(self) -> dict[str, Any]:
        """By parameter: the average of autograd with its error, the slope of the bound, and both formulas."""
        bnn = neuron("logistic", 4, self.seed)
        x, y = torch.tensor(INPUTS, dtype=torch.float64), torch.tensor(_AND)[:, None]
        params = [*bnn.layout.params().values(), bnn.q.get_parameter("scales.rho")]
        mu = torch.cat([p.flatten() for p in params[:2]]).detach().numpy()
        sigma = np.full(3, _SPREAD)
        drawn = torch.stack(
            [torch.cat([g.flatten() for g in torch.autograd.grad(4 * bnn(x, y), params)]) for _ in range(self.draws)]
        ).numpy()
        drawn = drawn.reshape(-1, 2, 6).mean(1)  # noise comes in pairs of opposite signs
        drawn[:, 3:] /= sigma  # rho is log sigma
        both, step = np.concatenate([mu, sigma]), 1e-5
        slopes = [
            (bound(*np.split(both + d, 2)) - bound(*np.split(both - d, 2))) / (2 * step) for d in step * np.eye(6)
        ]
        return {
            "autograd": drawn.mean(0).tolist(),
            "error": (drawn.std(0, ddof=1) / math.sqrt(len(drawn))).tolist(),
            "slope": slopes,
            "formula": [*by_mean(mu, sigma), *by_scale(mu, sigma)],
            "printed": by_mean(mu, sigma, printed=True).tolist(),
        }


@dataclass(frozen=True)
class Learning(Cell):
    """The perceptron trained on every input so many times over, with Adam at 0.01 and one draw a step."""

    neuron: Neuron
    copies: int
    steps: int
    seed: int

    def run(self) -> dict[str, Any]:
        """Loss by step; P(1 | x) at the four inputs and over the square, before and after."""
        x = torch.tensor(INPUTS, dtype=torch.float64).repeat(self.copies, 1)
        y = torch.tensor(_AND).repeat(self.copies)[:, None]
        bnn = neuron(self.neuron, len(x), self.seed)
        before = _predicted(bnn)
        optimizer = torch.optim.Adam(bnn.param_groups(1e-2, 1e-2))
        done = fit(bnn, optimizer, [(x, y)], steps=self.steps, log_every=1, seed=self.seed, progress=False)
        losses = [float(row["loss"]) for row in done.history if "loss" in row]
        tenth = max(1, len(losses) // 10)
        after = _predicted(bnn)
        return {
            "losses": losses,
            "first_loss": float(np.mean(losses[:tenth])),
            "last_loss": float(np.mean(losses[-tenth:])),
            "before": before,
            "after": after,
            "right": int(all((p > 0.5) == bool(t) for p, t in zip(after["inputs"], _AND, strict=True))),
        }


@torch.no_grad()
def _predicted(bnn: VI) -> dict[str, list[float]]:
    line = torch.linspace(0, 1, SIDE, dtype=torch.float64)
    square = torch.cartesian_prod(line, line)
    pred = bnn.predict(torch.cat([torch.tensor(INPUTS, dtype=torch.float64), square]), samples=200, seed=0)
    assert isinstance(pred, BinaryPredictive)
    probs = pred.probs[:, 0].tolist()
    return {"inputs": probs[:4], "square": probs[4:]}
