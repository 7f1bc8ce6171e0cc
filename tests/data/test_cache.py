from pathlib import Path

import numpy as np
import pytest

from credent.data.cache import cache_directory, cached


class Decoder:
    """Counts its calls, so that a hit can be told from a miss."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, content: bytes) -> np.ndarray:
        self.calls += 1
        return np.frombuffer(content * 3, np.uint8).reshape(3, -1)

    __name__ = "decoder"


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDENT_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "source"
    source.write_bytes(bytes(range(200)))
    return source, Decoder(), tmp_path / "cache"


def the_file(folder: Path) -> Path:
    (file,) = folder.iterdir()  # and so no temporary file is left
    return file


def test_the_second_reading_is_a_hit_with_the_same_values(case):
    source, decode, folder = case
    first, second = cached(source, decode), cached(source, decode)
    assert decode.calls == 1
    assert np.array_equal(first, second)
    assert np.array_equal(np.load(the_file(folder), allow_pickle=False), first)


def test_a_changed_source_is_decoded_again(case):
    source, decode, _ = case
    cached(source, decode)
    source.write_bytes(bytes(200))
    assert cached(source, decode).max() == 0
    assert decode.calls == 2


@pytest.mark.parametrize("damage", ["truncate", "empty", "header", "middle", "digest", "longer"])
def test_a_damaged_file_is_noticed_and_rebuilt(case, damage):
    source, decode, folder = case
    right = cached(source, decode)
    content = bytearray(the_file(folder).read_bytes())
    match damage:
        case "truncate":
            content = content[: len(content) // 2]
        case "empty":
            content = bytearray()
        case "longer":
            content += b"x"
        case _:
            content[{"header": 3, "middle": 300, "digest": -1}[damage]] ^= 1
    the_file(folder).write_bytes(content)
    assert np.array_equal(cached(source, decode), right)
    assert decode.calls == 2
    assert np.array_equal(cached(source, decode), right)
    assert decode.calls == 2


def test_where_nothing_can_be_written_the_result_still_comes(case, monkeypatch):
    source, decode, _ = case
    monkeypatch.setenv("CREDENT_CACHE", str(source))  # a file, where a directory would have to be
    assert cached(source, decode).shape == (3, 200)
    assert cached(source, decode).shape == (3, 200)
    assert decode.calls == 2


def test_a_failed_write_leaves_no_temporary_file(case, monkeypatch):
    source, decode, folder = case

    def full(self, target):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert cached(source, decode).shape == (3, 200)
    assert list(folder.iterdir()) == []


def test_the_default_is_in_the_users_home(monkeypatch, tmp_path):
    monkeypatch.delenv("CREDENT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "credent"
