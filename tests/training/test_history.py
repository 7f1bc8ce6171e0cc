import json

import pytest

from credent.errors import CredentError
from credent.training.history import History, read


def test_rows_come_back(tmp_path):
    history = History(tmp_path / "history.jsonl")
    rows = [{"step": 1, "nll": 0.1}, {"step": 2, "nll": 1 / 3}]
    for row in rows:
        history.append(row)
    assert read(tmp_path / "history.jsonl") == rows == history.rows
    assert read(tmp_path / "none.jsonl") == []


def test_each_row_is_in_the_file_at_once(tmp_path):
    history = History(tmp_path / "history.jsonl")
    for count in (1, 2, 3):
        history.append({"step": count})
        assert len((tmp_path / "history.jsonl").read_text().splitlines()) == count


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_has_not_are_null(tmp_path, value):
    history = History(tmp_path / "history.jsonl")
    history.append({"step": 1, "val_nll": value})
    assert history.rows == [{"step": 1, "val_nll": None}]

    def refuse(constant):
        raise AssertionError(constant)

    line = (tmp_path / "history.jsonl").read_text()
    assert json.loads(line, parse_constant=refuse) == {"step": 1, "val_nll": None}


def test_a_line_cut_short_is_dropped_and_resume_keeps_the_first(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    assert [row["step"] for row in read(path)] == [1, 2, 3]
    history = History(path)
    history.resume(2)
    history.append({"step": 9})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 9}\n'
    assert [row["step"] for row in history.rows] == [1, 2, 9]


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(CredentError, match=r"cannot write .*resume=True"):
        History(tmp_path / "nowhere" / "history.jsonl").append({"step": 1})
