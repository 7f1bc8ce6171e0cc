"""Data sets by name, as tensors that are ready to train on.

`load(name)` gives a `Data` of train, validation and test parts; `batches(data.train, 128)` walks through one;
`names()` says which sets there are and which can be loaded here. digits and the toy curves are built in; the rest is
read from the directory that `data_dir` or CREDENT_DATA names (docs/data.md).

>>> data = load("digits")
>>> x, y = next(iter(batches(data.train, batch_size=32)))
>>> x.shape, y.shape
(torch.Size([32, 1, 8, 8]), torch.Size([32]))
>>> [each.name for each in names() if each.available][:4]
['digits', 'cubic', 'sine_gap', 'heteroscedastic']
"""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from credent.data.bandits import BANDIT_FILES, BANDITS, adult, covertype, mushroom, shuttle
from credent.data.dataset import Data
from credent.data.digits import digits
from credent.data.directory import data_directory
from credent.data.download import download
from credent.data.images import IDX_FILES, cifar10, cifar100, fashion_mnist, mnist, svhn
from credent.data.loading import batches
from credent.data.toy import cubic, heteroscedastic, sine_gap
from credent.data.uci import UCI, uci
from credent.errors import InputError

__all__ = ["Data", "Listing", "batches", "download", "load", "names"]


@dataclass(frozen=True)
class _Set:
    read: Callable[..., Data]
    description: str
    files: tuple[str, ...] = ()


_PLANE_FILES = ("train_images.xz", "test_images.xz", "labels.npz")
_CIFAR10_FILES = ("train_images_1.xz", "test_images.xz", "labels.npz")

_SETS = {
    "digits": _Set(digits, "handwritten digits, 8x8, 1,797 images, built in"),
    "cubic": _Set(cubic, "x^3 with noise, 20 points, built in"),
    "sine_gap": _Set(sine_gap, "a sine seen in two clusters with a gap between, 50 points, built in"),
    "heteroscedastic": _Set(heteroscedastic, "a sine with noise that grows with x, 200 points, built in"),
    "mnist": _Set(mnist, "handwritten digits, 28x28", tuple(f"MNIST/raw/{file}" for file in IDX_FILES)),
    "fashion_mnist": _Set(fashion_mnist, "clothing, 28x28", tuple(f"FashionMNIST/raw/{file}" for file in IDX_FILES)),
    "cifar10": _Set(cifar10, "10 kinds of objects, 32x32 RGB", tuple(f"CIFAR10/{file}" for file in _CIFAR10_FILES)),
    "cifar100": _Set(cifar100, "100 kinds of objects, 32x32 RGB", tuple(f"CIFAR100/{file}" for file in _PLANE_FILES)),
    "svhn": _Set(svhn, "street-view house numbers, 32x32 RGB", tuple(f"SVHN/{file}" for file in _PLANE_FILES)),
    **{
        f"uci/{name}": _Set(partial(uci, name), description, (f"uci_regression/{name}.npz",))
        for name, description in UCI.items()
    },
    **{
        f"bandits/{name}": _Set(read, BANDITS[name], (BANDIT_FILES[name],))
        for name, read in {"mushroom": mushroom, "shuttle": shuttle, "covertype": covertype, "adult": adult}.items()
    },
}


class Listing(NamedTuple):
    """One line of `names()`."""

    name: str
    description: str
    available: bool


def load(name: str, data_dir: str | Path | None = None, seed: int = 0, **options: Any) -> Data:
    """The set `name`; `seed` moves rows between training and validation, or draws a toy curve's points.

    `data_dir` is for the sets that are read from files. `options` are those of the set's own function: `val_share` for
    images and UCI sets, `split` for UCI sets.
    """
    if name not in _SETS:
        close = difflib.get_close_matches(name.lower(), _SETS, n=2)
        hint = "Did you mean " + " or ".join(f'load("{each}")' for each in close) + "? " if close else ""
        raise InputError(f"load({name!r}): no such data set. {hint}There are: {', '.join(_SETS)}.")
    read = _SETS[name].read
    known = [each for each in inspect.signature(read).parameters if each not in ("data_dir", "seed")]
    unknown = [option for option in options if option not in known]
    if unknown:
        listed = ", ".join(known) if known else "none"
        raise InputError(
            f"load({name!r}, {unknown[0]}=...): {name} has no such option. Beside seed it takes: {listed}."
        )
    directory = {"data_dir": data_dir} if _SETS[name].files else {}
    return read(**directory, seed=seed, **options)


def names(data_dir: str | Path | None = None) -> list[Listing]:
    """Every name that `load` takes, a line about it, and whether its files are here."""
    try:
        root: Path | None = data_directory(data_dir)
    except InputError:
        root = None

    def available(files: tuple[str, ...]) -> bool:
        return not files or (root is not None and all((root / file).is_file() for file in files))

    return [Listing(name, each.description, available(each.files)) for name, each in _SETS.items()]
