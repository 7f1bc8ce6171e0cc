import csv
import dataclasses
import hashlib
import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from credent.cli import app
from credent.cli.fit import fit
from credent.cli.sweep import sweep as cli_sweep
from credent.errors import CheckpointError, CredentError, InputError
from credent.evaluation import evaluate
from credent.recipe import Recipe
from credent.sweeps import LogUniform, read, sweep
from credent.sweeps.runs import Call, Train, name_of, scores

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import toys  # noqa: E402


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Workers find the functions under the same name."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def table(out):
    with open(out / "runs.csv", newline="") as file:
        return list(csv.DictReader(file))


def called(log):
    return [line.split()[:3] for line in Path(log).read_text().splitlines()]


def bowl(out, log, **options):
    vary = {"x": [0.0, 1.0, 2.0], "y": [0.5, 3.0]} | options.pop("vary", {})
    return sweep(vary, out, fixed={"log": str(log)}, function=toys.bowl, metric="far", progress=False, **options)


def test_each_setting_is_run_once_and_ranked(tmp_path):
    log = tmp_path / "log"
    done = bowl(tmp_path / "out", log, jobs=1, seeds=2)
    assert len(called(log)) == 12
    assert [each.values for each in done.ranking[:2]] == [{"x": 1.0, "y": 0.5}, {"x": 0.0, "y": 0.5}]
    assert done.best.score == pytest.approx(0.25 + 0.5)  # the mean over seeds 0 and 1
    assert done.best.error == pytest.approx(0.5)  # sd sqrt(1/2) over sqrt 2
    rows = table(tmp_path / "out")
    assert list(rows[0]) == ["run", "x", "y", "seed", "far", "pid", "seconds", "error"]
    assert [(r["x"], r["y"], r["seed"], float(r["far"])) for r in rows[:2]] == [
        ("0.0", "0.5", "0", 1.25),
        ("0.0", "0.5", "1", 2.25),
    ]
    again = bowl(tmp_path / "out", log, jobs=1, seeds=3)
    assert len(called(log)) == 18  # one seed more: six runs more, none again
    assert len(again.rows) == 18
    shown = read(tmp_path / "out")
    assert shown.best == again.best
    assert "landscape" not in (tmp_path / "out" / "page.html").read_text()
    assert 'data-part="best"' in (tmp_path / "out" / "page.html").read_text()


def test_a_failing_run_and_a_killed_worker_stop_nobody(tmp_path):
    log = tmp_path / "log"
    vary = {"x": [0, 1, 2, 3, 4, 5]}
    options = {"fixed": {"log": str(log)}, "function": toys.brittle, "metric": "far", "progress": False, "jobs": 2}
    done = sweep(vary, tmp_path / "out", **options)
    assert [row["x"] for row in done.rows] == [0, 1, 2, 3, 4, 5]
    (failed,) = done.failures
    assert failed["error"] == "ZeroDivisionError: one over nothing"
    assert done.ranking[-1].values == {"x": 2}
    assert done.best.values == {"x": 0}
    calls = [line[0] for line in called(log)]
    assert sorted(set(calls)) == list("012345")
    assert calls.count("3") == 2
    assert len(list((tmp_path / "out" / "cells").glob("*.error.json"))) == 1
    assert "one over nothing" in (tmp_path / "out" / "page.html").read_text()
    before = len(calls)
    sweep(vary, tmp_path / "out", **options)
    assert [line[0] for line in called(log)][before:] == ["2"]  # only what failed is tried again


SCRIPT = """
    import sys
    from credent.sweeps import sweep
    import toys
    vary = {"x": [float(n) for n in range(8)], "y": [0.0]}
    fixed = {"log": sys.argv[1], "wait": 0.4}
    sweep(vary, sys.argv[2], fixed=fixed, function=toys.bowl, metric="far", jobs=2, progress=False)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_in_the_middle_and_resumed_no_run_is_lost_or_repeated(tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(log), str(out)]
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 400
    while len(finished := list((out / "cells").glob("*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)  # the process and its workers, at once
    process.wait()
    finished = {path.name: path.stat().st_mtime_ns for path in (out / "cells").glob("*.json")}
    assert 2 <= len(finished) < 8
    begun = len(called(log))
    assert begun <= len(finished) + 2  # at most those that were running
    subprocess.run(command, check=True, timeout=400)
    rows = table(out)
    assert [float(row["x"]) for row in rows] == [float(n) for n in range(8)]
    assert not any(row["error"] for row in rows)
    assert len(called(log)) - begun == 8 - len(finished)  # what was finished was not run again
    assert all((out / "cells" / name).stat().st_mtime_ns == at for name, at in finished.items())
    assert len(list((out / "cells").glob("*"))) == 8


def test_a_cluster_that_does_not_start_is_told(tmp_path, monkeypatch):
    """Ray raises a bare Exception when its node is not there in time."""

    def init(**options):
        raise Exception("the node timed out")

    ray = SimpleNamespace(init=init)
    monkeypatch.setattr("credent.sweeps.cluster.import_module", lambda name: ray)
    with pytest.raises(InputError, match=r"Exception: the node timed out.*leave backend out"):
        bowl(tmp_path / "out", tmp_path / "log", backend="ray")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_local_cluster_gives_the_same_table(backend, package, tmp_path):
    pytest.importorskip(package)
    command = textwrap.dedent("""
        import sys
        from credent.sweeps import sweep
        import toys
        if __name__ == "__main__":
            vary = {"x": [0.0, 1.0, 2.0], "y": [0.5, 3.0]}
            options = {"fixed": {"log": sys.argv[1]}, "function": toys.bowl, "metric": "far", "progress": False}
            sweep(vary, sys.argv[2], backend=sys.argv[4], jobs=2, **options)
            recipes = {"fixed": {"data": "digits", "epochs": 1, "method": "map"}, "progress": False}
            sweep({"lr": [1e-3, 1e-2]}, sys.argv[3], backend=sys.argv[4], jobs=2, **recipes)
    """)
    (tmp_path / "script.py").write_text(command)
    there, recipes, log = tmp_path / "there", tmp_path / "recipes", tmp_path / "log"
    arguments = [tmp_path / "script.py", log, there, recipes, backend]
    path = os.pathsep.join(sys.path)  # workers find the function where this process does
    subprocess.run(
        [sys.executable, *map(str, arguments)], check=True, timeout=600, env={**os.environ, "PYTHONPATH": path}
    )
    processes = {row["pid"] for row in table(there)}
    assert len(called(log)) == 6
    bowl(tmp_path / "here", log, jobs=1)
    sweep({"lr": [1e-3, 1e-2]}, tmp_path / "r", fixed={"data": "digits", "epochs": 1, "method": "map"}, jobs=1)
    assert len(processes) == 2

    def told(out):
        return [{k: v for k, v in row.items() if k not in ("seconds", "pid")} for row in table(out)]

    assert told(there) == told(tmp_path / "here")
    assert told(recipes) == told(tmp_path / "r")
    assert len(told(recipes)) == 2


def test_a_run_is_scored_on_validation_data_and_not_on_test_data(tmp_path):
    recipe = Recipe(data="digits", epochs=1, method="map", lr=0.01)
    found = Train(recipe, samples=2).run()
    built = recipe.build()
    posterior = built.train(progress=False).posterior
    x, y = built.data.val[:]
    with torch.no_grad():
        log_probs = built.objective.net(x).log_softmax(-1)
    assert posterior is not None
    assert found["val_nll"] == pytest.approx(-log_probs.gather(1, y[:, None]).mean().item(), rel=1e-4)
    assert not [name for name in found if name.startswith("test_")]
    both = Train(recipe, samples=2, test=True).run()
    assert both["test_nll"] == pytest.approx(evaluate(built.objective, posterior, built.data, 2).scores["nll"])
    assert {k: v for k, v in both.items() if not k.startswith("test_")} == found
    assert {"train_nll", "train_kl"} & set(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"vary": {"lrr": [1]}}, "Did you mean 'lr'"),
        ({"vary": {"lr": ["fast"]}}, "lr is a number"),
        ({"vary": {"lr": [-1.0]}}, "positive"),
        ({"vary": {"lr": LogUniform(1e-3, 1)}}, "runs=20"),
        ({"vary": {"lr": [1e-3]}, "fixed": {"lr": 1e-2}}, "both fixed and varied"),
        ({"vary": {"scale_lr": [1e-3]}, "fixed": {"method": "map"}}, "learns no scales"),
        ({"vary": {"model": ["lenet5"]}}, "28x28"),
        ({"vary": {"method": ["sgld"]}, "fixed": {"data": "wiggle"}}, "step size|no data set|wiggle"),
        ({"vary": {"lr": [1e-3]}, "metric": "test_nll"}, "val_nll"),
        ({"vary": {"lr": [1e-3]}, "metric": "val_nl"}, "Did you mean 'val_nll'"),
        ({"vary": {"lr": [1e-3]}, "metric": "train_nll"}, "not ranked by it"),
        ({"vary": {"lr": [1e-3]}, "metric": "val_rmse"}, "vi on digits"),
        ({"vary": {"data": ["digits", "cubic"]}, "metric": "val_accuracy"}, "vi on cubic"),
        ({"vary": {"lr": [1e-3]}, "metric": "val_coverage", "fixed": {"data": "cubic"}}, "There are val_nll"),
        ({"vary": {"method": ["vi", "map"]}, "metric": "val_auroc_noise_mutual_information"}, "map on digits"),
        ({"vary": {"lrr": LogUniform(1e-3, 1)}, "runs": 2}, "Did you mean 'lr'"),
        ({"vary": {"members": [1, 2]}, "fixed": {"data": "cubic"}}, "--noise heteroscedastic"),
        ({"vary": {"lr": [1e-3]}, "backend": "spark"}, "dask and ray"),
        ({"vary": {"lr": [1e-3]}, "address": "tcp://a:1"}, "whose it is"),
        ({"vary": {"lr": [1e-3]}, "backend": "dask", "address": "tcp://a:1", "jobs": 2}, "size of its own"),
        ({"vary": {"x": [1]}, "function": toys.brittle}, "metric='nll'"),
        ({"vary": {"x": [1]}, "function": lambda x: {}, "metric": "a"}, "at the\n? ?top"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(options, words, tmp_path):
    with pytest.raises(InputError, match=words):
        sweep(out=tmp_path / "out", progress=False, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "method", "members", "no_ranking"),
    [
        ("digits", "vi", 1, {"val_ece_by_chance"}),
        ("digits", "map", 2, {"val_ece_by_chance"}),
        ("cubic", "map", 1, {"val_coverage"}),
    ],
)
def test_the_scores_that_rank_are_known_before_a_run(data, method, members, no_ranking):
    recipe = Recipe(data=data, method=method, members=members, epochs=1)
    told = Train(recipe, samples=2).run()
    assert "train_nll" in told
    returned = {name for name in told if name.startswith("val_")}
    known = scores(recipe.build())
    assert set(known) == returned - no_ranking
    up = {name for name, better in known.items() if better == "higher"}
    assert up == {name for name in known if "accuracy" in name or "auroc" in name}


def test_a_higher_auroc_is_better(tmp_path):
    vary, fixed = {"lr": [1e-4, 1e-2]}, {"data": "digits", "method": "map", "epochs": 1}
    done = sweep(vary, tmp_path / "out", fixed=fixed, metric="val_auroc_noise", samples=1, jobs=1, progress=False)
    assert [each.score for each in done.ranking] == sorted((each.score for each in done.ranking), reverse=True)
    assert done.better == "higher"


def test_a_sweep_that_is_stopped_says_nothing_of_joblib(tmp_path, recwarn):
    """Warnings are errors here, and one of left tasks would take the place of the message."""
    fixed = {"y": 0.0, "log": str(tmp_path / "log"), "wait": 0.2}
    with pytest.raises(InputError, match="choose one of these"):
        sweep(
            {"x": [1.0, 2.0, 3.0, 4.0]},
            tmp_path / "a",
            fixed=fixed,
            function=toys.bowl,
            metric="near",
            jobs=2,
            progress=False,
        )
    assert not recwarn.list


def test_a_function_is_told_by_its_call():
    cell = Call("toys:bowl", (("x", 1.0), ("y", 0.5)), toys.bowl)
    assert str(cell) == "toys:bowl(x=1.0, y=0.5)"
    assert cell == Call("toys:bowl", (("x", 1.0), ("y", 0.5)), toys.brittle)  # the name tells, not the object
    assert (
        cell.key
        == "call-" + hashlib.sha256(b'{"function":"toys:bowl","values":[["x",1.0],["y",0.5]]}').hexdigest()[:16]
    )


def test_a_missing_package_names_the_line_to_type(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="pip install ray"):
        bowl(tmp_path / "out", tmp_path / "log", backend="ray")


def test_results_and_metrics_that_do_not_fit_are_explained(tmp_path):
    with pytest.raises(InputError, match="returned far, pid"):
        sweep(
            {"x": [1.0]},
            tmp_path / "a",
            fixed={"y": 0.0, "log": str(tmp_path / "log")},
            function=toys.bowl,
            metric="near",
            jobs=1,
            progress=False,
        )
    with pytest.raises(InputError, match="numbers by name"):
        Call("toys:bowl", (("x", 1.0),), lambda x: {"far": torch.ones(2)}).run()
    with pytest.raises(CheckpointError, match="no sweep"):
        read(tmp_path / "nothing")
    assert name_of(toys.bowl) == "toys:bowl"


def test_nothing_but_failures_has_no_best(tmp_path):
    options = {"fixed": {"log": str(tmp_path / "log")}, "function": toys.brittle, "metric": "far"}
    done = sweep({"x": [2]}, tmp_path / "out", jobs=1, progress=False, **options)
    with pytest.raises(CredentError, match=r"runs\.csv"):
        _ = done.best
    assert len(done.failures) == 1


def test_the_parquet_table_is_the_same(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    bowl(tmp_path / "out", tmp_path / "log", jobs=1)
    rows = parquet.read_table(tmp_path / "out" / "runs.parquet").to_pylist()
    assert [(row["x"], row["y"], row["far"]) for row in rows] == [
        (float(row["x"]), float(row["y"]), float(row["far"])) for row in table(tmp_path / "out")
    ]


def test_the_command_line_sweeps_and_shows(tmp_path):
    from typer.testing import CliRunner

    out = tmp_path / "out"
    line = ["sweep", "--data", "digits", "--epochs", "1", "--method", "map", "--jobs", "1", "--out", str(out)]
    varied = ["--grid", "batch-size=256,512", "--draw", "lr=log:1e-3:1e-2", "--runs", "2", "--json"]
    answer = CliRunner().invoke(app, [*line, *varied])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert len(told["ranking"]) == 4
    scores = [each["val_nll"] for each in told["ranking"]]
    assert scores == sorted(scores)
    assert {each["batch_size"] for each in told["ranking"]} == {256, 512}
    assert {row["error"] for row in table(out)} == {""}
    shown = CliRunner().invoke(app, ["sweep", "--show", "--out", str(out)])
    assert shown.exit_code == 0
    assert "4 runs, 0 failed" in shown.stdout


def test_an_interrupted_sweep_says_how_it_goes_on(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["credent.cli.sweep"], "sweep_all", stopped)
    answer = CliRunner().invoke(app, ["sweep", "--grid", "lr=1,2", "--out", str(tmp_path / "out")])
    assert answer.exit_code == 130
    assert "the same command goes on" in " ".join(answer.stderr.split())


def test_every_field_of_a_recipe_is_an_option():
    for command in (fit, cli_sweep):
        assert set(inspect.signature(command).parameters) >= {each.name for each in dataclasses.fields(Recipe)}


@pytest.mark.parametrize(
    ("varied", "words"),
    [
        (["--grid", "lr"], "FIELD=VALUES"),
        (["--grid", "lrr=1"], "Did you mean 'lr'"),
        (["--grid", "lr=1", "--jitter", "lr=1"], "varied twice"),
        (["--draw", "lr=normal:0:1", "--runs", "2"], "log:LOW:HIGH"),
        (["--draw", "lr=log:a:b", "--runs", "2"], "'a' is no number"),
        (["--draw", "lr=log:1e-3:1"], "--runs 20"),
        (["--grid", "lr=1e-3", "--lr", "1e-2"], "both fixed and varied"),
        (["--grid", "method=map,vi", "--method", "vi"], "both fixed and varied"),
        (["--grid", "lr=fast"], "lr is a number"),
        (["--grid", "method=map,vi", "--scale-lr", "0.1"], "learns no scales"),
        ([], "nothing is varied"),
    ],
)
def test_the_command_line_explains_what_cannot_be(varied, words, tmp_path):
    from typer.testing import CliRunner

    answer = CliRunner().invoke(app, ["sweep", "--out", str(tmp_path / "out"), *varied])
    assert answer.exit_code == 2
    assert words in " ".join(answer.stderr.split())
    assert not (tmp_path / "out").exists()
