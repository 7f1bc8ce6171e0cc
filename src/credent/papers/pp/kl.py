"""Penalties beside the KL to the prior that they stand for, as functions of the means, under Gaussian noise.

Lengths are in units of the prior's standard deviation, so that the factors are those of P = 1:

    L2      mu^2 / 2               N(0, 1)                   L1     sqrt(2) |mu|       Laplace of variance 1
    group   sqrt(n + 1) ||mu||     density proportional to exp(-sqrt(n + 1) ||w||), n numbers

For groups, with m = ||mu|| and lambda = sqrt(n + 1),

    KL = lambda E ||mu + sigma e|| + log Z - n H(sigma),     Z = 2 pi^(n/2) Gamma(n) / (Gamma(n/2) lambda^n)
    E ||mu + sigma e|| = sigma sqrt(2) Gamma((n+1)/2) / Gamma(n/2) 1F1(-1/2; n/2; -m^2 / (2 sigma^2))

A penalty is the KL if both differ by a constant. `gap` is how far they are from that, in nats: the largest error that
is left under the best constant.

>>> round(gap(np.array([0.0, 1.0, 4.0]), np.array([5.0, 6.5, 9.0])), 6)         # 5, 5.5, 5: all within 1/4 of 5.25
0.25
>>> float(np.round(group_kl(np.array([0.7]), 0.5, n=1) - penalty_of(LAPLACE, stats.norm)(0.7, 0.5), 9)[0])
0.0
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import special, stats

from credent.cells import Cell
from credent.penalties import penalty_of
from credent.penalties.noise import Floats

GROUP = 16
"""Numbers in a group."""
LAPLACE = stats.laplace(scale=np.sqrt(0.5))
_MEANS = np.linspace(0, 4, 81)
_NOISES = np.geomspace(0.1, 1, 19)


@dataclass(frozen=True)
class Curve(Cell):
    """A penalty and its KL over the mean, at one scale of the noise."""

    penalty: Literal["l2", "l1", "group"]
    noise: float

    def run(self) -> dict[str, Any]:
        """Both over the mean, without their values at zero; a group's mean is its norm over sqrt(n)."""
        if self.penalty == "l2":
            r, kl = _MEANS**2 / 2, penalty_of(stats.norm(), stats.norm)(_MEANS, np.array(self.noise))
        elif self.penalty == "l1":
            r, kl = np.sqrt(2) * _MEANS, penalty_of(LAPLACE, stats.norm)(_MEANS, np.array(self.noise))
        else:
            norms = np.sqrt(GROUP) * _MEANS
            r, kl = np.sqrt(GROUP + 1) * norms, group_kl(norms, self.noise, GROUP)
        return {
            "mean": _MEANS.tolist(),
            "penalty": (r - r[0]).tolist(),
            "kl": (kl - kl[0]).tolist(),
            "gap": gap(r, kl),
        }


@dataclass(frozen=True)
class Learnt(Cell):
    """a(sigma^2) + b(sigma^2) mu^2 beside the KL to N(0, 1), over means and scales.

    "alone" is L2, which has a = 0; "printed" has the slides' terms; "exchanged" has them in each other's place, which
    is the closed form of the KL.
    """

    terms: Literal["alone", "printed", "exchanged"]

    def run(self) -> dict[str, Any]:
        """The gap over means up to 4 and scales of 0.1 to 1, and both at mean zero over the scale."""
        mean, noise = np.meshgrid(_MEANS, _NOISES)
        half, rest = np.full_like(noise, 0.5), (noise**2 - np.log(noise**2) - 1) / 2
        a, b = {"alone": (0 * half, half), "printed": (half, rest), "exchanged": (rest, half)}[self.terms]
        r, kl = a + b * mean**2, penalty_of(stats.norm(), stats.norm)(mean, noise)
        return {
            "noise": _NOISES.tolist(),
            "penalty": r[:, 0].tolist(),
            "kl": kl[:, 0].tolist(),
            "gap": gap(r, kl),
        }


def gap(r: Floats, kl: Floats) -> float:
    """The smallest over constants K of the largest |r - KL - K|."""
    return float(np.ptp(r - kl)) / 2


def group_kl(norm: Floats, noise: float, n: int) -> Floats:
    """KL to the group's prior for means of these norms."""
    factor = np.sqrt(n + 1)
    ratio = np.exp(special.gammaln((n + 1) / 2) - special.gammaln(n / 2))
    expected = noise * np.sqrt(2) * ratio * special.hyp1f1(-0.5, n / 2, -((norm / noise) ** 2) / 2)
    log_z = np.log(2) + n / 2 * np.log(np.pi) + special.gammaln(n) - special.gammaln(n / 2) - n * np.log(factor)
    entropy = n * np.log(2 * np.pi * np.e * noise**2) / 2
    return np.asarray(factor * expected + log_z - entropy, dtype=float)
