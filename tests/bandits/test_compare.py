"""Many seeds in groups and processes, one file each: the same table whatever was grouped, stopped or resumed."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from credent.bandits import SGD, Linear, LinearThompson, Schedule, Trials, Uniform, Wheel, compare, play
from credent.bandits.agent import seed_for
from credent.errors import InputError

WORLDS = {"linear": Linear(features=3, arms=2), "wheel": Wheel(delta=0.5)}
AGENTS = {"uniform": Uniform(), "Thompson": LinearThompson(noise=0.5)}


@dataclass(frozen=True)
class Failing:
    """Plays well with even seeds only."""

    def start(self, features, arms, seeds):
        if any(seed % 2 for seed in seeds):
            raise RuntimeError("odd")
        return Uniform().start(features, arms, seeds)


@dataclass(frozen=True)
class WildOnce:
    """To seed 1 it pays so much that a network overflows."""

    features = arms = 2

    def trials(self, n, generator):
        pays = torch.tensor([0.0, 1.0]).expand(n, 2)
        scale = 1e30 if generator.initial_seed() == seed_for([1], "environment") else 1.0
        return Trials(torch.randn(n, 2, generator=generator), pays, scale * pays)


def same(a, b):
    assert a.regret.keys() == b.regret.keys()
    for key in a.regret:
        np.testing.assert_array_equal(a.regret[key], b.regret[key])


def test_curves_are_cumulative_regret_by_seed(tmp_path):
    found = compare(WORLDS, AGENTS, 150, range(5), tmp_path, together=2, jobs=1, progress=False)
    assert list(found.regret) == [(w, a) for w in WORLDS for a in AGENTS]
    assert found.after[-1] == 150
    assert len(found.after) == 100
    for (world, name), curve in found.regret.items():
        plain = torch.cat([play(WORLDS[world], AGENTS[name], 150, (seed,)) for seed in range(5)])
        np.testing.assert_allclose(curve, plain.cumsum(1)[:, found.after - 1], rtol=1e-12)
        np.testing.assert_allclose(found.mean(world, name), curve.mean(0))
        np.testing.assert_allclose(found.error(world, name), curve.std(0, ddof=1) / 5**0.5)
    assert len(list(tmp_path.glob("*.json"))) == 4 * 3


def test_table_and_figure(tmp_path):
    found = compare(WORLDS, AGENTS, 20, range(3), tmp_path, jobs=1, progress=False)
    table = found.table()
    assert [column.label for column in table.columns] == ["agent", "linear", "linear, seeds", "wheel", "wheel, seeds"]
    assert [row[0] for row in table.rows] == ["uniform", "Thompson"]
    assert [row[2] for row in table.rows] == [3, 3]
    assert table.rows[1][3].value == pytest.approx(found.mean("wheel", "Thompson")[-1])
    assert "20 decisions" in table.caption
    drawing = found.figure("linear").drawing
    for agent in AGENTS:
        assert drawing.count(f'data-part="curve {agent}"') == 1
        assert drawing.count(f'data-part="band {agent}"') == 1


def test_agents_and_environments_with_the_same_fields_are_not_mixed_up(tmp_path):
    """Neither `Uniform` nor `Failing` has a field: their class must tell them apart."""
    agents = {"uniform": Uniform(), "failing": Failing()}
    with pytest.warns(UserWarning, match="failing on wheel: 1 of 3 seeds did not come to the end"):
        found = compare({"wheel": Wheel()}, agents, 20, (0, 1, 2), tmp_path, together=1, jobs=1, progress=False)
    uniform, failing = (found.regret["wheel", name] for name in agents)
    assert found.seeds == (0, 1, 2)
    np.testing.assert_array_equal(failing[[0, 2]], uniform[[0, 2]])  # `Failing` plays as `Uniform` does: pairs of seeds
    assert np.isnan(failing[1]).all()
    assert found.failures == {("wheel", "failing"): {1: "RuntimeError: odd"}}
    np.testing.assert_allclose(found.mean("wheel", "failing"), uniform[[0, 2]].mean(0))
    np.testing.assert_allclose(found.error("wheel", "failing"), uniform[[0, 2]].std(0, ddof=1) / 2**0.5)
    assert [row[2] for row in found.table().rows] == [3, 2]
    with pytest.raises(InputError, match="at least one seed"):
        compare({"wheel": Wheel()}, agents, 20, (0,), tmp_path, together=0)


def test_a_pair_of_which_every_seed_failed_is_empty_and_not_an_error(tmp_path):
    agents = {"uniform": Uniform(), "failing": Failing()}
    with pytest.warns(UserWarning, match="2 of 2 seeds .* RuntimeError: odd"):
        found = compare({"wheel": Wheel()}, agents, 20, (1, 3), tmp_path, jobs=1, progress=False)
    assert np.isnan(found.mean("wheel", "failing")).all()
    assert np.isnan(found.error("wheel", "failing")).all()
    assert found.table().rows[1] == ("failing", None, 0)
    assert found.table().texts()
    assert "curve failing" not in found.figure("wheel").drawing


def test_a_seed_that_diverged_is_a_row_of_nan_with_its_reason(tmp_path):
    agents = {"SGD": SGD(hidden=(6,), lr=1e-3, schedule=Schedule(random=40, every=10, steps=4, batch=16))}
    with pytest.warns(UserWarning, match="1 of 3 seeds .* seed 1: SGD: the loss is"):
        found = compare({"wild": WildOnce()}, agents, 100, range(3), tmp_path, jobs=1, progress=False)
    assert np.isfinite(found.regret["wild", "SGD"][:, -1]).tolist() == [True, False, True]
    assert list(found.failures["wild", "SGD"]) == [1]
    with pytest.warns(UserWarning, match="1 of 3 seeds"):  # read from the file
        same(found, compare({"wild": WildOnce()}, agents, 100, range(3), tmp_path, jobs=1, progress=False))


def test_a_group_of_which_every_seed_diverged_keeps_its_curves_and_blames_each_for_itself(tmp_path):
    agents = {"SGD": SGD(hidden=(6,), lr=1e-3, schedule=Schedule(random=40, every=10, steps=4, batch=16))}
    with pytest.warns(UserWarning, match="1 of 2 seeds .* seed 1: SGD"):
        found = compare({"wild": WildOnce()}, agents, 100, (1, 2), tmp_path, together=1, jobs=1, progress=False)
    curve = found.regret["wild", "SGD"][0]
    assert np.isfinite(curve[:40]).all()
    assert np.isnan(curve[-1])
    assert list(found.failures["wild", "SGD"]) == [1]
    assert found.failures["wild", "SGD"][1].startswith("seed 1: SGD: the loss is")


def test_printed_it_is_a_small_table(tmp_path):
    found = compare(WORLDS, AGENTS, 20, range(3), tmp_path, jobs=1, progress=False)
    caption, head, uniform, thompson = str(found).splitlines()
    assert caption == "Cumulative regret after 20 decisions (± one standard error)"
    assert head.split() == ["agent", "linear", "linear,", "seeds", "wheel", "wheel,", "seeds"]
    assert uniform.startswith("uniform   ")
    value, error = found.mean("linear", "Thompson")[-1], found.error("linear", "Thompson")[-1]
    name, mean, _, spread, count, *_ = thompson.split()
    assert (name, count) == ("Thompson", "3")
    assert float(mean) == pytest.approx(value, rel=0.1)
    assert float(spread) == pytest.approx(error, rel=0.1)
    assert len({len(line) for line in (head, uniform, thompson)}) == 1
    assert repr(found) == str(found)


def test_seeds_are_checked_and_may_be_an_array(tmp_path):
    world, agent = {"wheel": Wheel()}, {"uniform": Uniform()}
    found = compare(world, agent, 10, np.arange(2), tmp_path, jobs=1, progress=False)
    same(found, compare(world, agent, 10, (0, 1), tmp_path, jobs=1, progress=False))
    for wrong in ((0, 0), 3, ()):
        with pytest.raises(InputError, match=r"compare\(seeds="):
            compare(world, agent, 10, wrong, tmp_path, jobs=1, progress=False)


def test_what_cannot_be_known_by_its_fields_teaches(tmp_path):
    class Plain(Uniform):
        pass

    @dataclass
    class Thawed:
        features: int = 2

    with pytest.raises(InputError, match=r"'mine' is of Plain.*write @dataclass\(frozen=True\) above class Plain"):
        compare({"wheel": Wheel()}, {"mine": Plain()}, 10, (0,), tmp_path, jobs=1, progress=False)
    with pytest.raises(InputError, match=r"'world' is of Thawed.*write @dataclass\(frozen=True\) above class Thawed"):
        compare({"world": Thawed()}, {"uniform": Uniform()}, 10, (0,), tmp_path, jobs=1, progress=False)


def test_a_single_seed_has_no_standard_error(tmp_path):
    found = compare({"wheel": Wheel()}, {"uniform": Uniform()}, 10, (0,), tmp_path, jobs=1, progress=False)
    assert np.isnan(found.error("wheel", "uniform")).all()
    assert "curve uniform" in found.figure("wheel").drawing


SCRIPT = """
import sys
from credent.bandits import Linear, LinearThompson, compare
compare({"linear": Linear(features=3, arms=2)}, {"Thompson": LinearThompson(noise=0.5)}, 200, range(8), sys.argv[1],
        together=1, jobs=1, progress=False)
"""


def test_a_killed_comparison_goes_on_and_gives_the_same_table(tmp_path):
    world, agent = {"linear": WORLDS["linear"]}, {"Thompson": AGENTS["Thompson"]}
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "killed")],
                             env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    deadline = time.monotonic() + 100
    while len(list((tmp_path / "killed").glob("run-*.json"))) < 1 and time.monotonic() < deadline:
        assert child.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "killed").glob("run-*.json")}
    assert 1 <= len(before) < 8
    resumed, whole = (
        compare(world, agent, 200, range(8), tmp_path / name, together=1, jobs=1, progress=False)
        for name in ("killed", "whole")
    )
    same(resumed, whole)
    assert resumed.table().texts() == whole.table().texts()
    assert {p: p.stat().st_mtime_ns for p in before} == before
