"""Writing files so that a reader, or a machine that loses power, sees the old content or the new, never a part.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder) / "a.txt"
...     write_atomically(path, lambda p: p.write_text("whole"))
...     path.read_text(), sorted(p.name for p in Path(folder).iterdir())
('whole', ['a.txt'])
"""

import os
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from credent.errors import CredentError


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary neighbour of `path`, force it to disk, then put it in the place of `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        mode = temporary.stat().st_mode  # as any new file has it; safetensors' own are their owner's alone
        write(temporary)
        temporary.chmod(mode)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError, RuntimeError) as error:  # the last two: a full disk, as their writers say it
        temporary.unlink(missing_ok=True)
        raise CredentError(
            f"cannot write {path}: {error}. What was there before is untouched;"
            " free some space or choose another directory, and go on from the last checkpoint."
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the rename itself reaches the disk
    finally:
        os.close(directory)
