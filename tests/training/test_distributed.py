"""Two processes under torchrun train as one does on the joined batch."""

import hashlib
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import credent as cr

SCRIPT = Path(__file__).with_name("ranks.py")


@pytest.fixture(scope="module")
def single():
    """ranks.py in this process."""
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes found, and the directory that they wrote to."""
    directory = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
    done = subprocess.run(
        [*command, str(SCRIPT), str(directory)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [torch.load(directory / f"rank{i}.pt", weights_only=True) for i in (0, 1)], directory


@pytest.mark.parametrize("kind", ["MAP", "VI"])
def test_two_processes_take_the_steps_of_one(single, two, kind):
    """Twenty momentum steps, with an odd batch and one of a single row; VI by one stream of noise for all."""
    expected = single.weights({"MAP": cr.MAP, "VI": cr.VI}[kind])
    start = single.objective({"MAP": cr.MAP, "VI": cr.VI}[kind]).state_dict()
    for found in two[0]:
        assert found[kind].keys() == expected.keys()
        for k, w in expected.items():
            torch.testing.assert_close(found[kind][k], w, rtol=0, atol=1e-6)
            assert k == "likelihood.temperature" or (w - start[k]).abs().max() > 1e-3  # which training does not see
    assert all(torch.equal(two[0][0][kind][k], two[0][1][kind][k]) for k in expected)


def test_the_expected_gradient_is_that_of_the_bound(single, two):
    """In a linear regression, by hand: with residuals r, noise s and scales sigma,

    d/dmu = -x'r / (B s^2) + mu / N,     d/dsigma = mean(x^2) sigma / s^2 + (sigma - 1 / sigma) / N.
    """
    bnn, x, y = single.line()
    mu, s2 = bnn.net.weight.detach()[0], 0.7**2
    (rho,) = bnn.param_groups(lr=0.0)[1]["params"]
    sigma = bnn.posterior.stddev()["weight"][0].clone()
    with torch.no_grad():
        rho.add_(1e-7)
        slope = (bnn.posterior.stddev()["weight"][0] - sigma) / 1e-7  # however sigma follows from rho
    by_mu = -(x * (y - x @ mu[:, None])).mean(0) / s2 + mu / 7
    by_sigma = x.square().mean(0) * sigma / s2 + (sigma - 1 / sigma) / 7
    expected = torch.cat([by_mu, by_sigma * slope])
    for found in two[0]:
        seen = found["gradients"]
        error = seen.std(0) / single.DRAWS**0.5
        # mirrored noise makes the means' gradient exact, so that rounding and the slope's error are all that is left
        assert ((seen.mean(0) - expected).abs() < 4 * error + 1e-6).all()
        assert (error < 0.1 * expected.abs().max()).all()  # or a lost factor of two would not show


def test_both_take_the_same_draws_without_files(two):
    (one, other), _ = two
    assert len(one["kept"]) == len(other["kept"]) == 2
    for a, b in zip(one["kept"], other["kept"], strict=True):
        assert all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(("how", "seed"), [("own", None), ("seeded", 3)])
def test_a_sampler_adds_the_same_noise_everywhere(single, two, how, seed):
    """Each process built its sampler with a seed of its own; the stream of the first, or of fit's seed, is all's."""
    expected = single.sampled(seed)
    for found in two[0]:
        for draw, other in zip(found["sampled"][how], expected, strict=True):
            for k, w in draw.items():
                torch.testing.assert_close(w, other[k], rtol=0, atol=1e-6)


def test_only_the_first_writes(two):
    directory = two[1]
    names = {p.name for p in (directory / "only0").iterdir()}
    assert names == {"history.jsonl", "checkpoint", "posterior.safetensors"}
    assert not (directory / "only1").exists()


def test_a_stopped_run_goes_on_to_the_same_bytes(two):
    found, directory = two

    def digest(run_dir):
        paths = [p for p in run_dir.rglob("*") if p.is_file() and p.suffix != ".pt"]
        return {str(p.relative_to(run_dir)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(paths)}

    assert digest(directory / "whole") == digest(directory / "stopped")
    assert "draws/00000003.safetensors" in digest(directory / "whole")
    assert [each["draws"] for each in found] == [4, 4]  # ceil(0.25 * 12) = 3: steps 5, 7, 9, 11


def test_both_refuse_a_used_directory(two):
    for found in two[0]:
        assert "already holds a run" in found["refused"]


@pytest.mark.parametrize("name", ["alone", "nested", "shuffled"])
def test_each_epoch_is_every_row_once_in_a_new_order(two, name):
    """Also where the ranks would draw unequal numbers from the generator that shuffles."""
    one, other = (torch.tensor(found["orders"][name]).reshape(3, -1) for found in two[0])
    for epoch in range(3):
        assert sorted([*one[epoch].tolist(), *other[epoch].tolist()]) == list(range(24))
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one[1], one[2])
