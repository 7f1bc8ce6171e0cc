"""The edge of chaos: the variance of weights at which a deep, wide network neither forgets nor scrambles its inputs.

In a wide layer with weights of variance sigma_w^2 / fan_in and biases of variance sigma_b^2, inputs of variance q
become inputs of variance V(q) to the next, and two inputs near each other part or meet by a factor chi a layer:

    V(q) = sigma_w^2 E phi(sqrt(q) z)^2 + sigma_b^2,    chi = sigma_w^2 E phi'(sqrt(q*) z)^2,    z ~ N(0, 1)

where q* = V(q*) is what the variance settles at. chi < 1 is order, chi > 1 chaos, chi = 1 the edge between, where
signals and gradients reach deepest. [Poole et al. 2016; Schoenholz et al. 2017] On the edge sigma_w^2 is 1 / E phi'^2,
which leaves one equation for q*:

    q = E phi(sqrt(q) z)^2 / E phi'(sqrt(q) z)^2 + sigma_b^2

Without biases and with phi(0) = 0 it is solved by q -> 0: sigma_w^2 = 1 for tanh, 2 for ReLU. An edge counts only if
the variance settles there: with ReLU it does not for any sigma_b > 0, with GELU and SiLU not for a small one.

>>> round(critical_variance(torch.relu), 6), round(critical_variance(torch.tanh), 6)
(2.0, 1.0)
>>> round(critical_variance(torch.tanh, bias_variance=0.05), 2)
1.76
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from credent.errors import InputError

Activation = Callable[[Tensor], Tensor]

_TINY, _LARGE = 1e-20, 1e4  # the smallest q stands for the limit q -> 0


def moments(activation: Activation, q: float) -> tuple[float, float]:
    """E phi(sqrt(q) z)^2 and E phi'(sqrt(q) z)^2."""
    z, weights = _normal_nodes()
    x = (math.sqrt(q) * z).requires_grad_()
    with torch.enable_grad():
        value = activation(x * 1)  # a copy, which an activation may overwrite
        if not isinstance(value, Tensor) or value.shape != x.shape or not value.requires_grad:
            raise InputError(
                f"activation={activation!r} is no differentiable function from each number to a number: write"
                " torch.tanh, or a module such as nn.ELU()."
            )
        (slope,) = torch.autograd.grad(value.sum(), x)
    return float(weights @ value.detach().square()), float(weights @ slope.square())


def critical_variance(activation: Activation, bias_variance: float = 0.0) -> float:
    """sigma_w^2 on the edge of chaos; a layer's weights then have variance sigma_w^2 / fan_in."""
    if not (bias_variance >= 0 and math.isfinite(bias_variance)):
        raise InputError(f"bias_variance={bias_variance}: the variance of a layer's biases is a number >= 0.")

    def excess(q: float) -> float:
        square, slope = moments(activation, q)
        return q - square / slope - bias_variance if slope > 0 else math.nan

    q = _TINY
    if bias_variance > 0 or moments(activation, _TINY)[0] > 1e-12:
        if not (excess(_TINY) < 0 < excess(_LARGE)):
            raise _no_edge(activation, bias_variance)
        q = optimize.brentq(excess, _TINY, _LARGE, xtol=1e-14, rtol=1e-13)
    slope = moments(activation, q)[1]
    if not slope > 0:  # flat at zero, where the variance settles
        raise _no_edge(activation, bias_variance)
    variance = 1 / slope
    above = 1.001 * q + 1e-6
    if variance * moments(activation, above)[0] + bias_variance > above * (1 + 1e-9):
        raise _no_edge(activation, bias_variance)
    return variance


def _normal_nodes() -> tuple[Tensor, Tensor]:
    """Nodes and weights for expectations under N(0, 1): Gauss-Legendre on both sides of zero, where kinks are."""
    x, w = np.polynomial.legendre.leggauss(200)
    z = 5 * (x + 1)
    weights = 5 * w * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return torch.from_numpy(np.concatenate([-z, z])), torch.from_numpy(np.concatenate([weights, weights]))


def _no_edge(activation: Activation, bias_variance: float) -> InputError:
    return InputError(
        f"no edge of chaos for activation={activation!r} with bias_variance={bias_variance}: there is no sigma_w^2 with"
        " chi = 1 at which the variance of its inputs settles. ReLU has its edge at bias_variance=0, GELU at 1;"
        " or write variance='kaiming' or a number."
    )
