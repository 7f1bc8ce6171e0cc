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

from credent.bandits import Linear, LinearThompson, Uniform, Wheel, compare, play
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
    assert [column.label for column in table.columns] == ["agent", "linear", "wheel"]
    assert [row[0] for row in table.rows] == ["uniform", "Thompson"]
    assert table.rows[1][2].value == pytest.approx(found.mean("wheel", "Thompson")[-1])
    assert "20 decisions" in table.caption
    drawing = found.figure("linear").drawing
    for agent in AGENTS:
        assert drawing.count(f'data-part="curve {agent}"') == 1
        assert drawing.count(f'data-part="band {agent}"') == 1


def test_agents_and_environments_with_the_same_fields_are_not_mixed_up(tmp_path):
    """Neither `Uniform` nor `Failing` has a field: their class must tell them apart."""
    agents = {"uniform": Uniform(), "failing": Failing()}
    found = compare({"wheel": Wheel()}, agents, 20, (0, 2, 1), tmp_path, together=1, jobs=1, progress=False)
    assert found.regret["wheel", "uniform"].shape == (3, 20)
    assert found.regret["wheel", "failing"].shape == (2, 20)
    assert found.failures == {("wheel", "failing"): "RuntimeError: odd"}
    alone = compare({"wheel": Wheel()}, {"failing": Failing()}, 20, (1,), tmp_path, jobs=1, progress=False)
    assert alone.regret == {}
    with pytest.raises(InputError, match="at least one seed"):
        compare({"wheel": Wheel()}, agents, 20, (0,), tmp_path, together=0)


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
