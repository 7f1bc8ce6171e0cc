import numpy as np
import pytest
import torch

from credent.data import load, names
from credent.errors import InputError

BUILT_IN = ["digits", "cubic", "sine_gap", "heteroscedastic"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_sets_need_no_directory(monkeypatch, name):
    monkeypatch.delenv("CREDENT_DATA", raising=False)
    data = load(name, seed=1)
    assert data.name == name
    assert torch.equal(load(name, "nowhere", seed=1).train[:][1], data.train[:][1])
    assert not torch.equal(load(name, seed=2).train[:][1], data.train[:][1])


def test_names_says_what_is_here(monkeypatch, tmp_path):
    monkeypatch.delenv("CREDENT_DATA", raising=False)
    assert [each.name for each in names() if each.available] == BUILT_IN
    (tmp_path / "uci_regression").mkdir()
    np.savez(tmp_path / "uci_regression/yacht.npz", X=np.ones((4, 1)), y=np.ones(4), test_mask=np.eye(4, dtype=bool))
    assert [each.name for each in names(tmp_path) if each.available] == [*BUILT_IN, "uci/yacht"]
    monkeypatch.setenv("CREDENT_DATA", str(tmp_path))
    assert [each.name for each in names() if each.available] == [*BUILT_IN, "uci/yacht"]
    assert len(load("uci/yacht", split=2).test) == 1
    assert all(each.description for each in names())


def test_every_name_that_is_here_loads(real_data):
    listed = names(real_data)
    assert {"mnist", "fashion_mnist", "cifar10", "cifar100", "svhn"} <= {each.name for each in listed}
    for each in listed:
        if each.name.startswith("uci/"):
            assert each.available
            assert load(each.name, real_data, split=1).name == each.name


@pytest.mark.parametrize("name", [each.name for each in names() if each.name not in BUILT_IN])
def test_without_a_directory_every_other_name_teaches(monkeypatch, name):
    monkeypatch.delenv("CREDENT_DATA", raising=False)
    with pytest.raises(InputError, match="CREDENT_DATA=DIR"):
        load(name)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("minst", "mnist"),
        ("MNIST", "mnist"),
        ("Fashion-MNIST", "fashion_mnist"),
        ("yacht", "uci/yacht"),
        ("uci/concret", "uci/concrete"),
    ],
)
def test_a_misspelt_name_teaches(typed, meant):
    with pytest.raises(InputError, match=f'load\\("{meant}"\\)') as caught:
        load(typed)
    assert "There are: digits, cubic" in str(caught.value)


def test_a_name_like_no_other_lists_them_all():
    with pytest.raises(InputError, match=r"no such data set\. There are: digits"):
        load("qqq")


def test_an_unknown_option_teaches():
    with pytest.raises(InputError, match="it takes: none"):
        load("digits", val_share=0.1)
    with pytest.raises(InputError, match="it takes: val_share"):
        load("mnist", split=1)
    with pytest.raises(InputError, match="it takes: split, val_share"):
        load("uci/yacht", fold=1)
