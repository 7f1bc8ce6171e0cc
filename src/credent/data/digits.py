"""The 1,797 handwritten digits of 8x8 pixels that come with credent, so that every example runs without a download.

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI repository 1998, CC BY 4.0 (digits.txt).

Shapes: x (n, 1, 8, 8) float32 in [0, 1], not standardised (mean 0, std 1); y (n,) int64 in 0..9.

>>> data = digits()
>>> len(data.train), len(data.val), len(data.test), data.shape
(1000, 297, 500, (1, 8, 8))
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from credent.data.dataset import Data

NUM_TRAIN, NUM_TEST = 1000, 500
TEST_SEED = 0  # the test images are the same for every `seed`, so choosing by validation rows never sees them


def digits(seed: int = 0) -> Data:
    """1,000 training, 297 validation and 500 test digits; `seed` only moves rows between training and validation."""
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as file:
        x, y = file["x"], file["y"]
    order = np.random.default_rng(TEST_SEED).permutation(len(x))
    test, rest = order[:NUM_TEST], order[NUM_TEST:]
    rest = np.random.default_rng(seed).permutation(rest)

    def part(rows: NDArray[np.int64]) -> TensorDataset:
        pixels = torch.from_numpy(x[rows]).float().div_(16)
        return TensorDataset(pixels[:, None], torch.from_numpy(y[rows]).long())

    return Data(
        name="digits",
        train=part(rest[:NUM_TRAIN]),
        val=part(rest[NUM_TRAIN:]),
        test=part(test),
        num_classes=10,
        shape=(1, 8, 8),
        mean=torch.zeros(1, 1, 1),
        std=torch.ones(1, 1, 1),
    )
