"""Where data files live: the directory that was passed, else the one that the environment variable CREDENT_DATA names.

    DIR/MNIST/raw/*.gz   DIR/FashionMNIST/raw/*.gz   DIR/{CIFAR10,CIFAR100,SVHN}/   DIR/uci_regression/*.npz
    DIR/bandits/*.npz

>>> data_directory("somewhere").name
'somewhere'
"""

import os
from pathlib import Path

from credent.errors import InputError

HOW_TO_GET_DATA = (
    "DIR holds MNIST/raw/*.gz, FashionMNIST/raw/*.gz, CIFAR10/, CIFAR100/, SVHN/, uci_regression/*.npz and "
    "bandits/*.npz (docs/data.md has the layout). `credent data download mnist --data-dir DIR`, or in Python "
    '`credent.data.download("mnist", "DIR")`, fetches MNIST; fashion_mnist likewise. '
    "digits, cubic, sine_gap and heteroscedastic are built in and need no directory."
)


def data_directory(data_dir: str | Path | None) -> Path:
    """The directory to read from: `data_dir`, or CREDENT_DATA when that is None."""
    named = data_dir or os.environ.get("CREDENT_DATA")
    if not named:
        raise InputError(
            "This data set is read from files, and no data directory was named. Write data_dir=DIR, or --data-dir DIR "
            f"on the command line, or set the environment variable CREDENT_DATA=DIR. {HOW_TO_GET_DATA}"
        )
    return Path(named).expanduser()


def data_file(data_dir: str | Path | None, name: str) -> Path:
    """The path of file `name` (relative, as in the layout above), which must exist."""
    root = data_directory(data_dir)
    if not (root / name).is_file():
        raise InputError(f"There is no file {name} in the data directory {root} (DIR below). {HOW_TO_GET_DATA}")
    return root / name
