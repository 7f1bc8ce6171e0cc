import csv
import io
import json
import math
import os
import re
import shutil
import signal
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import credent as cr
from credent.cells import Cell
from credent.cli import _say, app
from credent.evaluation import evaluate
from credent.papers import EXPERIMENTS, Experiment, Scale, by_seed, lower
from credent.recipe import Recipe
from credent.report import Column, Section
from credent.report import Table as ReportTable
from credent.training.run import Run
from credent.training.thin import Kept

FEW = {"epochs": 1, "lr": 1e-3, "scale_lr": 1e-3, "beta": 1, "weight_samples": 1}
FAST = ["--data", "digits", "--model", "mlp", "--epochs", "2", "--seed", "0"]


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def reply(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "x"
    reply("fit", *FAST, "--method", "vi", "--out", out, "--json")
    return out


def test_fit_writes_a_whole_run(trained):
    names = {p.name for p in trained.iterdir()}
    assert {"config.json", "history.jsonl", "checkpoint", "posterior.safetensors"} <= names
    assert Recipe.from_json((trained / "config.json").read_text()) == Recipe(epochs=2)


def test_the_same_seed_gives_the_same_bytes(trained, tmp_path):
    reply("fit", *FAST, "--out", tmp_path / "again", "--json")
    assert (tmp_path / "again" / "posterior.safetensors").read_bytes() == (
        trained / "posterior.safetensors"
    ).read_bytes()


def test_a_run_is_calibrated_and_then_evaluated_so(trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "run")
    before = reply("evaluate", out, "--json")["scores"]
    assert "calibrated temperature" not in (out / "page.html").read_text()
    said = reply("calibrate", out, "--json")
    assert said["temperature"] != 1
    assert said["val_nll"] < said["val_nll_before"]
    after = reply("evaluate", out, "--json")["scores"]
    assert after["nll"] != pytest.approx(before["nll"], rel=1e-4)
    shown = re.findall(r"calibrated temperature\D*([\d.]+)", (out / "page.html").read_text())
    assert shown == [f"{said['temperature']:.3f}"]
    assert f"temperature {said['temperature']:.3f}" in run("calibrate", out).output
    assert reply("evaluate", out, "--json")["calibrated_temperature"] == pytest.approx(said["temperature"])


def test_a_finished_run_that_is_gone_on_with_keeps_its_calibration(trained, tmp_path):
    out = shutil.copytree(trained, tmp_path / "run")
    reply("calibrate", out, "--json")
    calibrated = (out / "posterior.safetensors").read_bytes()
    reply("fit", *FAST, "--out", out, "--resume", "--json")
    assert (out / "posterior.safetensors").read_bytes() == calibrated
    other = reply("fit", *FAST, "--seed", "1", "--out", tmp_path / "other", "--json")
    reply("calibrate", other["run"], "--json")
    for bad in (calibrated[:100], (tmp_path / "other" / "posterior.safetensors").read_bytes()):
        (out / "posterior.safetensors").write_bytes(bad)  # harmed, or of other weights: it is made again
        reply("fit", *FAST, "--out", out, "--resume", "--json")
        assert (out / "posterior.safetensors").read_bytes() == (trained / "posterior.safetensors").read_bytes()


def test_evaluate_says_what_python_says(trained):
    said = reply("evaluate", trained, "--json", "--samples", "8")
    built = Recipe(epochs=2).build()
    posterior = cr.load(built.objective, trained / "posterior.safetensors")
    x, y = built.data.test[:]
    pred = cr.predict(built.objective.net, posterior, built.objective.likelihood, x, samples=8)
    assert said["scores"]["accuracy"] == pytest.approx((pred.probs.argmax(1) == y).double().mean().item(), abs=1e-12)
    by_hand = -pred.probs.double()[torch.arange(len(y)), y].log().mean().item()
    assert said["scores"]["nll"] == pytest.approx(by_hand, rel=1e-7)
    assert said["beta"] == 0.01
    page = (trained / "page.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert f"{100 * said['scores']['accuracy']:.2f}" in page
    assert json.loads((trained / "evaluation.json").read_text()) == said["scores"]


def test_predict_reads_and_writes_tables(trained, tmp_path):
    x = cr.data.load("digits").test[:3][0]
    np.savetxt(tmp_path / "x.csv", x.flatten(1).numpy(), delimiter=",")
    np.save(tmp_path / "x.npy", x.numpy())
    from_csv = reply("predict", trained, tmp_path / "x.csv", "--json")
    assert from_csv == reply("predict", trained, tmp_path / "x.npy", "--json")
    for row in from_csv:
        assert sum(row[f"p_{c}"] for c in range(10)) == pytest.approx(1, abs=1e-5)
        assert row["probability"] == pytest.approx(row[f"p_{row['label']}"])
        assert 0 <= row["mutual_information"] <= row["entropy"] <= math.log(10)
    assert "one network" not in run("predict", trained, tmp_path / "x.npy").stderr
    printed = run("predict", trained, tmp_path / "x.npy").stdout
    assert [float(r["entropy"]) for r in csv.DictReader(io.StringIO(printed))] == [r["entropy"] for r in from_csv]
    assert run("predict", trained, tmp_path / "x.npy", "--out", tmp_path / "p.csv").exit_code == 0
    assert (tmp_path / "p.csv").read_text().splitlines() == printed.splitlines()


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_one_row_of_names_is_no_input(trained, tmp_path, mark):
    x = cr.data.load("digits").test[:3][0].flatten(1).numpy()
    np.savetxt(tmp_path / "plain.csv", x, delimiter=",")
    names = ",".join(f"pixel {i}" for i in range(64))
    (tmp_path / "named.csv").write_text(f"{mark}{names}\n{(tmp_path / 'plain.csv').read_text()}", encoding="utf-8")
    result = run("predict", trained, tmp_path / "named.csv", "--json")
    assert json.loads(result.stdout) == reply("predict", trained, tmp_path / "plain.csv", "--json")
    assert "is a header (pixel 0, pixel 1, pixel 2, ...)" in result.stderr.replace("\n", " ")


def test_regression_predicts_in_original_units(tmp_path):
    reply("fit", "--data", "cubic", "--epochs", "300", "--out", tmp_path / "c", "--json")
    (tmp_path / "x.csv").write_text("3.0\n-3.0\n")
    up, down = reply("predict", tmp_path / "c", tmp_path / "x.csv", "--json")
    assert abs(up["mean"] - 27) < 15  # x^3, roughly learnt: in standardised units it would be below 2
    assert abs(down["mean"] + 27) < 15
    for row in (up, down):
        assert row["lower_95"] < row["mean"] < row["upper_95"]
        assert row["stddev"] == pytest.approx(math.hypot(row["epistemic"], row["aleatoric"]), rel=1e-4)
    scores = reply("evaluate", tmp_path / "c", "--json")["scores"]
    assert set(scores) == {"rmse", "nll", "crps", "coverage", "interval_width"}
    assert scores["rmse"] < 15


def test_map_method(tmp_path):
    reply("fit", *FAST, "--method", "map", "--out", tmp_path / "m", "--json")
    scores = reply("evaluate", tmp_path / "m", "--json")["scores"]
    assert scores["accuracy"] > 0.5
    assert "auroc_shuffled_mutual_information" not in scores  # one draw cannot disagree with itself
    np.save(tmp_path / "x.npy", cr.data.load("digits").test[:1][0].numpy())
    assert "one network answers, as map does here" in run("predict", tmp_path / "m", tmp_path / "x.npy").stderr


@pytest.mark.parametrize("method", ["sgld", "psgld", "bnp"])
@pytest.mark.filterwarnings("ignore:32 draws are worth")
def test_a_sampler_answers_with_its_draws(method, tmp_path):
    out = tmp_path / "s"
    made = reply("fit", "--method", method, "--epochs", "4", "--out", out, "--json")
    assert made["draws"] == len(list((out / "draws").iterdir())) == 32
    said = reply("evaluate", out, "--json", "--samples", "100")
    built = Recipe(method=method, epochs=4).build()
    posterior = built.train(progress=False).posterior  # never on a disk
    x, y = built.data.test[:]
    pred = cr.predict(built.objective.net, posterior, built.objective.likelihood, x, samples=None)
    assert said["samples"] == pred.num_draws == 32
    assert said["scores"]["nll"] == pytest.approx(-pred.log_prob(y).double().mean().item(), rel=1e-9)
    assert said["scores"]["accuracy"] == pytest.approx((pred.label == y).double().mean().item(), abs=1e-12)
    assert "auroc_shuffled_mutual_information" in said["scores"]
    np.save(tmp_path / "x.npy", x[:3].numpy())
    rows = reply("predict", out, tmp_path / "x.npy", "--samples", "100", "--json")
    drawn = pred.mutual_information[:3].tolist()  # a difference of float32 entropies
    assert min(drawn) > 5e-5
    assert [row["mutual_information"] for row in rows] == pytest.approx(drawn, abs=5e-6)


@pytest.mark.parametrize("method", ["sgld", "psgld", "bnp"])
def test_an_interrupted_chain_goes_on_to_the_same_draws(method, tmp_path, monkeypatch):
    options = ["--method", method, "--epochs", "4", "--json"]
    reply("fit", *options, "--out", tmp_path / "whole")
    kept, add = [], Kept.add

    def interrupted(self, step):
        kept.append(add(self, step))
        if len(kept) == 5:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Kept, "add", interrupted)
        assert run("fit", *options, "--out", tmp_path / "cut").exit_code == 130
    assert not (tmp_path / "cut" / "posterior.safetensors").exists()
    assert reply("fit", "--out", tmp_path / "cut", "--resume", "--json")["draws"] == 32
    for path in sorted((tmp_path / "whole" / "draws").iterdir()):
        assert (tmp_path / "cut" / "draws" / path.name).read_bytes() == path.read_bytes()


def test_interrupted_members_go_on_to_the_same_posterior(tmp_path, monkeypatch):
    options = [*FAST, "--members", "2", "--json"]
    said = reply("fit", *options, "--out", tmp_path / "whole")
    assert said["steps"] == 2 * 2 * math.ceil(1000 / 64)
    assert 0 < said["val_nll"] < math.log(10)
    steps, train = [], Run.train

    def interrupted(self, *arguments):
        steps.append(self.step)
        if len(steps) == 40:  # of 2 x 32
            signal.raise_signal(signal.SIGINT)
        return train(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "train", interrupted)
        assert run("fit", *options, "--out", tmp_path / "cut").exit_code == 130
    assert run("evaluate", tmp_path / "cut").exit_code == 3
    assert reply("fit", "--out", tmp_path / "cut", "--resume", "--json")["val_nll"] == said["val_nll"]
    for member in ("0", "1"):
        paths = [tmp_path / name / "members" / member / "posterior.safetensors" for name in ("whole", "cut")]
        assert paths[0].read_bytes() == paths[1].read_bytes()
    scores = reply("evaluate", tmp_path / "cut", "--json")
    assert scores["samples"] == 32
    assert scores["members"] == 2
    built = Recipe(epochs=2, members=2).build()
    posterior = built.load(tmp_path / "whole")
    assert scores["scores"]["nll"] == pytest.approx(evaluate(built.objective, posterior, built.data).scores["nll"])
    page = (tmp_path / "cut" / "page.html").read_text()
    assert "2 members averaged" in page
    inputs = tmp_path / "x.npy"
    np.save(inputs, built.data.test[:3][0].flatten(1).numpy() * built.data.std.item() + built.data.mean.item())
    rows = list(csv.DictReader(io.StringIO(run("predict", tmp_path / "cut", inputs).stdout)))
    pred = cr.predict(built.objective.net, posterior, built.objective.likelihood, built.data.test[:3][0])
    assert [float(row["probability"]) for row in rows] == pytest.approx(pred.probs.max(-1).values.tolist(), abs=1e-4)


def test_the_page_asks_whether_scales_hold(tmp_path):
    reply("fit", *FAST, "--prior", "inverse_reference", "--out", tmp_path / "ir", "--json")
    reply("evaluate", tmp_path / "ir", "--json")
    page = (tmp_path / "ir" / "page.html").read_text()
    assert "Do its scales hold?" in page
    assert "Did the scales converge?" not in page  # no density says where they should be


def test_several_runs_are_compared(trained, tmp_path):
    reply("fit", *FAST, "--method", "map", "--out", tmp_path / "m", "--json")
    said = reply("evaluate", trained, tmp_path / "m", "--out", tmp_path / "both.html", "--json")
    assert [each["method"] for each in said] == ["vi", "map"]
    page = (tmp_path / "both.html").read_text()
    for each in said:
        assert f"{100 * each['scores']['accuracy']:.2f}" in page


def test_list_names_what_fit_takes():
    said = reply("list", "--json")
    assert {"digits", "mnist", "uci/concrete"} <= {each["name"] for each in said["data"]}
    assert {"map", "vi", "vl", "sgld", "psgld", "bnp"} <= set(said["methods"])
    assert {"horseshoe", "node_horseshoe", "self_stabilizing", "inverse_reference"} <= set(said["priors"])
    assert {"resnet18", "densenet121", "vgg16"} <= set(said["models"])
    assert "digits" in run("list").stdout


def test_demo_ends_with_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr("credent.recipe.defaults._BY_DATA", {"digits": FEW})
    monkeypatch.setattr("credent.recipe.defaults._REGRESSION", FEW)
    said = reply("demo", "--out", tmp_path, "--json")
    assert (tmp_path / "page.html").stat().st_size > 50_000
    assert set(said["scores"]) == {"MAP", "VI"}


@dataclass(frozen=True)
class Coin(Cell):
    seed: int

    def run(self):
        if self.seed > 1:
            raise ArithmeticError("it stood on its edge")
        return {"heads": 0.4 + 0.01 * self.seed, "data": os.environ.get("CREDENT_DATA")}


class Coins(Experiment):
    title, about = "Coins", "They come up tails."
    takes: ClassVar = {Scale.SMOKE: "no time"}

    def __init__(self, name, seeds):
        self.name, self._seeds = name, seeds

    def setting(self, scale):
        return "As in the paper."

    def cells(self, scale):
        return [Coin(seed) for seed in range(self._seeds)]

    def sections(self, scale, results):
        rows = tuple((each["data"], each["heads"]) for each in results.values() if each)
        return (Section("Coins", (ReportTable("Heads", (Column("data"), Column("share")), rows),)),)

    def verdicts(self, scale, results):
        return (lower("below a half", by_seed(results, "heads"), {0: 0.5, 1: 0.5}),)


@pytest.fixture
def coins(monkeypatch):
    known = {each.name: each for each in (Coins("coin/table1", 2), Coins("coin/figure1", 3))}
    monkeypatch.setattr("credent.papers.EXPERIMENTS", known)
    monkeypatch.setenv("CREDENT_DATA", "elsewhere")  # what --data-dir sets goes with the test


@pytest.mark.usefixtures("coins")
def test_reproduce_one(tmp_path):
    common = ["reproduce", "coin/table1", "--out", tmp_path, "--jobs", "1"]
    said = reply(*common, "--scale", "cpu", "--data-dir", tmp_path, "--json")
    (one,) = said["experiments"]
    assert said["page"] == one["page"] == str(tmp_path / "coin" / "cpu" / "table1.html")
    assert one["verdicts"][0]["outcome"] == "replicated"
    assert one["tables"][0]["rows"][0] == [str(tmp_path), 0.4]
    smoke = run(*common)
    assert smoke.exit_code == 0
    assert "numbers mean nothing" in smoke.stderr.replace("\n", " ")
    assert "not testable" in smoke.stdout
    assert "table1.html" in smoke.stdout.replace("\n", "")


@pytest.mark.usefixtures("coins")
def test_reproduce_a_paper_with_a_failing_cell(tmp_path):
    result = run("reproduce", "coin", "--out", tmp_path, "--jobs", "1", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["page"].endswith("index.html")
    assert [len(each["failures"]) for each in said["experiments"]] == [0, 1]
    assert "stood on its edge" in (tmp_path / "coin" / "smoke" / "figure1.html").read_text()


@pytest.mark.usefixtures("coins")
def test_reproduce_names_what_there_is():
    listed = reply("reproduce", "--list", "--json")
    assert listed[0] == {
        "name": "coin/table1",
        "title": "Coins",
        **{"smoke": "2 cells · no time", "cpu": "2 cells", "paper": "2 cells"},
    }
    assert "coin/figure1" in run("reproduce", "--list").stdout
    unknown = run("reproduce", "coin/tabel1")
    assert unknown.exit_code == 2
    assert "Did you mean 'coin/table1'?" in unknown.stderr.replace("\n", " ")
    assert "coin/figure1" in run("reproduce").stderr.replace("\n", " ")


def test_an_unknown_command_is_answered_with_a_close_one():
    result = run("reprodce")
    assert result.exit_code == 2
    assert "reproduce" in result.stderr


def test_the_list_of_experiments_fits_a_terminal(monkeypatch):
    """Two lines each at most, in 100 columns; only titles wrap."""
    monkeypatch.setenv("COLUMNS", "100")
    lines = [line.rstrip() for line in run("reproduce", "--list").stdout.splitlines()]
    assert max(map(len, lines)) <= 100
    names = [number for number, line in enumerate(lines) if line[1:].split(" ")[0] in EXPERIMENTS]
    assert len(names) == len(EXPERIMENTS) >= 20
    assert max(np.diff(names)) <= 2
    assert "72 · 45 min" in next(line for line in lines if "vl/table1" in line)


@pytest.mark.parametrize(
    "command", [[], ["fit"], ["evaluate"], ["predict"], ["list"], ["demo"], ["data", "download"], ["reproduce"]]
)
def test_help_teaches(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert len(result.stdout) > 200


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fit", "--data", "digit", "--out", "OUT"], 2, "Did you mean 'digits'"),
        (["fit", "--model", "lenet5", "--out", "OUT"], 2, "--model mlp"),
        (["fit", "--method", "vl2", "--out", "OUT"], 2, "map, vi"),
        (["fit", "--random", "heat.*", "--out", "OUT"], 2, "head"),
        (["fit", "--epochs", "-1", "--out", "OUT"], 2, "positive"),
        (["fit", "--beta", "-1", "--out", "OUT"], 2, "not negative"),
        (["fit", "--prior-scale", "wide", "--out", "OUT"], 2, "number"),
        (["fit", "--method", "sgld", "--prior", "inverse_reference", "--out", "OUT"], 2, "--method vi"),
        (["fit", "--method", "bnp", "--prior", "node_horseshoe", "--out", "OUT"], 2, "Train with VI"),
        (["fit", "--prior", "self_stabilizing", "--prior-scale", "1", "--out", "OUT"], 2, "no scale to choose"),
        (["fit", "--method", "sgld", "--epochs", "1", "--batch-size", "1000", "--out", "OUT"], 2, "keeps no draw"),
        (["fit", "--device", "tpu9", "--out", "OUT"], 2, "--device tpu9"),
        (["evaluate", "OUT"], 3, "not a run"),
    ],
)
def test_bad_requests_are_explained(arguments, code, words, tmp_path):
    out = tmp_path / "out"
    result = run(*[out if a == "OUT" else a for a in arguments])
    assert result.exit_code == code
    assert words in result.stderr.replace("\n", " ")
    assert not out.exists()


def test_a_second_run_in_the_same_place_is_refused(trained):
    before = {p.name: p.read_bytes() for p in trained.iterdir() if p.is_file()}
    result = run("fit", *FAST, "--method", "map", "--out", trained)
    assert result.exit_code == 2
    assert "--resume" in result.stderr
    assert before == {p.name: p.read_bytes() for p in trained.iterdir() if p.is_file()}


def test_resume_goes_on_as_it_was_begun(trained):
    before = (trained / "posterior.safetensors").read_bytes()
    said = reply("fit", "--out", trained, "--resume", "--json")
    assert said["steps"] == 2 * math.ceil(1000 / 64)
    assert (trained / "posterior.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2\n", "64 numbers"),
        ("a,b\n", "no row of numbers"),
        ("a,1\n", "row of names"),
        ("a,b\nc,d\n", "row of names"),
        (",".join(["nan"] * 64) + "\n", "row 0"),
    ],
)
def test_bad_inputs_are_explained(text, words, trained, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    result = run("predict", trained, tmp_path / "x.csv")
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")


def test_a_broken_posterior_is_named(trained, tmp_path):
    broken = tmp_path / "b"
    broken.mkdir()
    (broken / "config.json").write_text((trained / "config.json").read_text())
    (broken / "posterior.safetensors").write_bytes((trained / "posterior.safetensors").read_bytes()[:1000])
    result = run("evaluate", broken)
    assert result.exit_code == 3
    assert "posterior.safetensors" in result.stderr.replace("\n", "")


def test_options_without_a_use_are_refused(tmp_path):
    for options in (["--scale-lr", "0.1", "--method", "bnp"], ["--family", "radial", "--method", "sgld"]):
        result = run("fit", "--data", "digits", "--out", tmp_path / "x", *options)
        assert result.exit_code == 2
        assert not (tmp_path / "x").exists()


def test_the_version_is_the_packages():
    assert run("--version").stdout == f"credent {metadata.version('credent')}\n"


def test_errors_are_printed_as_they_are():
    result = run("evaluate", "q:x:[red]/[/x]")
    assert result.exit_code == 3
    assert "error: q:x:[red]/[/x] is not a run" in result.stderr.replace("\n", "")


def test_warnings_are_printed_as_they_are(capsys, monkeypatch):
    monkeypatch.setattr("credent.cli.console.file", None)
    _say(UserWarning("a:x:[/b]"))
    assert capsys.readouterr().err == "warning: a:x:[/b]\n"
