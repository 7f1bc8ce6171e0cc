from pathlib import Path

import numpy as np
import pytest
import torch

import credent
from credent.data.digits import digits


def rows(*parts) -> list[tuple[int, ...]]:
    """Every image as integers with its label, sorted: a multiset that can be compared."""
    return sorted(
        (*(x * 16).round().int().flatten().tolist(), int(y)) for part in parts for x, y in zip(*part[:], strict=True)
    )


def test_the_parts_together_are_scikit_learns_copy():
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_digits(return_X_y=True)
    data = digits()
    assert rows(data.train, data.val, data.test) == sorted((*map(int, a), int(b)) for a, b in zip(x, y, strict=True))


def test_seed_moves_validation_rows_and_never_test_rows():
    first, second = digits(seed=0), digits(seed=1)
    assert torch.equal(first.test[:][0], second.test[:][0])
    assert rows(first.val) != rows(second.val)
    assert rows(first.train, first.val) == rows(second.train, second.val)
    assert torch.equal(first.train[:][0], digits(seed=0).train[:][0])


def test_types_ranges_and_classes():
    data = digits()
    x, y = data.train[:]
    assert x.shape == (1000, 1, 8, 8)
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert x.min() == 0
    assert x.max() == 1
    assert data.num_classes == 10
    assert torch.bincount(data.test[:][1]).min() > 30  # a random part, so no digit is missing


def test_the_split_is_the_published_one():
    """Numbers in reports rest on this split: a NumPy whose generator changed would show here."""
    data = digits(seed=0)
    assert data.test[:][1][:10].tolist() == [6, 6, 6, 2, 5, 6, 6, 2, 2, 1]
    assert data.val[:][1][:10].tolist() == [3, 6, 4, 9, 5, 2, 3, 8, 8, 0]


def test_the_file_is_small_and_carries_its_licence():
    folder = Path(credent.__file__).parent / "data"
    assert (folder / "digits.npz").stat().st_size < 100_000
    assert "CC BY 4.0" in (folder / "digits.txt").read_text()
    with np.load(folder / "digits.npz", allow_pickle=False) as file:
        assert set(file) == {"x", "y"}
