"""The races on a network so small that only their books are tested, not the clock."""

import json
import math
import sys

import pytest
import torch
from bench.peers import credent
from bench.speed import __main__ as main
from bench.speed import growth, limits, measure
from bench.speed.check import another_cpu, compared
from bench.speed.groups import GROUPS
from bench.speed.networks import Setting
from bench.speed.page import faster, page
from torch import nn

from bench import machine


class TinyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.body(x))


TINY = Setting(TinyNet, (8, 1, 4, 4), 6, 2)


def alone(contest, longest=math.inf):
    """A race of one heat, in this process."""
    return measure.judged(contest.bases, [measure.heat(contest, 3, math.inf, longest)])


@pytest.mark.parametrize("group", GROUPS)
def test_every_race_runs_and_its_base_is_one(group):
    contest = GROUPS[group](TINY).only(lambda name: "00 draws" not in name)  # which take their time
    found = alone(contest)
    assert not found["missing"]
    assert len(found["contenders"]) > 1
    for base in found["bases"]:
        assert found["contenders"][base]["over"][base]["interval"] == [1.0, 1.0]
    assert all(each["milliseconds"] > 0 for each in found["contenders"].values())
    json.dumps(found, allow_nan=False)


def test_a_contender_that_fails_leaves_the_others_alone():
    contest = GROUPS["vl"](TINY)

    def broken():
        raise ArithmeticError("on this network\nof all")

    contest.contenders["broken"] = broken
    found = alone(contest)
    assert found["missing"] == {"broken": "ArithmeticError: on this network"}
    assert "credent VL" in found["contenders"]


def test_heats_are_judged_together():
    """Ratios are those of a round of one heat; who is missing in one heat is missing."""
    first = {"times": {"plain": [1.0, 2.0, 4.0], "ours": [2.0, 4.0, 8.0], "frail": [1.0, 1.0, 1.0]}, "missing": {}}
    second = {"times": {"plain": [8.0, 8.0, 8.0], "ours": [24.0, 24.0, 24.0]}, "missing": {"frail": "why"}}
    found = measure.judged(("plain", "gone"), [first, second])
    assert found["bases"] == ["plain"]
    assert found["missing"] == {"frail": "why"}
    assert set(found["contenders"]) == {"plain", "ours"}
    ours = found["contenders"]["ours"]
    assert ours["milliseconds"] == 16_000
    assert ours["over"]["plain"]["heats"] == [2.0, 3.0]
    assert ours["over"]["plain"]["median"] == 2.5
    assert ours["over"]["plain"]["interval"] == [2.0, 3.0]  # heats, not rounds, are what differs


@pytest.mark.timeout(120)
def test_a_heat_runs_in_a_process_of_its_own():
    found = measure.measured("fisher", "mlp", heats=2, rounds=6, seconds=0.1, ours=True)
    assert set(found["contenders"]) == {"forward and backward", "credent"}
    assert len(found["contenders"]["credent"]["over"]["forward and backward"]["heats"]) == 2


def test_a_race_of_long_turns_has_fewer_heats(monkeypatch):
    """Heats of 50 seconds each: one more is begun until twice the race's seconds are over, and three at least."""
    heats: list[str] = []
    monkeypatch.setattr(measure, "_elsewhere", heats.append)
    monkeypatch.setattr(measure, "judged", lambda bases, heats: len(heats))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: 50.0 * len(heats))
    assert measure.measured("fisher", "mlp", heats=6, rounds=6, seconds=100.0) == 4
    assert measure.measured("fisher", "mlp", heats=6, rounds=6, seconds=1.0) == 3
    assert measure.measured("fisher", "mlp", heats=2, rounds=6, seconds=1000.0) == 2


@pytest.mark.parametrize(("cycle", "seconds", "calls"), [(1, 1.0, 1), (2, 1.0, 2), (2, 0.013, 4), (1, 0.013, 3)])
def test_a_turn_is_made_of_whole_cycles(monkeypatch, cycle, seconds, calls):
    """As many calls as take some 40 ms, but never a part of a cycle."""
    found = []
    monkeypatch.setattr(measure, "race", lambda turns, rounds, repeats, *_, **__: found.append(repeats))
    clock = iter([0.0, seconds])
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))
    measure.heat(measure.Race(("plain",), {"plain": lambda: lambda: None}, cycle), 3, 1.0)
    assert found == [calls]


def test_training_steps_are_raced_in_pairs():
    """Noise is drawn for two steps, and VL's curvature is taken at every second one."""
    cycles = {name: group(TINY).cycle for name, group in GROUPS.items()}
    once = ("prediction", "laplace", "fisher")
    assert cycles == {name: 1 if name in once else 2 for name in GROUPS}


def test_a_turn_that_takes_too_long_is_left_out():
    found = alone(GROUPS["vl"](TINY), longest=0.0)
    assert set(found["contenders"]) == set(found["bases"])
    assert "at most 0 s" in found["missing"]["credent VL"]


def test_steps_train_what_they_claim_to():
    x, y = TINY.batch()
    for build in (*credent.VI.values(), credent.VL["credent VL"]):
        bayesian = build(TINY.net(), credent.Task(num_data=100))
        first = bayesian.step(x, y)
        for _ in range(60):
            last = bayesian.step(x, y)
        assert last < first
        assert bayesian.random == bayesian.locations == sum(p.numel() for p in bayesian.net.parameters())
        torch.testing.assert_close(bayesian.probabilities(x, 4).sum(-1), torch.ones(8))


def contest(low, high, name="credent"):
    interval = {"median": (low + high) / 2, "low": low, "high": high, "interval": [low, high], "rounds": 9, "heats": []}
    return {
        "bases": ["plain, default Adam"],
        "contenders": {name: {"milliseconds": 1.0, "over": {"plain, default Adam": interval}}},
        "missing": {},
    }


def test_the_guard_names_what_is_worse():
    before = contest(1.4, 1.5)
    assert compared(contest(1.45, 1.6), before) == {}
    assert list(compared(contest(1.7, 1.8), before)) == ["credent over plain, default Adam"]
    gone = compared(contest(1.0, 1.1, name="other"), before)
    assert list(gone) == ["credent"]  # what no longer runs is no success
    assert compared(contest(1.0, 1.1), contest(2.0, 2.1, name="a peer")) == {}  # peers may do as they please


def test_the_guard_says_where_the_recording_is_another_machines():
    recorded = {"vi": {"mlp": {"raced": {"cpu": "one"}}}, "vl": {"mlp": {"raced": {"cpu": "two"}}}}
    assert another_cpu(recorded, "two").startswith("The recording is of one, and this is two")
    assert another_cpu({"vi": recorded["vi"], "kl": recorded["vl"]}, "one") == ""  # nobody checks the KL


def test_limits_look_at_the_lower_end():
    rows = limits.reached({"vi": {"mlp": contest(1.49, 1.9), "lenet5": contest(1.09, 1.1)}})
    assert [(row[3], row[-1]) for row in rows] == [("mlp", "reached"), ("lenet5", "missed")]


def test_the_page_says_where_another_library_is_faster():
    both = contest(1.4, 1.5)
    both["contenders"] |= contest(1.2, 1.3, name="swift")["contenders"] | contest(1.35, 1.45, name="even")["contenders"]
    both["contenders"] |= contest(1.6, 1.7, name="slow")["contenders"]
    rows = faster({"vi": {"mlp": both}})
    assert [(row[2], row[-1]) for row in rows] == [("swift", "yes"), ("even", "within noise")]


def test_growth_fits_what_it_measures_over_the_plain_step_of_the_same_optimiser(monkeypatch):
    """By a clock that says what each should take: VI like Adam's step, SGLD faster than SGD's by one power of width."""
    widths = (4, 8, 16)
    monkeypatch.setitem(growth.AXES, "width", (lambda s: s.width, [growth.Size(w, 1, 4, 2) for w in widths]))
    width = iter(w for w in widths for _ in range(2))  # steps, then predictions
    laws = {
        growth.ADAM: lambda w: 3 * w,
        "VI step": lambda w: 6 * w,
        "VL step": lambda w: 9,
        growth.SGD: lambda w: w,
        "SGLD step": lambda w: w**2,
        growth.FORWARDS: lambda w: w**3,
        "prediction": lambda w: 2 * w**3,
    }

    def clocked(turns, rounds, repeats, seconds):
        w = next(width)
        for turn in turns.values():
            turn()
        return {name: [float(laws[name](w))] * rounds for name in turns}

    monkeypatch.setattr(growth, "race", clocked)
    found = growth.growth("width", rounds=3, seconds=5)["exponents"]
    powers = {name: (round(each["exponent"], 9), round(each["beyond plain"], 9)) for name, each in found.items()}
    assert powers == {
        growth.ADAM: (1, 0),
        "VI step": (1, 0),
        "VL step": (0, -1),
        growth.SGD: (1, 0),
        "SGLD step": (2, 1),
        growth.FORWARDS: (3, 0),
        "prediction": (3, 0),
    }
    assert [name for name, each in found.items() if each["faster"]] == ["SGLD step"]


def test_the_largest_network_has_a_hundred_million_parameters():
    assert growth.Size(width=9600).num_params == pytest.approx(1e8, rel=0.01)
    assert growth.Size(3, 4).num_params == sum(p.numel() for p in growth.Size(3, 4).net().parameters())


def test_sizes_that_do_not_fit_are_left_out_with_a_reason(monkeypatch):
    monkeypatch.setattr(growth, "available", lambda: 1000)
    found = growth.growth("width", rounds=3, seconds=5)
    assert found["rows"] == []
    assert all("GiB" in why for why in found["left out"].values())


def test_the_page_has_every_race(monkeypatch):
    monkeypatch.setitem(growth.AXES, "width", (lambda s: s.width, [growth.Size(w, 1, 4, 2) for w in (4, 8, 16)]))
    raced = {"raced": {"commit": "0123", "cpu": "a CPU", "threads": 2}}
    race = alone(GROUPS["vi"](TINY).only(lambda name: name == "credent"))
    found = {
        "machine": {"credent": "0", "peers": {"torchbnn": None}},
        "skipped": {"tyxe": "ImportError: no"},
        "groups": {"vi": {"mlp": race | raced}},
        "growth": {"width": growth.growth("width", rounds=3, seconds=5) | raced},
    }
    html = page(found).html()
    for said in (
        "a training step: mlp",
        "Growth with width",
        "ImportError: no",
        "plain, fused Adam",
        "must reach",
        "a CPU",
    ):
        assert said in html, said


def test_races_of_another_day_stay_and_say_what_they_were_run_with(tmp_path, monkeypatch):
    out, commit = tmp_path / "speed.json", iter("abc")
    monkeypatch.setattr(main, "keep_memory", lambda module: None)
    monkeypatch.setattr(main, "measured", lambda *_, **__: contest(1.0, 2.0))
    monkeypatch.setattr(main, "here", lambda: {**machine.here(), "commit": next(commit)})

    def raced(network):
        words = f"speed --only vi --networks {network} --no-memory --threads 1 --out {out}"
        monkeypatch.setattr(sys, "argv", words.split())
        main.main()
        return {name: each["raced"] for name, each in json.loads(out.read_text())["groups"]["vi"].items()}

    first = raced("mlp")
    assert first["mlp"].keys() == {"commit", "cpu", "threads"}
    assert {name: each["commit"] for name, each in raced("lenet5").items()} == {"mlp": "a", "lenet5": "b"}
    assert {name: each["commit"] for name, each in raced("mlp").items()} == {"mlp": "c", "lenet5": "b"}
    assert "What each race was run with" in out.with_suffix(".html").read_text()
