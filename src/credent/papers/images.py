"""Training on images, small or as in a paper: how much of a setting is run, which images, and the schedule they share.

>>> size = Size(width=2, train=100, val=50, test=50, pool=2, epochs=1, batch=50, lr=1e-3)
>>> images("digits", size).train.tensors[0].shape
torch.Size([100, 1, 4, 4])
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, TensorDataset

from credent.data import batches, load
from credent.objectives import Objective
from credent.training import Result, fit


@dataclass(frozen=True)
class Size:
    """How much of a paper's setting is run: network, data and time."""

    width: int
    """Channels of the first layer or stage; 64 is the networks' usual."""
    train: int
    """Training images, 0 for all."""
    val: int
    """Validation images, 0 for all that are held out."""
    test: int
    """Test images, 0 for all."""
    pool: int
    """Images are averaged over squares of this side."""
    epochs: int
    batch: int
    lr: float


class Images(NamedTuple):
    """The three parts of a data set, and how its images were standardised."""

    train: TensorDataset
    val: TensorDataset
    test: TensorDataset
    mean: Tensor
    std: Tensor


@functools.lru_cache(maxsize=2)  # a worker runs many cells on the same images
def images(data: str, size: Size) -> Images:
    """The first images of each part, pooled."""
    options: dict[str, Any] = {} if data == "digits" else {"val_share": 0.1}
    found = load(data, seed=0, **options)

    def part(rows: TensorDataset, count: int) -> TensorDataset:
        x, y = rows[: count or len(rows)]
        return TensorDataset(functional.avg_pool2d(x, size.pool), y)

    parts = part(found.train, size.train), part(found.val, size.val), part(found.test, size.test)
    return Images(*parts, torch.as_tensor(found.mean), torch.as_tensor(found.std))


def train(
    objective: Objective, data: TensorDataset, size: Size, seed: int, multiplier: float = 1.0
) -> tuple[Result, DataLoader[tuple[Tensor, ...]]]:
    """Adam that falls by 10 after half and three quarters of the epochs, scales at `multiplier` of the means' rate."""
    loader = batches(data, size.batch, shuffle=True, seed=seed)
    optimizer = torch.optim.Adam(objective.param_groups(size.lr, multiplier * size.lr), fused=True)
    done = fit(
        objective,
        optimizer,
        loader,
        epochs=size.epochs,
        scheduler=MultiStepLR(optimizer, [math.ceil(size.epochs / 2), math.ceil(3 * size.epochs / 4)]),
        log_every=10**9,  # a row an epoch
        seed=seed,
        progress=False,
    )
    return done, loader
