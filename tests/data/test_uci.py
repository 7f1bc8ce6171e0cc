import math

import numpy as np
import pytest
import torch

from credent.data.uci import UCI, uci
from credent.errors import InputError

# name: rows, columns, test rows, mean and standard deviation of y, as published
FACTS = {
    "concrete": (1030, 8, 103, 35.818, 16.698),
    "energy": (768, 8, 77, 22.307, 10.084),
    "kin8nm": (8192, 8, 819, 0.714, 0.264),
    "power-plant": (9568, 4, 957, 454.365, 17.066),
    "wine-quality-red": (1599, 11, 160, 5.636, 0.807),
    "yacht": (308, 6, 31, 10.495, 15.136),
}


@pytest.fixture
def small(tmp_path):
    """Twenty rows with y = row number, and two splits of four test rows."""
    x = np.random.default_rng(0).normal(3, 2, (20, 2))
    mask = np.zeros((2, 20), bool)
    mask[0, :4] = mask[1, 10:14] = True
    (tmp_path / "uci_regression").mkdir()
    np.savez(tmp_path / "uci_regression/yacht.npz", X=x, y=np.arange(20.0), test_mask=mask)
    return tmp_path, x


def original(data, part):
    return (part[:][1][:, 0].double() * data.target_std + data.target_mean).round().int().tolist()


def test_splits_follow_the_mask(small):
    directory, x = small
    for split, test_rows in ((0, [0, 1, 2, 3]), (1, [10, 11, 12, 13])):
        data = uci("yacht", split, directory)
        assert original(data, data.test) == test_rows
        assert original(data, data.train) == [row for row in range(20) if row not in test_rows]
        assert len(data.val) == 0
        np.testing.assert_allclose(data.test[:][0] * data.std + data.mean, x[test_rows], rtol=1e-5)
        assert data.name == "uci/yacht"


def test_validation_rows_come_from_training_rows_and_set_no_scale(small):
    directory, _ = small
    data = uci("yacht", 0, directory, seed=5, val_share=0.25)
    assert (len(data.train), len(data.val), len(data.test)) == (12, 4, 4)
    assert sorted(original(data, data.train) + original(data, data.val)) == list(range(4, 20))
    rows = original(data, data.train)
    assert data.target_mean == pytest.approx(np.mean(rows))
    assert data.target_std == pytest.approx(np.std(rows))
    torch.testing.assert_close(data.train[:][0].mean(0), torch.zeros(2), atol=1e-6, rtol=0)


def test_log_likelihood_in_the_original_unit(small):
    """log N(raw y; raw mean, raw scale), written out, against the rule in the docstring."""
    directory, _ = small
    data = uci("yacht", 0, directory)
    mean, scale, y = 0.3, 0.7, data.test[:][1].double()
    standardised = torch.distributions.Normal(mean, scale).log_prob(y)
    raw_y = y * data.target_std + data.target_mean
    raw_mean, raw_scale = mean * data.target_std + data.target_mean, scale * data.target_std
    expected = -((raw_y - raw_mean) ** 2) / (2 * raw_scale**2) - math.log(raw_scale * math.sqrt(2 * math.pi))
    torch.testing.assert_close(standardised - math.log(data.target_std), expected)


def test_errors_teach(small):
    directory, _ = small
    with pytest.raises(InputError, match=r'Did you mean uci\("yacht"\)'):
        uci("yatch", data_dir=directory)
    with pytest.raises(InputError, match="numbered 0 to 1"):
        uci("yacht", split=2, data_dir=directory)
    with pytest.raises(InputError, match=r"no file uci_regression/energy\.npz"):
        uci("energy", data_dir=directory)
    path = directory / "uci_regression/yacht.npz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="is damaged"):
        uci("yacht", data_dir=directory)


@pytest.mark.parametrize("name", UCI)
def test_real_sets_have_the_published_sizes(real_data, name):
    rows, columns, test_rows, mean, std = FACTS[name]
    data = uci(name, split=19, data_dir=real_data)
    assert data.shape == (columns,)
    assert len(data.test) == test_rows
    assert len(data.train) == rows - test_rows
    y = torch.cat([part[:][1] for part in (data.train, data.test)]).double() * data.target_std + data.target_mean
    assert y.mean().item() == pytest.approx(mean, abs=6e-4)
    assert y.std(correction=0).item() == pytest.approx(std, abs=6e-4)
    assert f"{rows:,} rows of {columns}" in UCI[name]
