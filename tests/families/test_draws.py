import errno
import os
import pickle

import numpy as np
import pytest
import torch

from credent.errors import CheckpointError, CredentError, InputError
from credent.families import Draws
from credent.families.draws import DrawFiles


def chain(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [
        {"a.weight": torch.randn(3, 2, generator=g, dtype=torch.float64) + 1e3, "a.bias": torch.full((1,), float(i))}
        for i in range(n)
    ]


def indices(draws):
    return [int(params["a.bias"]) for params in draws]


@pytest.fixture(params=["memory", "disk"])
def stored(request, tmp_path):
    """A function from a chain to what holds it."""

    def store(draws):
        if request.param == "memory":
            return draws
        files = DrawFiles(tmp_path / "draws")
        for params in draws:
            files.append(params)
        return files

    return store


@pytest.mark.parametrize("n", [1, 2, 7])
def test_moments_against_numpy(stored, n):
    draws = chain(n)
    q = Draws(stored(draws))
    for k in draws[0]:
        stacked = np.stack([params[k].numpy() for params in draws])
        assert q.mean()[k].numpy() == pytest.approx(stacked.mean(0), rel=1e-12)
        assert q.stddev()[k].numpy() == pytest.approx(stacked.std(0), rel=1e-9, abs=1e-12)


def test_draws_come_in_order_and_unchanged(stored):
    draws = chain(12)  # more than ten: file names are numbers, not words
    q = Draws(stored(draws))
    assert len(q) == 12
    assert indices(q.draws()) == indices(q) == list(range(12))
    assert int(q[3]["a.bias"]) == 3
    for params, own in zip(q.draws(), draws, strict=True):
        assert set(params) == set(own)
        for k in own:
            assert torch.equal(params[k], own[k])
            assert params[k].dtype == own[k].dtype


def test_moments_leave_the_draws_alone():
    draws = chain(3)
    before = [{k: w.clone() for k, w in params.items()} for params in draws]
    Draws(draws).mean()
    for params, own in zip(before, draws, strict=True):
        assert all(torch.equal(params[k], own[k]) for k in own)


@pytest.mark.parametrize(
    ("n", "expected"), [(None, range(10)), (10, range(10)), (99, range(10)), (5, [0, 2, 4, 6, 8]), (4, [0, 2, 5, 7])]
)
def test_a_subset_is_evenly_spaced(stored, n, expected):
    assert indices(Draws(stored(chain(10))).draws(n)) == list(expected)


def test_a_seed_chooses_a_subset_at_random(stored):
    q = Draws(stored(chain(10)))
    chosen = [indices(q.draws(4, seed=s)) for s in range(200)]
    assert chosen == [indices(q.draws(4, seed=s)) for s in range(200)]
    assert all(each == sorted(set(each)) and len(each) == 4 for each in chosen)
    counts = np.bincount(np.ravel(chosen), minlength=10)  # hypergeometric: mean 80, standard deviation sqrt(48)
    assert np.abs(counts - 80).max() < 4 * np.sqrt(48)
    assert indices(q.draws(10, seed=0)) == list(range(10))


def test_sample_stacks_in_front(stored):
    draws = chain(4)
    drawn = Draws(stored(draws)).sample(4)
    assert torch.equal(drawn["a.weight"], torch.stack([params["a.weight"] for params in draws]))


def test_no_draws_at_all_is_an_error_that_teaches(tmp_path):
    for nothing in ([], DrawFiles(tmp_path), DrawFiles(tmp_path / "absent")):
        with pytest.raises(InputError, match="let the chain run longer or thin it less"):
            Draws(nothing)


# -- on disk ----------------------------------------------------------------------------------------------------------


def on_disk(directory, n=3):
    files = DrawFiles(directory)
    for params in chain(n):
        files.append(params)
    return files


def test_files_outlive_the_object_and_go_on(tmp_path):
    on_disk(tmp_path)
    again = DrawFiles(tmp_path)
    again.append({"a.weight": torch.zeros(3, 2), "a.bias": torch.tensor([3.0])})
    assert indices(DrawFiles(tmp_path)) == [0, 1, 2, 3]
    assert int(again[-1]["a.bias"]) == 3
    with pytest.raises(IndexError):
        again[4]


def test_truncate_keeps_the_first(tmp_path):
    files = on_disk(tmp_path, 5)
    files.truncate(3)
    assert indices(files) == [0, 1, 2]
    files.truncate(9)
    assert len(files) == 3
    files.append({"a.bias": torch.tensor([7.0])})
    assert indices(files) == [0, 1, 2, 7]
    files.truncate(0)
    assert len(files) == 0


def test_a_number_is_written_in_its_place(tmp_path):
    """The others stay, whether the number is new, there already, or one that was deleted."""
    files = on_disk(tmp_path, 4)
    (tmp_path / "00000001.safetensors").unlink()
    for number, value in ((2, 20), (1, 10), (6, 60)):
        files.write(number, {"a.bias": torch.tensor([float(value)])})
    assert indices(files) == [0, 10, 20, 3, 60]
    assert files.numbers() == [0, 1, 2, 3, 6]
    files.truncate(3)
    assert indices(files) == [0, 10, 20]


def test_other_files_are_not_draws(tmp_path):
    files = on_disk(tmp_path)
    (tmp_path / "posterior.safetensors").write_bytes(b"")
    (tmp_path / ".00000009.safetensors.1.part").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("")
    assert indices(files) == [0, 1, 2]


def test_parameters_that_require_gradients_and_share_memory_are_stored(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    files = DrawFiles(tmp_path)
    files.append({"view": base.T, "same": base[1:], "leaf": base.clone().requires_grad_()})
    stored = files[0]
    assert torch.equal(stored["view"], base.T)
    assert torch.equal(stored["same"], base[1:])
    assert not stored["leaf"].requires_grad


@pytest.mark.parametrize("size", [0, 4, 60, -1])
def test_a_truncated_file_is_named(tmp_path, size):
    files = on_disk(tmp_path)
    path = tmp_path / "00000001.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    assert int(files[0]["a.bias"]) == 0
    for use in (lambda: files[1], lambda: list(Draws(files).draws()), Draws(files).mean):
        with pytest.raises(CheckpointError, match=r"00000001\.safetensors is not a whole draw.*delete it") as caught:
            use()
        assert str(path) in str(caught.value)


def test_deleting_a_draw_loses_no_other(tmp_path):
    files = on_disk(tmp_path)
    (tmp_path / "00000001.safetensors").unlink()  # as the error about a broken draw advises
    files.append({"a.bias": torch.tensor([3.0])})
    assert indices(files) == [0, 2, 3]


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, function):
    files = on_disk(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, function, full)
        with pytest.raises(CredentError, match=r"00000003\.safetensors.*No space left.*free some space"):
            files.append(chain(1)[0])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    files.append({"a.bias": torch.tensor([3.0])})
    assert indices(files) == [0, 1, 2, 3]


def mapped(monkeypatch):
    """The names of the files that are mapped from now on."""
    names, from_file = [], torch.from_file

    def counted(path, **options):
        names.append(path.rsplit("/")[-1][:8])
        return from_file(path, **options)

    monkeypatch.setattr(torch, "from_file", counted)
    return names


def test_small_draws_are_mapped_once(tmp_path, monkeypatch):
    files = DrawFiles(tmp_path)
    for i in range(3):
        files.append({"w": torch.full((4,), float(i))})
    q, names = Draws(tmp_path), mapped(monkeypatch)
    for _ in range(2):
        assert [w["w"][0].item() for w in q.draws()] == [0.0, 1.0, 2.0]
    assert names == ["00000000", "00000001", "00000002"]
    again = pickle.loads(pickle.dumps(q))
    assert [w["w"][0].item() for w in again.draws()] == [0.0, 1.0, 2.0]


def test_a_draw_that_was_written_to_or_replaced_is_read_anew(tmp_path):
    files = DrawFiles(tmp_path)
    files.append({"w": torch.zeros(4)})
    q = Draws(tmp_path)
    q[0]["w"][2] = 7.0
    assert torch.equal(q[0]["w"], torch.zeros(4))
    DrawFiles(tmp_path).write(0, {"w": torch.ones(4)})
    assert torch.equal(q[0]["w"], torch.ones(4))
    q[0]["w"] = torch.zeros(4)
    assert torch.equal(q[0]["w"], torch.ones(4))


def test_no_more_maps_are_kept_than_there_is_room_for(tmp_path, monkeypatch):
    files = DrawFiles(tmp_path)
    for i in range(3):
        files.append({"w": torch.full((100,), float(i))})
    size = (tmp_path / "00000000.safetensors").stat().st_size
    monkeypatch.setattr("credent.families.draws._KEPT_BYTES", 2 * size)
    q, names = Draws(tmp_path), mapped(monkeypatch)
    for _ in range(2):
        assert [w["w"][0].item() for w in q.draws()] == [0.0, 1.0, 2.0]
    assert names == ["00000000", "00000001", "00000002", "00000002"]
