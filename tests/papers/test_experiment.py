import json
import math
from dataclasses import dataclass

import pytest

from credent.cells import Cell
from credent.errors import InputError
from credent.papers import Experiment, Scale, Verdict, by_seed, estimate, lower, reproduce, reproduce_paper, together
from credent.report import Column, Section, Table

RUNS = []


@dataclass(frozen=True)
class Run(Cell):
    method: str
    seed: int
    broken: bool = False

    def run(self):
        RUNS.append(self)
        if self.broken:
            raise ArithmeticError("no number came")
        return {"nll": {"vl": 0.2, "map": 0.3}[self.method] + 0.01 * self.seed + 0.001 * self.seed**2}


class Toy(Experiment):
    name = "toy/table1"
    title = "A toy's table"
    about = "Page 3: VL is better than MAP."
    broken_seed = -1

    def setting(self, scale):
        return f"Two methods, {2 if scale is Scale.SMOKE else 3} seeds; the paper has five."

    def cells(self, scale):
        seeds = range(2 if scale is Scale.SMOKE else 3)
        return [Run(method, seed, seed == self.broken_seed) for method in ("map", "vl") for seed in seeds]

    def sections(self, scale, results):
        columns = (Column("method"), Column("NLL", "nats", "lower"), Column("published", "nats"))
        rows = tuple((m, estimate(by_seed(results, "nll", method=m)), p) for m, p in (("map", 0.31), ("vl", 0.22)))
        return (Section("Table 1", (Table("Test NLL", columns, rows),)),)

    def verdicts(self, scale, results):
        vl, plain = (by_seed(results, "nll", method=method) for method in ("vl", "map"))
        return (lower("VL's NLL is below MAP's", vl, plain), lower("MAP's is below VL's", plain, vl))


class Figure(Toy):
    name = "toy/figure1"
    title = "A toy's figure"


@pytest.fixture(autouse=True)
def runs():
    RUNS.clear()
    return RUNS


def test_page_and_summary_say_what_the_cells_gave(tmp_path):
    done = reproduce(Toy(), Scale.CPU, tmp_path, jobs=1, progress=False)
    assert done.page == tmp_path / "toy" / "cpu" / "table1.html"
    assert [each.outcome for each in done.verdicts] == ["replicated", "not replicated"]
    said = json.loads(done.summary.read_text())
    assert said["verdicts"][0]["claim"] == "VL's NLL is below MAP's"
    (table,) = said["tables"]
    method, ours, published = table["rows"][1]
    numbers = [0.2, 0.211, 0.224]
    mean = sum(numbers) / 3
    error = math.sqrt(sum((x - mean) ** 2 for x in numbers) / 2 / 3)
    assert (method, published) == ("vl", 0.22)
    assert ours == {"value": pytest.approx(mean, rel=1e-12), "error": pytest.approx(error, rel=1e-9)}
    origin = said["provenance"]
    assert origin["cells"] == 6
    assert origin["seeds"] == [0, 1, 2]
    assert origin["seconds"] >= 0
    page = done.page.read_text()
    for text in ("Page 3: VL is better", "the paper has five", "0.212 ± 0.007", "0.220", "not replicated", "1 of 2"):
        assert text in page
    assert page.index("not replicated") < page.index("Test NLL")


def test_experiments_of_a_paper_share_cells_and_a_page_is_the_same_again(tmp_path, runs):
    first = reproduce(Toy(), Scale.CPU, tmp_path, jobs=1, progress=False)
    before = first.page.read_bytes()
    index, done = reproduce_paper([Toy(), Figure()], Scale.CPU, tmp_path, jobs=1, progress=False)
    assert len(runs) == 6
    assert len(list((tmp_path / "toy" / "cpu" / "cells").iterdir())) == 6
    assert first.page.read_bytes() == before
    assert index == tmp_path / "toy" / "cpu" / "index.html"
    assert [each.page.name for each in done] == ["table1.html", "figure1.html"]
    assert "table1: Table 1" in index.read_text()
    assert "figure1: Table 1" in index.read_text()


def test_a_smoke_run_proves_nothing(tmp_path):
    done = reproduce(Toy(), Scale.SMOKE, tmp_path, jobs=1, progress=False)
    assert {each.outcome for each in done.verdicts} == {"not testable at this scale"}
    assert "mean nothing" in done.page.read_text()


def test_a_failed_cell_leaves_a_page_that_says_so(tmp_path):
    toy = Toy()
    toy.broken_seed = 1
    done = reproduce(toy, Scale.CPU, tmp_path, jobs=1, progress=False)
    assert list(done.failures) == [Run("map", 1, True), Run("vl", 1, True)]
    page = done.page.read_text()
    assert "ArithmeticError: no number came" in page
    assert "4 of 6" in page
    said = json.loads(done.summary.read_text())
    assert len(said["failures"]) == 2
    assert said["provenance"]["seeds"] == [0, 2]
    assert "2 seeds" in said["verdicts"][0]["evidence"]


def test_a_page_that_needs_a_failed_cell_is_still_made(tmp_path):
    class Strict(Toy):
        broken_seed = 0

        def sections(self, scale, results):
            return (Section(str(results[Run("map", 0, self.broken_seed == 0)]["nll"]), ()),)

    done = reproduce(Strict(), Scale.CPU, tmp_path, jobs=1, progress=False)
    assert "cannot be drawn" in done.page.read_text()
    assert done.failures
    wrong = Strict()
    wrong.broken_seed, wrong.verdicts = -1, lambda scale, results: {}["typo"]
    with pytest.raises(KeyError):  # with nothing missing, it is the experiment's own mistake
        reproduce(wrong, Scale.CPU, tmp_path, jobs=1, progress=False)


def test_missing_data_stop_it_before_it_starts(tmp_path, monkeypatch, runs):
    class Hungry(Toy):
        def needs(self, scale):
            return ("digits", "cifar10")

    monkeypatch.setenv("CREDENT_DATA", str(tmp_path))
    with pytest.raises(InputError, match=f"needs cifar10, which the data directory {tmp_path}"):
        reproduce(Hungry(), Scale.CPU, tmp_path, jobs=1, progress=False)
    assert not runs


def results(**methods):
    return {Run(m, seed): {"nll": x} if x is not None else {} for m, xs in methods.items() for seed, x in enumerate(xs)}


def test_numbers_by_seed():
    found = results(vl=[0.1, None, 0.3], map=[0.4])
    assert by_seed(found, "nll", method="vl") == {0: 0.1, 2: 0.3}
    with pytest.raises(InputError, match="no cell has method='lv'"):
        by_seed(found, "nll", method="lv")
    with pytest.raises(InputError, match="no cell has beta=1"):
        by_seed(found, "nll", beta=1)
    with pytest.raises(InputError, match=r"seed 0 are said of several.*tells them apart"):
        by_seed(found, "nll")


def test_estimates():
    assert estimate({}) is None
    assert estimate({0: 2.0}).value == 2.0
    assert math.isnan(estimate({0: 2.0}).error)
    assert estimate({0: 1.0, 1: 3.0}).error == pytest.approx(1.0)  # stdev sqrt 2, over sqrt 2
    assert math.isnan(estimate({0: 1.0, 1: math.inf}).value)


BASE = {0: 1.0, 1: 2.0, 2: 3.0}  # mean 2, standard error 0.577


@pytest.mark.parametrize(
    ("shift", "paired", "outcome", "words"),
    [
        # differences -0.1, -0.2, -0.3: mean 0.2, error 0.1/sqrt 3 = 0.058: seen in pairs, lost in the spread of seeds
        ({0: -0.1, 1: -0.2, 2: -0.3}, True, "replicated", "lower by 0.20 ± 0.06, more than"),
        ({0: -0.1, 1: -0.2, 2: -0.3}, False, "not replicated", "lower by 0.2 ± 0.8, no more than"),
        # mean -0.1, error 0.058: 1.73 errors
        ({0: 0.0, 1: -0.1, 2: -0.2}, True, "not replicated", "lower by 0.10 ± 0.06, no more than"),
        ({0: 0.1, 1: 0.2, 2: 0.3}, True, "not replicated", "higher by 0.20 ± 0.06, more than"),
        (dict.fromkeys(BASE, -9.0), False, "replicated", "lower by"),
        (dict.fromkeys(BASE, 0.0), True, "not replicated", "higher by 0"),
    ],
)
def test_lower_means_by_two_standard_errors(shift, paired, outcome, words):
    verdict = lower("a < b", {seed: BASE[seed] + shift[seed] for seed in BASE}, BASE, paired=paired)
    assert verdict.outcome == outcome
    assert words in verdict.evidence
    assert "3 seeds" in verdict.evidence


@pytest.mark.parametrize("ours", [{}, {0: 1.0}, {5: 1.0, 6: 1.0}, {0: math.nan, 1: 1.0}])
def test_too_little_is_not_testable(ours):
    assert lower("a < b", ours, BASE).outcome == "not testable at this scale"


def test_several_claims_together():
    yes, no, dunno = (
        Verdict(str(i), outcome, "because.")
        for i, outcome in enumerate(("replicated", "not replicated", "not testable at this scale"))
    )
    assert together("all", yes, yes).outcome == "replicated"
    assert together("all", yes, dunno).outcome == "not testable at this scale"
    assert together("all", yes, dunno, no).outcome == "not replicated"
    assert "1: not replicated; because." in together("all", yes, no).evidence
