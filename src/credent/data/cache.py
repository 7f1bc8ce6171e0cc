"""Arrays that are slow to decode, kept as .npy files in the user's cache directory: CREDENT_CACHE or ~/.cache/credent.

A file is named after the SHA-256 of its source, so a changed source is never answered from an old file; it ends with
the SHA-256 of its own bytes (which np.load ignores), so a truncated or damaged file is noticed and written again. It
appears by rename, whole or not at all. Where nothing can be written, nothing is kept.
"""

import hashlib
import io
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
DIGEST_BYTES = 32


def cache_directory() -> Path:
    """CREDENT_CACHE, or ~/.cache/credent."""
    return Path(os.environ.get("CREDENT_CACHE") or "~/.cache/credent").expanduser()


def cached(source: Path, decode: Callable[[bytes], Pixels]) -> Pixels:
    """`decode(content of source)`, from the cache when it is there and whole."""
    content = source.read_bytes()
    path = cache_directory() / f"{decode.__name__}-{hashlib.sha256(content).hexdigest()}.npy"
    kept = _read(path)
    if kept is not None:
        return kept
    array = decode(content)
    _write(path, array)
    return array


def _read(path: Path) -> Pixels | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    body, digest = memoryview(content)[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        return None
    array: Pixels = np.load(io.BytesIO(body), allow_pickle=False)
    return array


def _write(path: Path, array: Pixels) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    body = buffer.getbuffer()
    with suppress(OSError):  # a full disk or a read-only home costs speed, not the result
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            temporary = Path(file.name)
            try:
                file.write(body)
                file.write(hashlib.sha256(body).digest())
                file.close()
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
