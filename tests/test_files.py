import errno
import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from credent.errors import CredentError
from credent.files import write_atomically


def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def content(folder: Path):
    return {p.name: p.read_text() for p in folder.iterdir()}


def test_writes_whole_files_and_makes_their_directory(tmp_path):
    path = tmp_path / "a" / "b" / "c.txt"
    write_atomically(path, lambda p: p.write_text("one"))
    write_atomically(path, lambda p: p.write_text("two"))
    assert content(path.parent) == {"c.txt": "two"}


def test_a_file_may_be_read_by_whom_others_may(tmp_path):
    (tmp_path / "other").touch()
    write_atomically(tmp_path / "c", lambda p: save_file({"w": torch.zeros(2)}, p))
    assert (tmp_path / "c").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_old_content_stands_until_the_new_is_whole(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("old")

    def write(temporary):
        temporary.write_text("part")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent  # a rename across disks would not be atomic
        temporary.write_text("new")

    write_atomically(path, write)
    assert content(tmp_path) == {"c.txt": "new"}


def test_content_is_on_disk_before_it_takes_the_place_of_the_old(tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, os.replace

    def kind(fd):
        return "directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"

    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(kind(fd)), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("replace"), replace(a, b)))
    write_atomically(tmp_path / "c.txt", lambda p: p.write_text("new"))
    assert events == ["file", "replace", "directory"]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, function):
    path = tmp_path / "c.txt"
    path.write_text("old")
    with monkeypatch.context() as patched:
        patched.setattr(os, function, full)
        with pytest.raises(CredentError, match="untouched") as caught:
            write_atomically(path, lambda p: p.write_text("new"))
    assert content(tmp_path) == {"c.txt": "old"}
    assert str(path) in str(caught.value)
    assert "No space left" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("error", [OSError("disk"), SafetensorError("disk"), RuntimeError("disk")])
def test_a_writer_that_fails_midway_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "c.txt"
    path.write_text("old")

    def write(temporary):
        temporary.write_text("part")
        raise error

    with pytest.raises(CredentError, match=r"cannot write .*disk") as caught:
        write_atomically(path, write)
    assert caught.value.__cause__ is error
    assert content(tmp_path) == {"c.txt": "old"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, TypeError])
def test_other_exceptions_pass_and_leave_no_part(tmp_path, error):
    path = tmp_path / "c.txt"
    path.write_text("old")

    def write(temporary):
        temporary.write_text("part")
        raise error

    with pytest.raises(error):
        write_atomically(path, write)
    assert content(tmp_path) == {"c.txt": "old"}
