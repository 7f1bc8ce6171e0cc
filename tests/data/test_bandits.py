"""The bandit tables: encodings by hand on small files, published counts on the real ones."""

import numpy as np
import pytest
import torch

from credent.data import load
from credent.errors import InputError

ALL = {"val_share": 0.0, "test_share": 0.0}


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "bandits"
    folder.mkdir()
    np.savez(folder / "mushroom_onehot.npz", x=np.array([[0, 1], [1, 0], [1, 0]], np.uint8), y=np.array([0, 1, 1]))
    np.savez(
        folder / "shuttle.npz",
        x_train=np.array([[1, 5], [3, 5]], np.int16),
        y_train=np.array([1, 7], np.uint8),
        x_test=np.array([[5, 5]], np.int16),
        y_test=np.array([2], np.uint8),
    )
    np.savez(
        folder / "covtype.npz",
        num_T=np.array([[100, 300]] * 10, np.int16),
        wilderness=np.array([0, 3], np.uint8),
        soil=np.array([39, 1], np.uint8),
        y=np.array([1, 7], np.uint8),
    )
    np.savez(
        folder / "adult_onehot.npz",
        num=np.array([[10], [30]], np.int32),
        onehot=np.array([[1, 0, 0, 0], [0, 0, 0, 1]], np.uint8),
        y=np.array([0, 13], np.uint8),
        names=np.array(["age", "income=<=50K", "income=<=50K.", "income=>50K", "income=>50K."]),
    )
    return tmp_path


def rows(name, directory, **options):
    data = load(f"bandits/{name}", directory, **{**ALL, **options})
    return data, *data.train.tensors


def test_mushrooms_stay_zero_and_one(small):
    data, x, y = rows("mushroom", small)
    assert (x.tolist(), y.tolist()) == ([[0, 1], [1, 0], [1, 0]], [0, 1, 1])
    assert (data.num_classes, data.shape, len(data.val), len(data.test)) == (2, (2,), 0, 0)


def test_shuttle_is_standardised_over_both_parts(small):
    """Column 1, 3, 5: mean 3, variance 8/3; the second is constant and only centred."""
    data, x, y = rows("shuttle", small)
    unit = (3 / 2) ** 0.5
    torch.testing.assert_close(x, torch.tensor([[-unit, 0], [0, 0], [unit, 0]]))
    assert y.tolist() == [0, 6, 1]
    torch.testing.assert_close(x * data.std + data.mean, torch.tensor([[1.0, 5], [3, 5], [5, 5]]))


def test_covertype_has_ten_numbers_four_areas_and_forty_soils(small):
    data, x, y = rows("covertype", small)
    raw = (x * data.std + data.mean).round().long()
    assert x.shape == (2, 54)
    assert (raw[:, :10] == torch.tensor([[100], [300]])).all()
    assert raw[:, 10:].nonzero().tolist() == [[0, 0], [0, 4 + 39], [1, 3], [1, 4 + 1]]
    assert y.tolist() == [0, 6]


def test_the_full_stop_of_adult_is_a_slip_that_may_be_kept(small):
    clean, x, y = rows("adult", small)
    assert (x * clean.std + clean.mean).round().tolist() == [[10, 1, 0], [30, 0, 1]]
    kept, x, _ = rows("adult", small, features=94)
    assert (x * kept.std + kept.mean).round().tolist() == [[10, 1, 0, 0, 0], [30, 0, 0, 0, 1]]
    assert y.tolist() == [0, 13]
    with pytest.raises(InputError, match="92 has the income in two columns"):
        rows("adult", small, features=93)


def test_parts_do_not_overlap_and_set_no_scale(small, tmp_path):
    x = np.arange(100.0)[:, None].astype(np.int16)
    np.savez(tmp_path / "bandits/shuttle.npz", x_train=x[:60], y_train=np.ones(60, int), x_test=x[60:],
             y_test=np.ones(40, int))  # fmt: skip
    data = load("bandits/shuttle", tmp_path, val_share=0.2, test_share=0.25, seed=3)
    parts = [(part.tensors[0] * data.std + data.mean).round().flatten().tolist()
             for part in (data.train, data.val, data.test)]  # fmt: skip
    assert [len(part) for part in parts] == [60, 15, 25]
    assert sorted([*parts[0], *parts[1], *parts[2]]) == list(range(100))
    assert data.mean.item() == pytest.approx(np.mean(parts[0]))
    other = load("bandits/shuttle", tmp_path, val_share=0.2, test_share=0.25, seed=4)
    assert (other.test.tensors[0] * other.std + other.mean).round().flatten().tolist() == parts[2]


def test_damaged_and_absent_files_teach(small):
    np.savez(small / "bandits/shuttle.npz", x_train=np.ones((2, 1)), y_train=np.array([1, 9]), x_test=np.ones((1, 1)),
             y_test=np.array([1]))  # fmt: skip
    with pytest.raises(InputError, match="7 classes belong"):
        rows("shuttle", small)
    (small / "bandits/covtype.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="damaged"):
        rows("covertype", small)
    (small / "bandits/mushroom_onehot.npz").unlink()
    with pytest.raises(InputError, match=r"mushroom_onehot\.npz"):
        rows("mushroom", small)


def test_nothing_in_a_file_is_executed(small):
    np.savez(small / "bandits/mushroom_onehot.npz", x=np.array([{}], dtype=object), y=np.array([0]))
    with pytest.raises(InputError, match="damaged"):
        rows("mushroom", small)


@pytest.mark.parametrize(
    ("name", "options", "shape", "counts"),
    [
        ("mushroom", {}, (8124, 117), [4208, 3916]),
        ("shuttle", {}, (58_000, 9), [45586, 50, 171, 8903, 3267, 10, 13]),
        ("adult", {}, (45_222, 92), [5540, 14, 6020, 5984, 1480, 2046, 2970, 4808, 232, 6008, 976, 5408, 1420, 2316]),
        ("adult", {"features": 94}, (45_222, 94), None),
        pytest.param(
            "covertype",
            {},
            (581_012, 54),
            [211840, 283301, 35754, 2747, 9493, 17367, 20510],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["mushroom", "shuttle", "adult", "adult 94", "covertype"],
)
def test_published_counts(real_data, name, options, shape, counts):
    _, x, y = rows(name, real_data, **options)
    assert x.shape == shape
    if counts is not None:
        assert torch.bincount(y).tolist() == counts
    if name != "mushroom":
        torch.testing.assert_close(x.mean(0), torch.zeros(shape[1]), atol=1e-3, rtol=0)
        torch.testing.assert_close(x.std(0), torch.ones(shape[1]), atol=3e-3, rtol=0)
