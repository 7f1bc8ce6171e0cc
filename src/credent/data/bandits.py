"""Four classification tables that serve as contextual bandits: each class is an arm, each row a context.

    mushroom    8,124 rows of 117     22 attributes one-hot, 0/1 as they are          2 classes: edible, poisonous
    shuttle    58,000 rows of   9     numbers                                         7 states of a radiator (Statlog)
    covertype 581,012 rows of  54     10 numbers, 4 areas and 40 soils one-hot        7 kinds of forest
    adult      45,222 rows of  92     6 numbers, 8 attributes one-hot                14 occupations ("Census")

Everything but Mushroom is standardised by the training rows, x = (raw x - mean) / std; a constant column is only
centred. Files are `bandits/*.npz` (docs/bandits.md). `adult(features=94)` keeps a slip of the literature on purpose:
the published test file writes the income with a full stop, which makes four values out of two.

A bandit walks over all rows, so `test_share` and `val_share` may be 0; otherwise the test part is drawn by a fixed seed
and never moves.

Shapes: x (n, columns) float32, y (n,) int64.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from credent.data.archive import damaged, read_arrays
from credent.data.dataset import Data, split_rows
from credent.data.directory import data_file
from credent.errors import InputError

BANDITS = {
    "mushroom": "edible or poisonous, 8,124 rows of 117, a bandit table",
    "shuttle": "state of a shuttle's radiator (Statlog), 58,000 rows of 9, a bandit table",
    "covertype": "kind of forest, 581,012 rows of 54, a bandit table",
    "adult": "occupation from the census, 45,222 rows of 92, a bandit table",
}
BANDIT_FILES = {
    "mushroom": "bandits/mushroom_onehot.npz",
    "shuttle": "bandits/shuttle.npz",
    "covertype": "bandits/covtype.npz",
    "adult": "bandits/adult_onehot.npz",
}
Directory = str | Path | None
_TEST_SEED = 0


def mushroom(data_dir: Directory = None, seed: int = 0, val_share: float = 0.0, test_share: float = 0.1) -> Data:
    """Mushrooms: class 0 is edible, class 1 poisonous."""
    path = data_file(data_dir, BANDIT_FILES["mushroom"])
    x, y = read_arrays(path, "x", "y")
    return _table("mushroom", path, x, y, 2, seed, val_share, test_share, standardise=False)


def shuttle(data_dir: Directory = None, seed: int = 0, val_share: float = 0.0, test_share: float = 0.1) -> Data:
    """Statlog Shuttle, both published parts together; classes 0 to 6 are the published 1 to 7."""
    path = data_file(data_dir, BANDIT_FILES["shuttle"])
    x_train, y_train, x_test, y_test = read_arrays(path, "x_train", "y_train", "x_test", "y_test")
    x, y = np.vstack([x_train, x_test]), np.concatenate([y_train, y_test])
    return _table("shuttle", path, x, _from_one(y), 7, seed, val_share, test_share)


def covertype(data_dir: Directory = None, seed: int = 0, val_share: float = 0.0, test_share: float = 0.1) -> Data:
    """Covertype; classes 0 to 6 are the published 1 to 7."""
    path = data_file(data_dir, BANDIT_FILES["covertype"])
    numbers, area, soil, y = read_arrays(path, "num_T", "wilderness", "soil", "y")
    one_hot = [np.eye(count, dtype=np.int16)[column] for count, column in ((4, area), (40, soil))]
    return _table("covertype", path, np.hstack([numbers.T, *one_hot]), _from_one(y), 7, seed, val_share, test_share)


def adult(
    data_dir: Directory = None, seed: int = 0, val_share: float = 0.0, test_share: float = 0.1, features: int = 92
) -> Data:
    """Adult with the occupation as its class; `features=94` has the income in four columns, as the literature."""
    if features not in (92, 94):
        raise InputError(f"adult(features={features}): 92 has the income in two columns, 94 in four.")
    path = data_file(data_dir, BANDIT_FILES["adult"])
    numbers, one_hot, y, names = read_arrays(path, "num", "onehot", "y", "names")
    x = np.hstack([numbers, one_hot])
    if features == 92:
        dotted = [i for i, name in enumerate(names) if str(name).endswith(".")]
        clean = [list(names).index(str(names[i])[:-1]) for i in dotted]
        x[:, clean] += x[:, dotted]
        x = np.delete(x, dotted, axis=1)
    return _table("adult", path, x, y, 14, seed, val_share, test_share)


def _from_one(y: NDArray[Any]) -> NDArray[np.int64]:
    return y.astype(np.int64) - 1


def _table(
    name: str,
    path: Path,
    x: NDArray[Any],
    y: NDArray[Any],
    num_classes: int,
    seed: int,
    val_share: float,
    test_share: float,
    standardise: bool = True,
) -> Data:
    if x.ndim != 2 or len(x) != len(y) or not len(y) or y.min() < 0 or y.max() >= num_classes:
        raise damaged(path, f"it has rows {x.shape} with {len(y)} labels, where {num_classes} classes belong")
    rest, test = split_rows(len(x), test_share, _TEST_SEED)
    train, val = split_rows(len(rest), val_share, seed)
    train, val = rest[train], rest[val]
    columns = x.shape[1]
    mean, std = np.zeros(columns), np.ones(columns)
    if standardise:
        mean = x[train].mean(axis=0, dtype=np.float64)
        std = x[train].std(axis=0, dtype=np.float64)
        std = np.where(std > 0, std, 1.0)
    scaled = x.astype(np.float32)
    if standardise:
        scaled -= mean.astype(np.float32)
        scaled /= std.astype(np.float32)

    def part(rows: NDArray[np.int64]) -> TensorDataset:
        return TensorDataset(torch.from_numpy(scaled[rows]), torch.from_numpy(y[rows].astype(np.int64)))

    return Data(
        name=f"bandits/{name}",
        train=part(train),
        val=part(val),
        test=part(test),
        num_classes=num_classes,
        shape=(columns,),
        mean=torch.from_numpy(mean).float(),
        std=torch.from_numpy(std).float(),
    )
