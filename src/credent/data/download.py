"""Fetch MNIST and Fashion-MNIST over https, checked by SHA-256, resumable.

A file is written as NAME.part and renamed when its checksum is right, so a file under its own name is always whole.
After a broken transfer, calling again goes on from the bytes in NAME.part (an HTTP range request; a server that knows
none starts over). A wrong checksum removes NAME.part.

MNIST: Y. LeCun, C. Cortes, C. Burges. Fashion-MNIST: H. Xiao, K. Rasul, R. Vollgraf 2017, MIT licence.
"""

import hashlib
import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from credent.data.directory import data_directory
from credent.errors import CredentError, InputError

CHUNK_BYTES = 1 << 16
TIMEOUT_SECONDS = 30
RANGE_NOT_SATISFIABLE, PARTIAL_CONTENT = 416, 206


@dataclass(frozen=True)
class Source:
    """Where a set's files are, which folder of the data directory they belong in, and their SHA-256."""

    mirror: str
    folder: str
    files: dict[str, str]


SOURCES = {
    "mnist": Source(
        mirror="https://ossci-datasets.s3.amazonaws.com/mnist",
        folder="MNIST/raw",
        files={
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    "fashion_mnist": Source(
        mirror="https://fashion-mnist.s3.eu-central-1.amazonaws.com",
        folder="FashionMNIST/raw",
        files={
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
}


def download(name: str, data_dir: str | Path | None = None, mirror: str | None = None) -> Path:
    """Bring the files of `name` into the data directory; files that are there and right are kept. Returns the folder.

    `mirror` is the URL of a folder with the same files; they are checked all the same.
    """
    if name not in SOURCES:
        raise InputError(
            f"download({name!r}): only {' and '.join(SOURCES)} can be fetched. The other sets must be put into "
            "the data directory by hand; docs/data.md has the layout."
        )
    source = SOURCES[name]
    folder = data_directory(data_dir) / source.folder
    for file, sha256 in source.files.items():
        fetch(f"{(mirror or source.mirror).rstrip('/')}/{file}", folder / file, sha256)
    return folder


def fetch(url: str, path: Path, sha256: str) -> None:
    """Bring one file from `url` to `path`, unless the right one is there already."""
    if path.is_file() and _sha256(path) == sha256:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    _transfer(url, part)
    found = _sha256(part)
    if found != sha256:
        part.unlink()
        raise InputError(
            f"{url} came with SHA-256 {found}, and {path.name} has {sha256}: what came is another or a damaged file, "
            "and was removed. Try again; if that does not help, name another folder of the same files with mirror=URL."
        )
    part.replace(path)


def _transfer(url: str, part: Path) -> None:
    """Append to `part` what is missing of `url`."""
    offset = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            resumed = response.status == PARTIAL_CONTENT
            offset = offset if resumed else 0
            length = response.headers["Content-Length"]
            total = offset + int(length) if length else None
            with part.open("ab" if resumed else "wb") as file:
                _copy(response, file, part.stem, offset, total)
                size = file.tell()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == RANGE_NOT_SATISFIABLE:
            return  # nothing is missing: `part` was complete before it could be renamed, and its checksum will tell
        raise CredentError(
            f"{url} answered {error.code} {error.reason}. Name another folder of the same files with mirror=URL, "
            f"or put {part.stem} into {part.parent} by hand."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise CredentError(
            f"{url} could not be read ({error}). Try again, the transfer goes on where it stopped; or name "
            f"another folder of the same files with mirror=URL; or put {part.stem} into {part.parent} by hand."
        ) from error
    if total is not None and size < total:
        raise CredentError(
            f"{url} ended after {size:,} of {total:,} bytes. What came is kept in {part}; "
            "call again to go on from there."
        )


def _copy(response: http.client.HTTPResponse, file: BinaryIO, name: str, offset: int, total: int | None) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, completed=offset, total=total)
        while chunk := response.read(CHUNK_BYTES):
            file.write(chunk)
            progress.advance(task, len(chunk))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
