import json
import math
import os
import runpy
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from credent.cells import Cell, finish, strict
from credent.errors import CredentError, InputError

__name__ = "toys"  # a module that nobody can import: so the classes below travel to the workers by value


@dataclass(frozen=True)
class Walk(Cell):
    """Sums noise; every run leaves a line in `log`."""

    seed: int
    log: str
    wait: float = 0.0

    def run(self):
        with open(self.log, "a") as file:
            file.write(f"{self.seed} {os.getpid()} {torch.get_num_threads()}\n")
        time.sleep(self.wait)
        steps = torch.randn(1000, 60, generator=torch.Generator().manual_seed(self.seed))
        return {"end": steps.sum().item(), "free": torch.rand(()).item()}


@dataclass(frozen=True)
class Timing(Walk):
    exclusive: ClassVar[bool] = True


@dataclass(frozen=True)
class Gives(Cell):
    """Returns what it is told to, by name, since fields are plain."""

    what: str

    def run(self):
        return {
            "strange": {"a": [math.nan, math.inf, -math.inf, 1.5], "b": None, "c": True, "d": np.float64(0.25)},
            "tensor": {"a": torch.ones(2)},
            "keys": {"a": {1: 2}},
            "word": {"a": "nan"},
        }[self.what]


@dataclass(frozen=True)
class Fails(Cell):
    """Raises until the file `mended` exists."""

    mended: str

    def run(self):
        if not Path(self.mended).exists():
            raise ZeroDivisionError("one over nothing")
        return {"fine": 1}


@dataclass(frozen=True)
class Kills(Cell):
    """Kills the process it runs in while its file counts fewer deaths than `times`."""

    log: str
    times: int

    def run(self):
        deaths = len(Path(self.log).read_text()) if Path(self.log).exists() else 0
        if deaths < self.times:
            with open(self.log, "a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return {"deaths": deaths}


def lines(log):
    return [line.split() for line in Path(log).read_text().splitlines()]


def test_side_by_side_equals_one_by_one(tmp_path):
    cells = [Walk(seed, str(tmp_path / "log")) for seed in range(5)]
    one, two = (finish(cells, tmp_path / str(jobs), jobs, progress=False) for jobs in (1, 2))
    assert one.results == two.results
    assert list(two.results) == cells
    assert not one.failures
    assert len({result["free"] for result in one.results.values()}) == 5  # unseeded noise: own, and repeatable
    processes = [pid for _, pid, _ in lines(tmp_path / "log")]
    assert set(processes[:5]) == {str(os.getpid())}
    assert str(os.getpid()) not in processes[5:]
    assert {threads for _, _, threads in lines(tmp_path / "log")} == {"1"}


def test_a_file_says_all(tmp_path):
    cell = Walk(3, str(tmp_path / "log"))
    done = finish([cell], tmp_path, progress=False)
    (file,) = tmp_path.glob("*.json")
    body = json.loads(file.read_text())
    assert file.stem == cell.key
    assert cell.key.startswith("walk-")
    assert body["cell"] == "Walk"
    assert body["fields"] == {"seed": 3, "log": str(tmp_path / "log"), "wait": 0.0}
    assert body["result"] == done.results[cell]
    assert 0 <= body["seconds"] < 10
    assert body["torch"] == torch.__version__
    assert body["commit"] is None or len(body["commit"].removesuffix("-dirty")) == 40
    assert set(body) == {
        *("cell", "fields", "result", "seconds", "credent", "commit", "torch", "cores", "finished"),
    }


def test_each_is_run_once(tmp_path):
    log, cells = tmp_path / "log", [Walk(seed, str(tmp_path / "log")) for seed in (0, 1, 0, 1, 0)]
    first = finish(cells, tmp_path, jobs=1, progress=False)
    assert len(lines(log)) == 2
    (tmp_path / "of-nobody.json").write_text("mine")
    more = finish([*cells, Walk(2, str(log))], tmp_path, jobs=1, progress=False)
    assert [seed for seed, _, _ in lines(log)] == ["0", "1", "2"]
    assert list(more.results.items())[:2] == list(first.results.items())
    assert (tmp_path / "of-nobody.json").read_text() == "mine"


def test_the_key_follows_the_values():
    assert Walk(0, "a").key == Walk(0, "a", 0.0).key
    assert len({Walk(0, "a").key, Walk(1, "a").key, Walk(0, "b").key, Timing(0, "a").key}) == 4


def test_timings_run_last_and_alone(tmp_path):
    log = str(tmp_path / "log")
    cells = [Timing(9, log), *(Walk(seed, log, wait=0.1) for seed in range(3))]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        finish(cells, tmp_path, jobs=2, progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    seed, pid, used = lines(log)[-1]
    assert (seed, pid, used) == ("9", str(os.getpid()), "2")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_cell_is_recorded_and_the_rest_go_on(jobs, tmp_path, capsys):
    bad, good = Fails(str(tmp_path / "mended")), [Walk(seed, str(tmp_path / "log")) for seed in range(2)]
    done = finish([bad, *good], tmp_path, jobs)
    assert list(done.results) == good
    assert done.failures == {bad: "ZeroDivisionError: one over nothing"}
    assert "1 of 3 cells failed" in capsys.readouterr().err
    record = json.loads((tmp_path / f"{bad.key}.error.json").read_text())
    assert record["error"] == "ZeroDivisionError: one over nothing"
    assert "in run" in record["traceback"]
    assert not (tmp_path / f"{bad.key}.json").exists()
    (tmp_path / "mended").touch()
    again = finish([bad, *good], tmp_path, jobs=1, progress=False)
    assert again.results[bad] == {"fine": 1}
    assert not again.failures
    assert not (tmp_path / f"{bad.key}.error.json").exists()
    assert len(lines(tmp_path / "log")) == 2


def test_a_cell_that_kills_its_worker_does_not_stop_the_rest(tmp_path):
    twice, once = Kills(str(tmp_path / "two"), 2), Kills(str(tmp_path / "one"), 1)
    log = str(tmp_path / "log")
    cells = [twice, *(Walk(seed, log) for seed in range(3)), once, Walk(3, log)]
    done = finish(cells, tmp_path, jobs=2, progress=False)
    assert list(done.failures) == [twice]
    assert "died, twice" in done.failures[twice]
    assert done.results[once] == {"deaths": 1}
    assert [cell for cell in cells if cell != twice] == list(done.results)
    assert (tmp_path / "two").read_text() == "xx"


def test_non_finite_numbers_survive_as_strict_json(tmp_path):
    cell = Gives("strange")
    finish([cell], tmp_path, progress=False)
    text = (tmp_path / f"{cell.key}.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["result"]["a"] == ["nan", "inf", "-inf", 1.5]
    result = finish([cell], tmp_path, progress=False).results[cell]
    assert math.isnan(result["a"][0])
    assert result["a"][1:] == [math.inf, -math.inf, 1.5]
    assert (result["b"], result["c"], result["d"]) == (None, True, 0.25)


@pytest.mark.parametrize(("what", "words"), [("tensor", "['a'] is tensor"), ("keys", "{1: 2}"), ("word", "'nan'")])
def test_results_that_json_cannot_hold_are_explained(what, words, tmp_path):
    cell = Gives(what)
    told = finish([cell], tmp_path, progress=False).failures[cell]
    assert words in told
    assert ".tolist()" in told


def test_strict_json_refuses_loose_json():
    with pytest.raises(ValueError, match="NaN"):
        strict.loads('{"a": NaN}')


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"cell": "Walk"}', '{"a": NaN}', b"\xff\xfe"])
def test_an_unreadable_file_is_named(text, tmp_path):
    cell = Walk(0, str(tmp_path / "log"))
    path = tmp_path / f"{cell.key}.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CredentError, match=f"{cell.key}.json.*delete it"):
        finish([cell], tmp_path, progress=False)
    assert not (tmp_path / "log").exists()


def test_a_foreign_file_is_named(tmp_path):
    one, other = (Walk(seed, str(tmp_path / "log")) for seed in (0, 1))
    finish([one], tmp_path, progress=False)
    (tmp_path / f"{one.key}.json").rename(tmp_path / f"{other.key}.json")
    with pytest.raises(CredentError, match=r"another cell.*seed 1.*delete it"):
        finish([other], tmp_path, progress=False)


def test_bad_requests_are_explained(tmp_path):
    class Bare(Cell):
        seed: int = 0

        def run(self):
            return {}

    with pytest.raises(InputError, match="@dataclass"):
        finish([Bare()], tmp_path)
    with pytest.raises(InputError, match=r"Walk\['seed'\] is tensor"):
        finish([Walk(torch.tensor(1), "log")], tmp_path)
    with pytest.raises(InputError, match="jobs=0"):
        finish([], tmp_path, jobs=0)
    assert not finish([], tmp_path).results


SCRIPT = """
    import time
    from dataclasses import dataclass
    from credent.cells import Cell, finish

    @dataclass(frozen=True)
    class Slow(Cell):
        seed: int

        def run(self):
            with open("log", "a") as file:
                file.write(f"{self.seed}\\n")
            time.sleep(0.1)
            return {"seed": self.seed}

    cells = [Slow(seed) for seed in range(12)]
    if __name__ == "__main__":
        finish(cells, "cells", jobs=2, progress=False)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_goes_on_where_it_was(sent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(textwrap.dedent(SCRIPT))
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509  (background jobs ignore it)
    )
    while len(list(tmp_path.glob("cells/*.json"))) < 4 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, sent)  # workers and all, as kill -9 of a session and Ctrl-C do
    _, told = process.communicate(timeout=60)
    assert process.returncode == -sent
    if sent == signal.SIGINT:
        assert "\nKeyboardInterrupt\n" in told  # a process of joblib's may die with words of its own after it
        assert "tasks" not in told  # joblib's warning of those that were left
    finished = {json.loads(file.read_text())["result"]["seed"] for file in tmp_path.glob("cells/*.json")}
    assert 4 <= len(finished) < 12
    Path("log").unlink()
    script = runpy.run_path("script.py", run_name="toys")
    done = finish(script["cells"], "cells", jobs=1, progress=False)
    assert [each["seed"] for each in done.results.values()] == list(range(12))
    assert {int(seed) for (seed,) in lines("log")} == set(range(12)) - finished
