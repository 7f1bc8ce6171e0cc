"""A run that is stopped, however it is stopped, ends in the bytes of the run that was not."""

import errno
import hashlib
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import credent as cr
from credent import files, native
from credent.data import batches
from credent.errors import CheckpointError, CredentError, InputError
from credent.training import checkpoint


def digest(run_dir):
    """What a run leaves: the posterior's and the history's bytes, and those of each draw."""
    names = [
        "posterior.safetensors",
        "history.jsonl",
        *(f"draws/{p.name}" for p in run_dir.glob("draws/*.safetensors")),
    ]
    return {name: hashlib.sha256((run_dir / name).read_bytes()).hexdigest() for name in sorted(names)}


def contents(directory):
    return {p.relative_to(directory): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def newest(run_dir):
    return max((int(p.stem.removeprefix("step-")) for p in run_dir.glob("checkpoint/step-*.pt")), default=0)


@pytest.fixture(scope="module")
def uninterrupted(scenario, tmp_path_factory):
    """Each variant's bytes when nothing happens, from this process."""
    found = {}

    def of(variant):
        if variant not in found:
            run_dir = tmp_path_factory.mktemp(variant)
            assert scenario.train(str(run_dir), variant).steps == scenario.STEPS[variant]
            found[variant] = digest(run_dir)
        return found[variant]

    return of


@pytest.mark.parametrize(
    ("variant", "known"),
    [
        ("schedule", (0, 3, 9, 15)),
        ("draws", (0, 3, 9, 15)),
        ("average", (0, 3, 9, 15)),
        ("transform", (0, 2, 6, 8)),
    ],
)
def test_killed_in_mid_epoch_it_ends_in_the_same_bytes(child, uninterrupted, tmp_path, variant, known):
    """Before any checkpoint, in the first epoch's middle, and in later ones; `known` are the newest checkpoints."""
    for after, step in zip((2, 5, 9, 7), known, strict=True):
        assert child(run_dir=str(tmp_path), variant=variant, how="SIGKILL", after=after) == -signal.SIGKILL
        assert newest(tmp_path) == step
        assert not (tmp_path / "posterior.safetensors").exists()
    assert child(run_dir=str(tmp_path), variant=variant) == 0
    assert digest(tmp_path) == uninterrupted(variant)


def test_killed_from_outside_at_any_moment_it_ends_in_the_same_bytes(start, child, uninterrupted, tmp_path):
    """A child that is done before the signal comes is no failure: the machine may be busy."""
    chance, codes = random.Random(0), []
    for _ in range(3):
        process, before = start(run_dir=str(tmp_path), variant="draws", how="slow"), newest(tmp_path)
        deadline = time.monotonic() + 30
        while newest(tmp_path) == before and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.03))
        process.kill()
        process.join()
        codes.append(process.exitcode)
    assert codes[0] == -signal.SIGKILL
    assert set(codes) <= {-signal.SIGKILL, 0}
    assert child(run_dir=str(tmp_path), variant="draws") == 0
    assert digest(tmp_path) == uninterrupted("draws")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_asked_to_stop_it_finishes_its_step_and_writes_a_checkpoint(child, uninterrupted, tmp_path, name):
    task = {"run_dir": str(tmp_path), "variant": "schedule", "checkpoint_every": 1000}
    assert child(**task, how=name, after=8) == 130
    assert newest(tmp_path) == 8
    assert child(**task, how=name, after=10) == 130  # the last step of an epoch
    assert newest(tmp_path) == 18
    assert child(**task) == 0
    assert digest(tmp_path) == uninterrupted("schedule")


@pytest.mark.parametrize("how", ["unfinished", "truncated"])
def test_killed_in_a_checkpoint_the_one_before_it_serves(child, uninterrupted, tmp_path, how):
    """Before the rename, and with a newest file that has lost its end."""
    task = {"run_dir": str(tmp_path), "variant": "draws"}
    assert child(**task, how=how, after=8) == 9
    assert newest(tmp_path) == (9 if how == "truncated" else 6)
    assert len(list(tmp_path.glob("checkpoint/.*.part"))) == (0 if how == "truncated" else 1)
    assert checkpoint.load(tmp_path / "checkpoint")["step"] == 6
    assert child(**task) == 0
    assert digest(tmp_path) == uninterrupted("draws")
    assert not list(tmp_path.glob("checkpoint/.*.part"))


def test_a_full_disk_stops_the_run_and_harms_nothing(child, uninterrupted, tmp_path):
    """The system refuses to write more than 8 KiB into a file from the eighth step on."""
    task = {"run_dir": str(tmp_path), "variant": "schedule"}
    assert child(**task, how="full", after=8) == 3
    message = (tmp_path / "error.txt").read_text()
    assert "cannot write" in message
    assert "step-000000009.pt" in message
    assert "untouched" in message
    assert "free some space" in message
    assert newest(tmp_path) == 6
    assert not list(tmp_path.glob("checkpoint/.*.part"))
    assert child(**task) == 0
    assert digest(tmp_path) == uninterrupted("schedule")


@pytest.mark.parametrize("broken", ["fsync", "open"])
def test_no_space_left_says_what_to_do(build, rows, tmp_path, monkeypatch, broken):
    """A checkpoint cannot be forced to disk; a row of the history cannot be written."""
    own = open

    def refuse(*arguments, **_):
        if broken == "open" and "a" not in arguments[1:]:
            return own(*arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    fit = {"objective": build("MAP"), "optimizer": None, "loader": batches(rows, 8), "progress": False, "log_every": 1}
    cr.fit(**fit, steps=3, run_dir=tmp_path)
    before = contents(tmp_path / "checkpoint"), (tmp_path / "posterior.safetensors").read_bytes()
    if broken == "fsync":
        monkeypatch.setattr(files.os, "fsync", refuse)
    else:
        monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(CredentError, match=r"cannot write .*No space left.*free some space.*go on"):
        cr.fit(**fit, steps=6, run_dir=tmp_path, resume=True)
    monkeypatch.undo()
    assert (contents(tmp_path / "checkpoint"), (tmp_path / "posterior.safetensors").read_bytes()) == before
    assert cr.fit(**fit, steps=6, run_dir=tmp_path, resume=True).steps == 6


def test_a_finished_run_returns_at_once(scenario, uninterrupted, tmp_path, monkeypatch):
    first = scenario.train(str(tmp_path), "draws")
    given = scenario.arguments("draws")
    monkeypatch.setattr(type(given["objective"]), "forward", lambda *_: pytest.fail("it trains again"))
    again = cr.fit(**given, run_dir=tmp_path, resume=True)
    assert digest(tmp_path) == uninterrupted("draws")
    assert (again.steps, again.history) == (first.steps, first.history)
    assert len(again.posterior) == len(first.posterior)


@pytest.mark.parametrize("variant", ["schedule", "average", "transform"])
def test_a_finished_run_can_be_made_longer(scenario, tmp_path, variant):
    """Two epochs, looked at again, and two more are four epochs: between epochs nothing is lost either."""
    straight = scenario.train(str(tmp_path / "straight"), variant, epochs=4)
    for epochs in (2, 2, 4):
        longer = scenario.train(str(tmp_path / "longer"), variant, epochs=epochs)
    assert digest(tmp_path / "longer") == digest(tmp_path / "straight")
    assert longer.history == straight.history


def test_steps_that_end_in_mid_epoch_can_be_made_more(scenario, tmp_path):
    """Also after the finished run was looked at, by a process whose generators were elsewhere."""
    given = {"epochs": None, "val": None, "scheduler": None}
    scenario.train(str(tmp_path / "straight"), "draws", steps=15, keep=None, **given)
    for steps in (8, 8, 15):
        scenario.train(str(tmp_path / "longer"), "draws", steps=steps, keep=None, **given)
    one, other = digest(tmp_path / "straight"), digest(tmp_path / "longer")
    assert one["posterior.safetensors"] == other["posterior.safetensors"]


def test_without_a_checkpoint_resume_begins(build, rows, tmp_path):
    result = cr.fit(build(), None, batches(rows, 8), steps=2, run_dir=tmp_path, resume=True, progress=False)
    assert result.steps == 2


# -- what cannot go on ------------------------------------------------------------------------------------------------


def conv(layout=torch.contiguous_format):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(3, 3)).to(memory_format=layout)
    return cr.VI(net, cr.likelihoods.Categorical(), num_data=32)


def images():
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(8, 2, 2, 2, generator=generator), torch.zeros(8, dtype=torch.long))]


def test_another_memory_format_is_refused(tmp_path):
    fit = {"loader": images(), "progress": False, "run_dir": tmp_path}
    cr.fit(conv(), None, steps=2, **fit)
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=r"memory order of 0\.weight is \[8, 4, 2, 1\].*is \[8, 1, 4, 2\]"):
        cr.fit(conv(torch.channels_last), None, steps=4, resume=True, **fit)
    assert contents(tmp_path) == before
    assert cr.fit(conv(), None, steps=4, resume=True, **fit).steps == 4


def test_another_run_is_refused_and_nothing_on_disk_changes(build, rows, tmp_path):
    def fit(objective, optimizer=None, scheduler=None, loader=None, **options):
        optimizer = optimizer or torch.optim.Adam(objective.param_groups(lr=1e-3))
        made = None if scheduler is None else scheduler(optimizer)
        loader = [tuple(rows.tensors)] if loader is None else loader
        return cr.fit(objective, optimizer, loader, progress=False, run_dir=tmp_path, scheduler=made, **options)

    fit(build(), steps=2)
    before = contents(tmp_path)

    def refused(match, objective, optimizer=None, **options):
        with pytest.raises(CheckpointError, match=f"{match}.*Build everything as the run was begun"):
            fit(objective, optimizer, steps=4, resume=True, **options)
        assert contents(tmp_path) == before

    narrow = cr.VI(
        nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), cr.likelihoods.Categorical(), num_data=32
    )
    refused(r"shape of net\.0\.weight is \[8, 5\], this one's is \[7, 5\]", narrow)
    refused("shape of net", build(norm=True))
    refused("objective is VI, this one's is MAP", build("MAP"))
    refused("num_data is 32, this one's is 64", build(num_data=64))
    refused("posterior is GaussianPosterior, this one's is RadialPosterior", build(family=cr.families.Radial()))
    bnn = build()
    refused("optimizer is Adam, this one's is SGD", bnn, torch.optim.SGD(bnn.param_groups(lr=0.1)))
    refused("number of parameters in each group", bnn, torch.optim.Adam(bnn.parameters(), lr=1e-3))
    refused(
        "scheduler is None, this one's is ExponentialLR",
        build(),
        scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    )
    refused("batch size is None, this one's is 8", build(), loader=batches(rows, 8))
    refused("plan of draws is None", build(), keep=cr.Thin(after=0, every=1))
    assert fit(build(seed=9), steps=4, resume=True).steps == 4


@pytest.mark.skipif(native.kernels is None, reason="nothing was compiled, so that nothing can be missing")
def test_a_run_does_not_go_on_with_other_normal_numbers(build, rows, tmp_path, monkeypatch):
    fit = {"loader": batches(rows, 8), "run_dir": tmp_path, "progress": False}
    cr.fit(build(), None, steps=2, **fit)
    monkeypatch.setattr(native, "kernels", None)
    with pytest.raises(CheckpointError, match="source of normal numbers is compiled loops, this one's is torch"):
        cr.fit(build(), None, steps=4, resume=True, **fit)


def test_a_used_directory_is_not_used_again(build, rows, tmp_path):
    for keep, name in ((None, "checkpoint"), (cr.Thin(after=0, every=1), "draws")):
        run_dir = tmp_path / name
        fit = {"loader": batches(rows, 8), "steps": 2, "progress": False, "run_dir": run_dir, "keep": keep}
        cr.fit(build(), None, **fit)
        before = contents(run_dir)
        with pytest.raises(InputError, match=r"already holds a run \(.*history.*resume=True.*another run_dir"):
            cr.fit(build(seed=1), None, **fit)
        assert contents(run_dir) == before
        (run_dir / "history.jsonl").unlink()
        (run_dir / "posterior.safetensors").unlink()
        for path in run_dir.glob("checkpoint/*"):
            path.unlink()
        (run_dir / "checkpoint").rmdir()
        if keep is not None:  # draws alone are somebody's too
            with pytest.raises(InputError, match=r"already holds a run \(draws\)"):
                cr.fit(build(seed=1), None, **fit)
            assert len(list(run_dir.glob("draws/*"))) == 2


def test_resume_needs_a_directory(build, rows):
    with pytest.raises(InputError, match="name it with run_dir="):
        cr.fit(build(), None, batches(rows, 8), steps=1, resume=True, progress=False)


def test_half_written_lines_and_late_rows_are_dropped(scenario, uninterrupted, tmp_path, child):
    """What a killed process wrote after its last checkpoint is written again, once."""
    child(run_dir=str(tmp_path), variant="schedule", how="SIGKILL", after=12)
    with open(Path(tmp_path, "history.jsonl"), "a") as file:
        file.write('{"step": 12, "nll": 1.0}\n{"step": 13, "n')
    scenario.train(str(tmp_path), "schedule")
    assert digest(tmp_path) == uninterrupted("schedule")
