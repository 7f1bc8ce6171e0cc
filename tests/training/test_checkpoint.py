"""Checkpoints are there whole or not at all, and reading one runs nothing."""

import os

import pytest
import torch

from credent.errors import CheckpointError, CredentError
from credent.training import checkpoint


def names(directory):
    return sorted(p.name for p in directory.iterdir())


def test_the_newest_comes_back_and_two_are_kept(tmp_path, same):
    assert checkpoint.load(tmp_path / "none") is None
    for step in (3, 12, 100):
        checkpoint.save(tmp_path, step, {"w": torch.full((2,), float(step)), "step": step, "parts": [1, {"a": None}]})
    assert names(tmp_path) == ["step-000000012.pt", "step-000000100.pt"]
    state = checkpoint.load(tmp_path)
    assert same(
        {k: state[k] for k in ("w", "step", "parts")},
        {"w": torch.full((2,), 100.0), "step": 100, "parts": [1, {"a": None}]},
    )


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "zeros", "foreign"])
def test_a_damaged_newest_is_passed_over(tmp_path, damage):
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {"w": torch.randn(100), "step": step})
    newest = tmp_path / "step-000000002.pt"
    whole = newest.read_bytes()
    if damage == "foreign":
        torch.save([1, 2], newest)
    else:
        newest.write_bytes(
            {"truncated": whole[:-50], "empty": b"", "garbage": os.urandom(500), "zeros": bytes(len(whole))}[damage]
        )
    assert checkpoint.load(tmp_path)["step"] == 1
    (tmp_path / "step-000000001.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .*000002\.pt: .*000001\.pt: .*another directory"):
        checkpoint.load(tmp_path)


def test_other_files_are_nobody_s_business(tmp_path):
    for name in ("step-5.pt", "notes.txt", "step-000000009.pt.bak", ".step-000000009.pt.77.part"):
        (tmp_path / name).write_text("mine")
    assert checkpoint.load(tmp_path) is None
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, {"step": step})
    assert names(tmp_path) == [
        "notes.txt",
        "step-000000002.pt",
        "step-000000003.pt",
        "step-000000009.pt.bak",
        "step-5.pt",
    ]  # what a killed process left half-written is gone


def test_a_write_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, {"step": 1})

    def fail(state, path):
        path.write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc] file write failed")  # as torch says it

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(CredentError, match=r"cannot write .*step-000000002\.pt.*untouched"):
        checkpoint.save(tmp_path, 2, {"step": 2})
    assert names(tmp_path) == ["step-000000001.pt"]
    assert checkpoint.load(tmp_path)["step"] == 1
