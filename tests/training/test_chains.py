"""Chains: one posterior of many, whether they agree, and how they are run side by side."""

import os
import re
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
from credent.cells import workers
from credent.errors import CredentError, InputError, NonFiniteError
from credent.families import Draws
from credent.families.draws import DrawFiles
from credent.metrics.chains import LEAST
from credent.training.mixing import Chains
from credent.training.progress import StepFile, _read

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


def test_chains_that_stand_still_have_no_rhat():
    """Nothing of the weight moves; of a chain of which some moves, that counts."""
    still = Chains([Draws([{"w": torch.ones(2)}] * 8)] * 2)
    assert np.isnan(still.mixing_of_weights().worst_rhat)
    assert np.isnan(still.mixing_of_weights().least_ess)
    noise = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    some = Chains([Draws([{"w": torch.stack([v, torch.tensor(1.0)])} for v in each]) for each in noise])
    assert some.mixing_of_weights().worst_rhat == float(cr.metrics.rhat(noise))
    apart = Chains([Draws([{"w": torch.full((1,), v)}] * 8) for v in (0.0, 1.0)])
    assert apart.mixing_of_weights().worst_rhat == np.inf


def test_bfloat16_becomes_an_array_and_mixes():
    values = torch.randn(2, 8, 1, generator=torch.Generator().manual_seed(0)).bfloat16()
    q = Chains([Draws([{"w": v} for v in each]) for each in values])
    array = q.to_arrays()["w"]
    assert array.dtype == np.float32
    assert array.tolist() == values.tolist()
    torch.testing.assert_close(cr.metrics.rhat(values), cr.metrics.rhat(values.double()))


def test_too_few_draws_are_named_with_what_helps(q):
    net, likelihood, x = nn.Linear(2, 1), cr.likelihoods.Gaussian(scale=1.0), torch.zeros(1, 2)
    for ask in (q.mixing_of_weights, lambda: q.mixing_of_predictions(net, likelihood, x)):
        with pytest.raises(InputError, match=rf"has 2 draws, .*at least {LEAST}.*Thin\(every="):
            ask()


@pytest.mark.parametrize("other", [{"v": torch.zeros(1)}, {"w": torch.zeros(2)}])
def test_chains_of_different_networks_are_refused(other):
    with pytest.raises(InputError, match=r"chain 1 is of another network than chain 0: 'w' has shape"):
        Chains([Draws([{"w": torch.zeros(1)}]), Draws([other])])


def test_the_module_is_not_hidden_by_the_function():
    assert cr.training.mixing.Chains is Chains
    assert callable(cr.training.chains)


# -- printed ----------------------------------------------------------------------------------------------------------


def test_printed_chains_say_how_many_and_whether_they_agree(q):
    assert repr(q) == "Chains(2 chains, 5 draws)"
    assert (
        str(q) == f"2 chains of 2 to 3 draws of 3 weights; whether they agree is asked of at least {LEAST} draws each"
    )
    noise = torch.randn(3, 40, 2, generator=torch.Generator().manual_seed(0))
    longer = Chains([Draws([{"w": v} for v in each]) for each in noise])
    agree = longer.mixing_of_weights()
    worst, least = cr.metrics.rhat(noise).max(), cr.metrics.ess(noise).min()
    assert str(agree) == f"R-hat at most {worst:.3g}, ESS at least {least:.3g} of 120 draws in 3 chains"
    assert str(longer).startswith(f"3 chains of 40 draws of 2 weights. Of 2 weights: {agree}. ")


def test_of_a_large_network_some_weights_are_looked_at():
    values = torch.randn(2, 8, 5000, generator=torch.Generator().manual_seed(0))
    q = Chains([Draws([{"w": v[:4999], "b": v[4999:]} for v in each]) for each in values])
    assert "Of 101 weights: R-hat" in str(q)


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


@pytest.mark.slow
def test_a_chain_that_is_asked_to_stop_does_not_stop_the_others(ran):
    said = (ran / "stop").read_text()
    for words in ("1 of 3 chains did not finish", "chain 1: it was asked to stop", "resume=True"):
        assert words in said
    assert contents(ran / "stopped") == contents(ran / "quiet")


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
    """Six chains, two at a time; the pool dies under the third, which dies again when it is alone.

    Chain 3 was running beside it and chain 4 had begun in this call too: both go on. Chain 5 was there before.
    """
    calls, resumed = [], {}

    def pool(task, numbers, at_once):
        calls.append(list(numbers))
        for place, number in enumerate(numbers):
            if number == 2:
                for begun in (3, 4):
                    (tmp_path / f"chain-{begun}").mkdir(exist_ok=True)
                raise BrokenProcessPool("killed")
            yield place, task(number)

    def start(seed, **where):
        number = int(where["run_dir"].name[-1])
        resumed[number] = where["resume"]
        return cr.Result(Draws(chain([number])), [], 1, None)

    (tmp_path / "chain-5" / "draws").mkdir(parents=True)
    monkeypatch.setattr(workers, "_side_by_side", pool)
    with pytest.warns(UserWarning, match=r"1 of 6 chains did not finish.*chain 2: the process it ran in died, twice"):
        posterior = cr.chains(start, 6, jobs=2, run_dir=tmp_path)
    assert firsts(posterior.draws()) == [0, 1, 3, 4, 5]
    assert calls == [[0, 1, 2, 3, 4, 5], [2], [3], [4, 5]]
    assert resumed == {0: False, 1: False, 3: True, 4: True, 5: False}


def test_a_worker_that_is_asked_to_stop_is_an_outcome(monkeypatch):
    """In the caller's own process the signal is the caller's."""

    def start(seed, **where):
        started.append(seed)
        if len(started) == 1:
            raise KeyboardInterrupt
        return cr.Result(Draws(chain([1])), [], 1, None)

    started = []
    with pytest.raises(KeyboardInterrupt):
        cr.chains(start, 2, jobs=1)
    assert len(started) == 1
    started.clear()
    numbers = iter([1, 2, 3])  # of the caller, then of workers
    monkeypatch.setattr(os, "getpid", lambda: next(numbers, 3))
    with pytest.warns(UserWarning, match=r"1 of 2 chains did not finish.*chain 0: it was asked to stop"):
        assert len(cr.chains(start, 2, jobs=1)) == 1


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


def diverging(net, seed, **where):
    """A chain whose step is too large, which has left some draws when it says so."""
    x = torch.linspace(-1, 1, 20).reshape(10, 2)
    objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=0.5), num_data=10)
    sampler = cr.samplers.SGLD(net.parameters(), lr=10.0, num_data=10)
    return cr.fit(objective, sampler, [(x, x.sum(1, keepdim=True))], steps=400, keep=cr.Thin(0, 1), **where)


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_a_diverging_chain_had_drawn_is_kept_beside_the_others(tmp_path, on_disk):
    begun = []

    def start(seed, **where):
        begun.append(seed)
        if len(begun) == 2:
            return diverging(nn.Linear(2, 1), seed, **where)
        return cr.Result(Draws(chain([len(begun)])), [], 1, None)

    with pytest.warns(UserWarning, match=r"chain 1: NonFiniteError: .*chains 1 had drawn is in the posterior's `left_"):
        posterior = cr.chains(start, 3, jobs=1, run_dir=tmp_path if on_disk else None)
    assert firsts(posterior.draws()) == [1, 3]
    assert list(posterior.left_out) == [1]
    kept = posterior.left_out[1]
    assert 2 < len(kept) < 400
    assert all(bool(w.isfinite().all()) for params in kept.draws() for w in params.values())


def test_when_all_chains_diverge_the_error_has_their_draws():
    lengths = []

    def start(seed, **where):
        try:
            return diverging(nn.Linear(2, 1), seed, **where)
        except NonFiniteError as error:
            lengths.append(len(error.draws))
            raise

    with pytest.raises(NonFiniteError, match=r"none of 2 chains finished.*`draws`") as caught:
        cr.chains(start, 2, jobs=1)
    assert len(Draws(caught.value.draws)) == sum(lengths) > 4


# -- progress ---------------------------------------------------------------------------------------------------------


def test_chains_in_a_terminal_show_one_line_of_steps(monkeypatch, capsys):
    """Two chains, one after the other: steps of both together, the share of each."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")

    def start(seed, progress, **where):
        for step in range(1, 11):
            progress(step, 10)
        return cr.Result(Draws(chain([1])), [], 1, None)

    cr.chains(start, 2, jobs=1)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "2 chains" in plain
    assert "20/20" in plain
    assert "100% · 100%" in plain


def test_a_step_file_is_read_back_and_a_waiting_chain_has_none(tmp_path):
    tell = StepFile(tmp_path / "0")
    tell(1, 100)
    tell(2, 100)  # just now: not written
    assert _read(tmp_path / "0") == (1, 100)
    tell(100, 100)
    assert _read(tmp_path / "0") == (100, 100)
    assert _read(tmp_path / "1") == (0, 0)
    (tmp_path / "1").write_text("")
    assert _read(tmp_path / "1") == (0, 0)


@pytest.mark.parametrize("forced", [False, True])
def test_elsewhere_and_when_asked_to_be_they_are_quiet(monkeypatch, capsys, forced):
    if forced:
        monkeypatch.setenv("FORCE_COLOR", "1")

    def start(seed, **where):
        assert where["progress"] is False
        return cr.Result(Draws(chain([1])), [], 1, None)

    cr.chains(start, 2, jobs=1, progress=not forced)
    assert capsys.readouterr().err == ""


def test_fit_tells_a_function_how_far_it_is():
    told = []
    net = nn.Linear(2, 1)
    objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=0.5), num_data=10)
    cr.fit(objective, None, [(torch.zeros(10, 2), torch.zeros(10, 1))], steps=3, progress=lambda *how: told.append(how))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_chains_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="at least one chain"):
        cr.chains(lambda seed, **where: None, 0)
    with pytest.raises(CredentError, match=r"none of 2 chains finished; chain 0: InputError: .*keep=cr\.Thin"):
        cr.chains(lambda seed, **where: None, 2, jobs=1)
