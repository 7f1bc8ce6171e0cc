"""Arrays out of an .npz archive, or an error that says which file is damaged.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     np.savez(Path(folder) / "a.npz", x=np.arange(3))
...     read_arrays(Path(folder) / "a.npz", "x")
[array([0, 1, 2])]
"""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from credent.data.directory import HOW_TO_GET_DATA
from credent.errors import InputError


def read_arrays(path: Path, *keys: str) -> list[NDArray[Any]]:
    """The arrays `keys` of the archive at `path`; nothing in it is executed."""
    try:
        # opened here, because np.load leaves a damaged file open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return [archive[key] for key in keys]
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, TypeError) as error:
        raise damaged(path, f"the arrays {', '.join(keys)} cannot be read from it ({error})") from error


def damaged(path: Path, reason: str) -> InputError:
    """The error for a data file that is there but cannot be read."""
    return InputError(f"The file {path} is damaged: {reason}. Remove it and fetch it again. {HOW_TO_GET_DATA}")
