import pytest

from credent.data.directory import data_directory, data_file
from credent.errors import InputError


def test_the_argument_wins_over_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CREDENT_DATA", "elsewhere")
    assert data_directory(tmp_path) == tmp_path
    assert data_directory(str(tmp_path)) == tmp_path
    assert data_directory(None).name == "elsewhere"


def test_home_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_directory("~/sets") == tmp_path / "sets"


@pytest.mark.parametrize("value", [None, ""])
def test_no_directory_teaches(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("CREDENT_DATA", raising=False)
    else:
        monkeypatch.setenv("CREDENT_DATA", value)
    with pytest.raises(InputError) as caught:
        data_directory(None)
    for advice in ("CREDENT_DATA", "--data-dir", "data_dir=", "MNIST/raw", "download", "digits"):
        assert advice in str(caught.value)


def test_a_missing_file_is_named_with_its_directory(tmp_path):
    with pytest.raises(InputError) as caught:
        data_file(tmp_path, "MNIST/raw/train-images-idx3-ubyte.gz")
    assert str(tmp_path) in str(caught.value)
    assert "train-images" in str(caught.value)
    (tmp_path / "there").touch()
    assert data_file(tmp_path, "there") == tmp_path / "there"
