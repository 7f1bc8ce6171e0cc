import numpy as np
import pytest
import torch

from credent.data.dataset import regression, split_rows
from credent.errors import InputError


def test_split_is_a_partition_that_the_seed_decides():
    train, val = split_rows(1000, val_share=0.2, seed=3)
    assert len(val) == 200
    assert sorted([*train, *val]) == list(range(1000))
    again, other = split_rows(1000, 0.2, seed=3)[1], split_rows(1000, 0.2, seed=4)[1]
    assert np.array_equal(val, again)
    assert not np.array_equal(val, other)
    assert 380 < val.mean() < 620  # spread over all rows, standard error of the mean about 18


def test_split_without_validation_keeps_every_row():
    train, val = split_rows(7, val_share=0, seed=0)
    assert train.tolist() == list(range(7))
    assert len(val) == 0


@pytest.mark.parametrize("share", [-0.1, 1.0, 0.99, float("nan")])
def test_split_refuses_what_leaves_nothing_to_train_on(share):
    with pytest.raises(InputError, match=r"write val_share=0\.1"):
        split_rows(10, share, seed=0)


def test_only_training_rows_set_the_scale():
    random = np.random.default_rng(0)
    train = random.normal(5, 2, (50, 3)), random.normal(-1, 4, 50)
    far = random.normal(500, 2, (10, 3)), random.normal(100, 4, 10)
    data = regression("x", train, val=far, test=far)
    x, y = data.train[:]
    torch.testing.assert_close(x.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(x.var(0, correction=0), torch.ones(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(y.var(correction=0), torch.tensor(1.0), atol=1e-5, rtol=0)
    for part in (data.val, data.test):
        x, y = part[:]
        np.testing.assert_allclose(x * data.std + data.mean, far[0], rtol=1e-5)
        np.testing.assert_allclose(y[:, 0] * data.target_std + data.target_mean, far[1], rtol=1e-4)
    assert data.num_classes is None
    assert data.shape == (3,)
    assert x.dtype == y.dtype == torch.float32
    assert y.shape == (10, 1)


def test_a_constant_column_is_centred_not_blown_up():
    x = np.array([[1.0, 7.0], [3.0, 7.0]])
    data = regression("x", (x, np.array([0.0, 1.0])), (x, np.zeros(2)), (x, np.zeros(2)))
    assert data.train[:][0][:, 1].tolist() == [0, 0]
    assert data.std[1] == 1
