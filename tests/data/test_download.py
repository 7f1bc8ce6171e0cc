"""Everything against a server on loopback; nothing here asks the internet."""

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from credent.data.download import SOURCES, download, fetch
from credent.data.images import IDX_FILES
from credent.errors import CredentError, InputError

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """/ranged knows ranges, /plain does not, /broken breaks off after a third, /missing is 404, /files/* are files."""

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range"))
        content = CONTENT
        if self.path.startswith("/files/"):
            content = (self.server.folder / self.path.removeprefix("/files/")).read_bytes()
        if self.path == "/missing":
            self.send_error(404)
            return
        start = 0
        if self.path in ("/ranged", "/broken") and "Range" in self.headers:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = min(start + len(content) // 3, len(content)) if self.path == "/broken" else len(content)
        self.wfile.write(content[start:end])

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.ranges = []
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_good_file_arrives_under_its_name_alone(server, tmp_path):
    path = tmp_path / "new" / "file"
    fetch(f"{server.url}/plain", path, SHA256)
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_and_right_is_not_fetched_again(server, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    fetch(f"{server.url}/missing", tmp_path / "file", SHA256)
    assert server.ranges == []
    (tmp_path / "file").write_bytes(b"old")
    fetch(f"{server.url}/plain", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_checksum_removes_what_came_and_teaches(server, tmp_path):
    with pytest.raises(InputError, match="mirror=URL") as caught:
        fetch(f"{server.url}/plain", tmp_path / "file", "0" * 64)
    assert SHA256 in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_transfer_is_kept_and_goes_on(server, tmp_path):
    path, third = tmp_path / "file", len(CONTENT) // 3
    with pytest.raises(CredentError, match=f"ended after {third:,} of {len(CONTENT):,} bytes"):
        fetch(f"{server.url}/broken", path, SHA256)
    assert not path.exists()
    assert (tmp_path / "file.part").stat().st_size == third
    with pytest.raises(CredentError, match=f"ended after {2 * third:,} of"):
        fetch(f"{server.url}/broken", path, SHA256)
    fetch(f"{server.url}/ranged", path, SHA256)
    assert path.read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={third}-", f"bytes={2 * third}-"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_server_without_ranges_starts_over(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    fetch(f"{server.url}/plain", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_was_already_whole_is_only_renamed(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT)
    fetch(f"{server.url}/ranged", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert not (tmp_path / "file.part").exists()


def test_a_bad_part_is_removed_so_that_the_next_call_starts_clean(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    with pytest.raises(InputError, match="SHA-256"):
        fetch(f"{server.url}/ranged", tmp_path / "file", SHA256)
    fetch(f"{server.url}/ranged", tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_not_found_teaches(server, tmp_path):
    with pytest.raises(CredentError, match=r"answered 404 .*mirror=URL"):
        fetch(f"{server.url}/missing", tmp_path / "file", SHA256)
    assert list(tmp_path.iterdir()) == []


def test_no_server_teaches(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: refused
        with pytest.raises(CredentError, match=r"could not be read .*by hand"):
            fetch(f"http://127.0.0.1:{closed.getsockname()[1]}/x", tmp_path / "file", SHA256)


def test_an_unknown_name_teaches(tmp_path):
    with pytest.raises(InputError, match="only mnist and fashion_mnist can be fetched"):
        download("cifar10", tmp_path)


@pytest.mark.parametrize("name", SOURCES)
def test_the_sources_name_the_files_that_the_readers_read(name):
    assert tuple(SOURCES[name].files) == IDX_FILES
    assert all(len(sha256) == 64 for sha256 in SOURCES[name].files.values())
    assert SOURCES[name].mirror.startswith("https://")


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST/raw"), ("fashion_mnist", "FashionMNIST/raw")])
def test_the_real_files_pass_their_checksums(server, real_data, tmp_path, name, folder):
    server.folder = real_data / folder
    assert download(name, tmp_path, mirror=f"{server.url}/files/") == tmp_path / folder
    assert sorted(path.name for path in (tmp_path / folder).iterdir()) == sorted(IDX_FILES)
    for file in IDX_FILES:
        assert (tmp_path / folder / file).read_bytes() == (real_data / folder / file).read_bytes()
