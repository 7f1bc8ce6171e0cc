"""Whether chains agree, and how many independent draws they are worth: split R-hat and effective sample size.

Each chain is cut in two, so that a chain that still drifts disagrees with itself. For M such halves of n draws,

    W = mean of the halves' variances,    B = n x variance of their means,    V = (n - 1)/n W + B/n
    R-hat = sqrt(V / W),                  ESS = M n / tau,    tau = 1 + 2 sum_t rho_t
    rho_t = 1 - (W - mean autocovariance at lag t) / V

The sum over lags ends where a pair rho_2k + rho_2k+1 is no longer positive, and pairs are made to fall (Geyer 1992).
By default draws are first replaced by their normal scores z = Phi^-1((rank - 3/8) / (S + 1/4)), so that heavy tails are
no obstacle, and R-hat is the larger of that of the draws and that of their distances from the median, so that chains of
one mean and unequal spread are caught (Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021). They advise R-hat < 1.01 and
an ESS of at least 100 per chain.

Shapes: `draws` (chains, draws, ...), the results (...). What never changes has neither: NaN.

>>> apart = torch.arange(2.0)[:, None] * 1000 + torch.randn(2, 100, generator=torch.Generator().manual_seed(0))
>>> bool(rhat(apart) > 1.5), bool(ess(apart) < 5)
(True, True)
"""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import fft, stats
from torch import Tensor

from credent.errors import InputError

LEAST = 8  # draws of a chain: each half needs a lag or two

Array = NDArray[np.float64]


def rhat(draws: Tensor | ArrayLike, rank: bool = True) -> Tensor:
    """Split R-hat of every quantity, (...); `rank=False` is the plain one, of means alone."""
    halves = _halves(draws)
    if not rank:
        return _tensor(_rhat(halves), draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return _tensor(np.fmax(_rhat(_scores(halves)), _rhat(_scores(folded))), draws)


def ess(draws: Tensor | ArrayLike, rank: bool = True) -> Tensor:
    """Effective number of draws of every quantity, (...): of its bulk, or with `rank=False` of its mean."""
    halves = _halves(draws)
    return _tensor(_ess(_scores(halves) if rank else halves), draws)


def _halves(draws: Tensor | ArrayLike) -> Array:
    """(2 chains, draws // 2, ...) in float64; of an odd number of draws the middle one is left out."""
    array = np.asarray(draws.detach().cpu().double() if isinstance(draws, Tensor) else draws, dtype=np.float64)
    if array.ndim < 2 or array.shape[1] < LEAST or array.shape[0] < 1:
        raise InputError(
            f"draws has shape {array.shape}; several chains of a quantity are (chains, draws, ...), with at least"
            f" {LEAST} draws each: write `draws[None]` for a single chain, and keep more draws of short ones."
        )
    if not np.isfinite(array).all():
        raise InputError("draws holds NaN or infinity: the chain has diverged; lower the step size and run it again.")
    half = array.shape[1] // 2
    return np.concatenate([array[:, :half], array[:, -half:]])


def _scores(halves: Array) -> Array:
    """Normal scores of the ranks among all draws of a quantity; ties share their mean rank."""
    flat = halves.reshape(halves.shape[0] * halves.shape[1], -1)
    scores = stats.norm.ppf((stats.rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25))
    return np.asarray(scores).reshape(halves.shape)


def _variances(halves: Array) -> tuple[Array, Array]:
    """W and V, NaN where nothing changes."""
    size = halves.shape[1]
    within = halves.var(1, ddof=1).mean(0)
    still = np.ptp(halves, axis=(0, 1)) == 0
    within = np.where(still, np.nan, within)
    return within, (size - 1) / size * within + halves.mean(1).var(0, ddof=1)


def _rhat(halves: Array) -> Array:
    within, total = _variances(halves)
    with np.errstate(divide="ignore"):  # each half stands still, somewhere else: infinite
        return np.sqrt(total / within)


def _ess(halves: Array) -> Array:
    count, size = halves.shape[:2]
    within, total = _variances(halves)
    rho = 1 - (within - _autocovariances(halves).mean(0)) / total
    rho[0] = 1.0
    pairs = rho[: size // 2 * 2].reshape(size // 2, 2, *rho.shape[1:]).sum(1)
    last = math.ceil((size - 4) / 2)  # estimates at longer lags rest on too few draws
    alive = np.logical_and.accumulate(pairs[:last] > 0)
    falling = np.minimum.accumulate(pairs[:last])
    ended = alive.sum(0)
    next_even = np.take_along_axis(rho, 2 * ended[None], axis=0)[0]  # half a pair more, if it is positive
    tau = -1 + 2 * (falling * alive).sum(0) + np.maximum(next_even, 0)
    draws = count * size
    found = draws / np.maximum(tau, 1 / math.log10(draws))  # antithetic draws count more, within reason
    return np.where(np.isnan(within), np.nan, found)


def _autocovariances(halves: Array) -> Array:
    """sum_i (x_i - mean)(x_{i+t} - mean) / n for every lag t, (M, n, ...), by the Fourier transform."""
    size = halves.shape[1]
    centred = halves - halves.mean(1, keepdims=True)
    length = fft.next_fast_len(2 * size, real=True)
    power = np.abs(fft.rfft(centred, length, axis=1)) ** 2
    return np.asarray(fft.irfft(power, length, axis=1)[:, :size] / size)


def _tensor(values: Array, draws: Tensor | ArrayLike) -> Tensor:
    return torch.as_tensor(values, device=draws.device if isinstance(draws, Tensor) else None)
