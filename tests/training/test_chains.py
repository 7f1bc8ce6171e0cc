"""Chains: one posterior of many, whether they agree, and how they are run side by side."""

import os
import subprocess
import sys
import types
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import CredentError, InputError
from credent.families import Draws
from credent.families.draws import DrawFiles
from credent.training import processes
from credent.training.chains import Chains

SCRIPT = Path(__file__).with_name("side_by_side.py")


def chain(values):
    return [{"weight": torch.tensor([[float(v), -float(v)]]), "bias": torch.tensor([1.0])} for v in values]


def firsts(draws):
    return [float(params["weight"][0, 0]) for params in draws]


@pytest.fixture(params=["memory", "disk"])
def q(request, tmp_path):
    """Chains of three and two draws."""
    chains = [chain([0, 1, 2]), chain([10, 11])]
    if request.param == "memory":
        return Chains([Draws(each) for each in chains])
    for i, each in enumerate(chains):
        files = DrawFiles(tmp_path / f"chain-{i}" / "draws")
        for params in each:
            files.append(params)
    return Chains([Draws(tmp_path / f"chain-{i}" / "draws") for i in range(2)])


def test_all_draws_in_order_and_each_chain_by_itself(q):
    assert len(q) == 5
    assert firsts(q.draws()) == [0, 1, 2, 10, 11]
    assert [firsts(each.draws()) for each in q.chains] == [[0, 1, 2], [10, 11]]
    assert float(q[-1]["weight"][0, 0]) == 11
    assert firsts(q.draws(2)) == [0, 2]
    with pytest.raises(IndexError):
        q[5]


def test_moments_are_those_of_the_joined_draws(q):
    values = np.array([0, 1, 2, 10, 11])
    assert float(q.mean()["weight"][0, 0]) == pytest.approx(values.mean())
    assert float(q.stddev()["weight"][0, 1]) == pytest.approx(values.std())
    assert q.sample(5)["weight"].shape == (5, 1, 2)


def test_prediction_sees_a_posterior(q):
    pred = cr.predict(nn.Linear(2, 1), q, cr.likelihoods.Gaussian(scale=1.0), torch.tensor([[1.0, 0.0]]), samples=None)
    assert float(pred.mean) == pytest.approx(4.8 + 1)


def test_arrays_are_by_chain_and_draw(q):
    arrays = q.to_arrays()
    assert arrays["weight"].shape == (2, 2, 1, 2)  # the last two of each
    assert arrays["weight"][:, :, 0, 0].tolist() == [[1, 2], [10, 11]]
    assert set(q.to_arrays("b*")) == {"bias"}
    with pytest.raises(InputError, match=r"'head\.\*' matches no parameter; there are .*bias"):
        q.to_arrays("head.*")


def test_no_chain_is_no_posterior():
    with pytest.raises(InputError, match="at least one chain"):
        Chains([])


# -- do they agree? ---------------------------------------------------------------------------------------------------


def test_mixing_of_weights_and_of_predictions():
    """Chains that sit at w and at -w predict the same from |w|: bad in the weight, good in the prediction."""

    class Fold(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return x * self.w.abs()

    values = 5 + torch.randn(2, 200, generator=torch.Generator().manual_seed(0))
    values[1] *= -1
    q = Chains([Draws([{"w": v[None]} for v in each]) for each in values])
    weights = q.mixing_of_weights()
    assert weights.worst_rhat == float(cr.metrics.rhat(values[:, :, None])) > 1.5
    assert weights.least_ess == float(cr.metrics.ess(values[:, :, None])) < 10
    x = torch.tensor([[1.0], [2.0]])
    seen = q.mixing_of_predictions(Fold(), cr.likelihoods.Gaussian(scale=1.0), x)
    assert seen.rhat["predictions"].shape == (2, 1)
    assert seen.worst_rhat < 1.02
    assert seen.least_ess > 250
    torch.testing.assert_close(seen.ess["predictions"][0, 0], cr.metrics.ess(values.abs()))


def test_classes_are_judged_by_their_probabilities():
    logits = torch.randn(2, 40, 3, generator=torch.Generator().manual_seed(0))
    net = nn.Linear(1, 3)
    fixed = {"weight": torch.zeros(3, 1)}
    q = Chains([Draws([{**fixed, "bias": f} for f in each]) for each in logits])
    seen = q.mixing_of_predictions(net, cr.likelihoods.Categorical(), torch.zeros(1, 1))
    torch.testing.assert_close(seen.rhat["predictions"][0], cr.metrics.rhat(logits.softmax(-1)))


# -- arviz ------------------------------------------------------------------------------------------------------------


def test_arviz_by_its_two_majors(q, monkeypatch):
    """0.x takes groups as keywords, 1.x a dict of groups."""
    for version in ("0.23.4", "1.3.0"):
        fake = types.ModuleType("arviz")
        fake.__version__ = version
        fake.from_dict = lambda *args, **groups: (args, groups)
        monkeypatch.setitem(sys.modules, "arviz", fake)
        args, groups = q.to_arviz("weight")
        given = groups["posterior"] if version.startswith("0") else args[0]["posterior"]
        assert bool(args) == version.startswith("1")
        assert given["weight"].shape == (2, 2, 1, 2)


def test_without_arviz_the_error_says_what_to_install(q, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(CredentError, match=r"pip install arviz.*to_arrays\(\)"):
        q.to_arviz()


def test_arviz_itself(q):
    pytest.importorskip("arviz")
    found = q.to_arviz()
    assert dict(found.posterior.sizes)["chain"] == 2
    assert found.posterior["weight"].values.tolist() == q.to_arrays()["weight"].tolist()


# -- side by side -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("chains")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore::UserWarning:joblib", str(SCRIPT), str(directory)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return directory


def contents(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*.safetensors"))}


@pytest.mark.slow
def test_each_chain_has_its_own_place_start_and_noise(ran):
    found = contents(ran / "quiet")
    assert len(found) == 3 * 13
    for name in ("00000000", "00000011"):
        assert len({found[f"chain-{c}/draws/{name}.safetensors"] for c in range(3)}) == 3


@pytest.mark.slow
def test_a_killed_process_costs_no_draw(ran):
    """Two at a time, one of them killed with the pool it was in: the bytes are those of chains that ran in peace."""
    assert (ran / "mark").exists()
    assert contents(ran / "killed") == contents(ran / "quiet")


@pytest.mark.slow
def test_a_chain_that_raises_does_not_stop_the_others(ran):
    said = (ran / "said").read_text()
    for words in ("1 of 3 chains did not finish", "chain 2: ArithmeticError: by zero", "resume=True"):
        assert words in said
    assert (ran / "counts").read_text() == f"2 4 {4 * 12}"
    found = contents(ran / "raised")
    assert {k: v for k, v in found.items() if "chain-3" not in k} == contents(ran / "quiet")


def test_in_this_process_streams_and_threads_stay_as_they_are(tmp_path):
    """`jobs=1` needs no process; seeds come from `seed`, and torch's own stream is where it was."""
    seeds = []

    def start(seed, **where):
        seeds.append((seed, torch.initial_seed(), torch.get_num_threads()))
        assert where == {"run_dir": None, "resume": False, "progress": False}
        return cr.Result(Draws(chain([seed])), [], 1, None)

    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    posterior = cr.chains(start, 3, jobs=1)
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads
    assert len(posterior.chains) == 3
    assert len({seed for seed, _, _ in seeds}) == 3
    assert all(seed == seeded and one == 1 for seed, seeded, one in seeds)
    before = list(seeds)
    cr.chains(start, 2, jobs=1)
    assert seeds[3:] == before[:2]  # not by how many there are
    cr.chains(start, 1, jobs=1, seed=1)
    assert seeds[-1] not in before


def test_what_follows_when_a_process_dies(tmp_path, monkeypatch):
    """Five chains, two at a time; the pool dies under the third, which dies again when it is alone."""
    calls = []

    def pool(task, numbers, at_once, again):
        calls.append((list(numbers), again))
        for number in numbers:
            if number == 2:
                raise BrokenProcessPool("killed")
            yield task(number, again)

    def start(seed, **where):
        assert where["resume"] == (where["run_dir"].name == "chain-3")  # it was running beside, and goes on
        return cr.Result(Draws(chain([where["run_dir"].name[-1]])), [], 1, None)

    monkeypatch.setattr(processes, "_side_by_side", pool)
    with pytest.warns(UserWarning, match=r"1 of 5 chains did not finish.*chain 2: the process it ran in died, twice"):
        posterior = cr.chains(start, 5, jobs=2, run_dir=tmp_path)
    assert firsts(posterior.draws()) == [0, 1, 3, 4]
    assert calls == [([0, 1, 2, 3, 4], False), ([2], True), ([3], True), ([4], False)]


def test_one_that_raises_among_others():
    def start(seed, **where):
        if len(seen) == 1:
            seen.append(seed)
            raise ArithmeticError("by zero")
        seen.append(seed)
        return cr.Result(Draws(chain([len(seen)])), [], 1, None)

    seen = []
    with pytest.warns(UserWarning, match=r"1 of 3 chains did not finish.*chain 1: ArithmeticError: by zero"):
        posterior = cr.chains(start, 3, jobs=1)
    assert firsts(posterior.draws()) == [1, 3]


def test_chains_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="at least one chain"):
        cr.chains(lambda seed, **where: None, 0)
    with pytest.raises(CredentError, match=r"none of 2 chains finished; chain 0: InputError: .*keep=cr\.Thin"):
        cr.chains(lambda seed, **where: None, 2, jobs=1)
