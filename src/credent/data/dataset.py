"""A data set ready to train on: three parts of tensors, and the numbers that lead back to the original units.

    x = (raw x - mean) / std,        y = (raw y - target_mean) / target_std   (regression only)

All four numbers come from the training rows alone. A density in standardised targets becomes one in original units by

    log p(raw y) = log p(y) - log target_std.

Validation rows are taken from the training part by a seed; the test part never moves.

Shapes: inputs (n, *shape) float32; class targets (n,) int64; regression targets (n, 1) float32; `mean` and `std`
broadcast against one input.

>>> rows = (np.array([[0.0], [2.0]]), np.array([10.0, 30.0]))
>>> data = regression("line", train=rows, val=rows, test=(np.array([[4.0]]), np.array([50.0])))
>>> data.test[0]                                             # (4 - 1) / 1 and (50 - 20) / 10
(tensor([3.]), tensor([3.]))
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from credent.errors import InputError

Rows = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Data:
    """Train, validation and test parts of (x, y), and how x and y were scaled.

    `num_classes` is None for regression. `data.train[:100]` is a pair of tensors, `len(data.train)` the N of a loss.
    """

    name: str
    train: TensorDataset
    val: TensorDataset
    test: TensorDataset
    num_classes: int | None
    shape: tuple[int, ...]
    mean: Tensor
    std: Tensor
    target_mean: float = 0.0
    target_std: float = 1.0


def split_rows(num_rows: int, val_share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sorted row numbers of the training and the validation part, drawn without overlap by `seed`.

    >>> train, val = split_rows(10, val_share=0.3, seed=0)
    >>> len(train), len(val), sorted([*train, *val]) == list(range(10))
    (7, 3, True)
    """
    num_val = round(num_rows * val_share) if 0 <= val_share < 1 else num_rows
    if num_val >= num_rows:
        raise InputError(
            f"val_share={val_share} of {num_rows} rows leaves no row to train on, or is no share at all: "
            "write val_share=0.1 for a tenth, val_share=0 for no validation rows."
        )
    order = np.random.default_rng(seed).permutation(num_rows)
    return np.sort(order[num_val:]), np.sort(order[:num_val])


def regression(name: str, train: Rows, val: Rows, test: Rows) -> Data:
    """Standardise inputs (n, d) and targets (n,) by the training rows; a constant column is only centred."""
    mean, std = _moments(train[0])
    target_mean, target_std = _moments(train[1])

    def part(rows: Rows) -> TensorDataset:
        x, y = (rows[0] - mean) / std, (rows[1] - target_mean) / target_std
        return TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y).float()[:, None])

    return Data(
        name=name,
        train=part(train),
        val=part(val),
        test=part(test),
        num_classes=None,
        shape=train[0].shape[1:],
        mean=torch.from_numpy(mean).float(),
        std=torch.from_numpy(std).float(),
        target_mean=float(target_mean),
        target_std=float(target_std),
    )


def _moments(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    std = values.std(axis=0)
    return values.mean(axis=0), np.where(std > 0, std, 1.0)
