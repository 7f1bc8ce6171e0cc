"""Test sets that take turns: every image once, validation images never, and what sums over parts."""

import csv
import io

import pytest
import torch
from bench.quality import every_image, page, turns
from bench.quality.images import Learning, scored
from bench.quality.race import Trial
from bench.quality.settings import SCALES, Size
from bench.quality.turns import Turn, bins, pooled, turned
from torch import Tensor
from torch.utils.data import TensorDataset

from credent import metrics

SIZE = Size(train=12, val=4, test=6, strange=2, epochs=1, batch=4, draws=2)
PARTS = 3


def _images(first: int, count: int) -> TensorDataset:
    x = torch.arange(first, first + count, dtype=torch.float32)[:, None, None, None].expand(-1, 1, 28, 28).clone()
    return TensorDataset(x, torch.arange(first, first + count) % 10)


def _halves() -> tuple[Learning, tuple[Tensor, Tensor]]:
    return Learning(_images(0, 12), _images(100, 4), (1, 28, 28)), _images(12, 6)[:]


def test_every_image_is_tested_once_by_a_run_that_did_not_learn_it() -> None:
    tested = []
    for part in range(PARTS):
        learning, (x, y) = turned(*_halves(), part, PARTS)
        learnt, labels = learning.train[:]
        seen = {int(v) for v in learnt[:, 0, 0, 0]}
        mine = [int(v) for v in x[:, 0, 0, 0]]
        assert seen.isdisjoint(mine)
        assert seen | set(mine) == set(range(18))
        assert torch.equal(labels, learnt[:, 0, 0, 0].long() % 10)
        assert torch.equal(y, x[:, 0, 0, 0].long() % 10)
        assert {int(v) for v in learning.val[:][0][:, 0, 0, 0]} == set(range(100, 104))
        tested += mine
    assert sorted(tested) == list(range(18))


def test_a_turn_is_scored_on_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Tensor] = []

    def watched(probs: Tensor, y: Tensor) -> dict[str, float]:
        asked.append(y)
        return scored(probs, y)

    monkeypatch.setattr(turns, "learning_and_test", lambda data, size: _halves())
    monkeypatch.setattr(turns, "scored", watched)
    found = Turn("fashion_mnist", "map", 1e-3, 0.1, SIZE, seed=PARTS, parts=PARTS).run()
    assert torch.equal(asked[0], turned(*_halves(), PARTS - 1, PARTS)[1][1])
    assert sum(found["bins"]["count"]) == 6
    assert found["accuracy"] == pytest.approx(sum(found["bins"]["hits"]) / 6)
    assert found["ece"] == pytest.approx(pooled([found]))
    assert found["cost"] > 0


def test_bins_of_parts_sum_to_those_of_all_images() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(500, 10, generator=generator, dtype=torch.float64).pow(6)
    probs /= probs.sum(1, keepdim=True)
    y = torch.multinomial(probs, 1, generator=generator)[:, 0]
    split = [{"bins": bins(p, t)} for p, t in zip(probs.split(130), y.split(130), strict=True)]
    assert pooled(split) == pytest.approx(metrics.ece(probs, y, bins=15), rel=1e-12)
    each = sum(len(t) / 500 * metrics.ece(p, t, bins=15) for p, t in zip(probs.split(130), y.split(130), strict=True))
    assert each > 1.2 * pooled(split)


def test_predictions_that_are_no_numbers_have_no_bins() -> None:
    probs, y = torch.full((3, 2), float("nan")), torch.zeros(3, dtype=torch.long)
    assert bins(probs, y) == {}
    assert pooled([{"bins": {}}]) == float("inf")


def test_only_methods_that_the_scale_names_take_turns_at_the_chosen_setting() -> None:
    picked = {
        ("fashion_mnist", name): Trial("fashion_mnist", name, 2e-3, 0.1, SIZE, 0) for name in ("map_muon_two", "sgld")
    }
    found = turns.turns(SCALES["cpu"], "fashion_mnist", ("map_muon_two", "map_muon_two_calibrated", "sgld"), picked)
    assert {(cell.method, cell.lr, cell.seed) for cell in found} == {
        (method, 2e-3, part) for method in ("map_muon_two", "map_muon_two_calibrated") for part in range(1, 7)
    }


def _results() -> dict[Turn, dict[str, object]]:
    found: dict[Turn, dict[str, object]] = {}
    for method, nll, ece, cost in (
        ("map_muon_two", 0.2, 0.01, 1.0),
        ("ivon", 0.25, 0.02, 1.1),
        ("dropout", 0.3, 0.03, 0.5),
    ):
        for part in range(1, PARTS + 1):
            shared = {"count": [10.0], "confidence": [8.0], "hits": [7.0 + part / 2]}
            numbers = {"nll": nll + part / 10, "ece": ece + part / 100, "cost": cost, "accuracy": 0.9, "brier": 0.1}
            found[Turn("fashion_mnist", method, 1e-3, 0.1, SIZE, part, PARTS)] = {**numbers, "bins": shared}
    return found


def test_rows_are_compared_part_by_part() -> None:
    results = _results()
    del results[Turn("fashion_mnist", "dropout", 1e-3, 0.1, SIZE, PARTS, PARTS)]  # not all parts: not shown
    section = every_image.section(results, "fashion_mnist")
    assert section is not None
    _, claims, _, pairs, together = section.parts
    assert [row[1] for row in claims.rows] == ["yes"] * 3
    ((other, ours, nll, ece),) = pairs.rows
    assert (other, ours) == ("IVON", "MAP, Muon, averaged, 2 members of 0.4 of the passes")
    assert (nll.value, nll.error) == (pytest.approx(-0.05), pytest.approx(0, abs=1e-12))
    assert ece.value == pytest.approx(-0.01)
    assert [row[2] for row in together.rows] == [pytest.approx(0.0), pytest.approx(0.0)]  # 24 of 24, gaps of both signs


def test_a_row_that_costs_less_than_all_of_credents_has_nobody_beside_it() -> None:
    section = every_image.section(_results(), "fashion_mnist")
    assert section is not None
    rows = {row[0]: row[1:] for row in section.parts[3].rows}
    assert rows["MC dropout"] == ("none costs so little", None, None)


def test_the_table_for_machines_has_parts_and_all_images() -> None:
    rows = list(csv.DictReader(io.StringIO(page.table(_results()))))
    mine = {row["score"]: row for row in rows if row["data"] == "fashion_mnist/turns" and row["method"] == "IVON"}
    assert (mine["nll"]["mean"], mine["nll"]["runs"]) == ("0.45", "3")
    assert float(mine["ece_together"]["mean"]) == pytest.approx(0.0)


def test_no_turns_no_section() -> None:
    assert every_image.section({}, "fashion_mnist") is None
