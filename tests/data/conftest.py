"""Real data where there is some: CREDENT_DATA, or the directory shared/data beside the repository."""

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

SIBLING = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    named = os.environ.get("CREDENT_DATA")
    directory = Path(named) if named else SIBLING
    if not directory.is_dir():
        pytest.skip("no real data here: set CREDENT_DATA to a directory with the layout of docs/data.md")
    return directory


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole run, so that each real file is decoded once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENT_CACHE", str(cache))


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], None]:
    def write(path: Path, array: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
        path.write_bytes(gzip.compress(header + array.tobytes()))

    return write


@pytest.fixture
def write_planes() -> Callable[[Path, np.ndarray], None]:
    """The encoder of (N, 3, 32, 32) images, written pixel by pixel as the layout describes it."""

    def write(path: Path, images: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        red, green, blue = (images[:, channel].astype(int) for channel in range(3))
        planes = np.stack([red - green, green, blue - green])
        rows = planes.copy()
        rows[..., 1:, :] -= planes[..., :-1, :]
        both = rows.copy()
        both[..., 1:] -= rows[..., :-1]
        path.write_bytes(lzma.compress((both % 256).astype(np.uint8).tobytes()))

    return write
