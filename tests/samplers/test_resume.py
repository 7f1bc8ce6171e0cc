"""A chain that is killed and goes on has the draws of the chain that was not, byte for byte."""

import multiprocessing
import runpy
import signal
from pathlib import Path

import pytest

CHAIN = Path(__file__).with_name("chain.py")


def child(**task):
    keywords = {"init_globals": {"TASK": task}, "run_name": "__main__"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["credent", "pytest", "_pytest.config", "torch._dynamo"])
    process = context.Process(target=runpy.run_path, args=(str(CHAIN),), kwargs=keywords)
    process.start()
    process.join(60)
    return process.exitcode


def draws(run_dir):
    return {p.name: p.read_bytes() for p in run_dir.glob("draws/*.safetensors")}


@pytest.mark.parametrize("kind", ["SGLD", "PSGLD", "BNPSGLD"])
def test_killed_and_resumed_the_draws_are_the_same_bytes(kind, tmp_path):
    """Killed in burn-in, right before it ends, and when the preconditioner is frozen."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    runpy.run_path(str(CHAIN))["run"](str(whole), kind)
    for killed_at in (7, 9, 14):
        assert child(run_dir=str(broken), kind=kind, killed_at=killed_at) == -signal.SIGKILL
    assert not (broken / "posterior.safetensors").exists()
    assert child(run_dir=str(broken), kind=kind) == 0
    assert len(draws(whole)) == 9
    assert draws(broken) == draws(whole)
