"""What stays of a cell on disk: KEY.json when it has ended, KEY.error.json when it has failed.

    {"cell": class, "fields": {...}, "result": {...}, "seconds": s, "credent": version, "commit": hash or null,
     "torch": version, "cores": n, "finished": time}

A file is written whole or not at all, by the process that ran the cell, and never written twice.
"""

import dataclasses
import json
import subprocess
import traceback
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import torch

from credent.cells import strict
from credent.cells.cell import Cell, values
from credent.errors import CredentError
from credent.files import write_atomically


@dataclass(frozen=True)
class Origin:
    """Where numbers come from: versions, the commit of the source if it stands in a repository, and the machine."""

    credent: str
    commit: str | None
    torch: str
    cores: int

    @classmethod
    def here(cls) -> "Origin":
        """This process's own."""
        return cls(version("credent"), _commit(), torch.__version__, joblib.cpu_count())


@dataclass(frozen=True)
class Record:
    """What a finished cell returned, how long it took, and where and when."""

    result: dict[str, Any]
    seconds: float
    origin: Origin
    finished: str


def path_of(cell: Cell, directory: Path) -> Path:
    """The file of a finished cell."""
    return directory / f"{cell.key}.json"


def write(cell: Cell, directory: Path, result: dict[str, Any], seconds: float, origin: Origin) -> None:
    """Keep a result; what failed before is forgotten."""
    body = {
        **_head(cell),
        "result": strict.plain(result, "the result"),
        "seconds": round(seconds, 3),
        **dataclasses.asdict(origin),
        "finished": _now(),
    }
    _write(path_of(cell, directory), body)
    _error_path(cell, directory).unlink(missing_ok=True)


def write_failure(cell: Cell, directory: Path, error: BaseException, origin: Origin) -> str:
    """Keep why a cell failed, with the traceback; the answer is the error in one line."""
    told = f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))
    body = {**_head(cell), "error": told, "traceback": trace, **dataclasses.asdict(origin), "finished": _now()}
    _write(_error_path(cell, directory), body)
    return told


def read(cell: Cell, directory: Path) -> Record | None:
    """The record of a finished cell, or None; a file that cannot be this cell's is an error."""
    path = path_of(cell, directory)
    try:
        found = strict.loads(path.read_text(encoding="utf-8"))
        head = {name: found.pop(name) for name in ("cell", "fields")}
        record = Record(
            found.pop("result"), found.pop("seconds"), finished=found.pop("finished"), origin=Origin(**found)
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CredentError(
            f"{path} is not the record of a finished cell ({type(error).__name__}: {error}): delete it, and the cell is"
            " run again."
        ) from error
    if strict.plain(head) != _head(cell):
        raise CredentError(
            f"{path} holds the result of another cell than {cell}: delete it, and the cell is run again."
        )
    return record


def _write(path: Path, body: dict[str, Any]) -> None:
    text = json.dumps(body, indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def _error_path(cell: Cell, directory: Path) -> Path:
    return directory / f"{cell.key}.error.json"


def _head(cell: Cell) -> dict[str, Any]:
    return {"cell": type(cell).__name__, "fields": values(cell)}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _commit() -> str | None:
    """The commit that this file is part of, "-dirty" if the tree has changes; None outside of a repository."""
    here = Path(__file__)
    try:
        for command in (
            ("git", "ls-files", "--error-unmatch", here.name),  # installed below somebody else's repository is no part
            ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
        ):
            answer = subprocess.run(command, cwd=here.parent, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
