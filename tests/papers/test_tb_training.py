"""A run of the thesis is built as it says: prior, first scales, rates by group, weights of the KL, and how it ends."""

import dataclasses
import math
import sys

import pytest
import torch

from credent.errors import InputError
from credent.optim import Alternating, YellowFin
from credent.papers import Scale
from credent.papers.tb.settings import cell
from credent.papers.tb.training import NOISE, Training


def built(**fields):
    run = cell(Scale.SMOKE, "digits", 0, **fields)
    return run, run.objective(channels=1, num_data=500)


def test_prior_and_first_means_are_kaiming_and_first_scales_the_thesis_s():
    _, bnn = built()
    fan_ins = {"body.0": 25, "body.3": 150, "body.7": 400, "body.9": 120, "head": 84}
    for name, value in bnn.layout.params().items():
        scale = math.sqrt(2 / fan_ins[name.rpartition(".")[0]])
        assert bnn.penalty.stddev()[name] == pytest.approx(scale)
        assert value.abs().max() <= scale * math.sqrt(3)
        if value.numel() > 1000:  # uniform of that standard deviation, kurtosis 1.8
            assert value.std().item() == pytest.approx(scale, rel=4 * math.sqrt(0.8 / 4 / value.numel()))
    assert all(s.eq(s.flatten()[0]).all() for s in bnn.q.stddev().values())
    assert bnn.q.stddev()["head.bias"][0].item() == pytest.approx(4.5398899e-5, rel=1e-5)


def test_the_seed_decides_the_first_means_of_both_kinds_of_network():
    means = [built(**fields)[1].layout.params()["head.weight"] for fields in ({}, {"method": "map"}, {"rho": -3.0})]
    assert means[0].equal(means[1])
    assert means[0].equal(means[2])


def test_the_frequentist_network_pays_nothing():
    run, plain = built(method="map")
    plain(torch.zeros(4, 1, 28, 28), torch.zeros(4, dtype=torch.long))
    assert plain.last.beta == 0
    assert [g["name"] for g in run.optimiser(plain, 1).param_groups] == ["means"]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1.0, [1, 1, 1, 1, 1]), (0.0, [0, 0, 0, 0, 0]), (0.5, [5 * 2 ** (5 - i) / 31 for i in range(1, 6)])],
)
def test_batches_pay_their_share_of_the_kl(ratio, expected):
    _, bnn = built(kl_ratio=ratio)  # 500 images in batches of 100
    found = []
    for _ in range(6):
        bnn(torch.zeros(1, 1, 28, 28), torch.zeros(1, dtype=torch.long))
        found.append(bnn.last.beta)
    assert found == pytest.approx([*expected, expected[0]])


@pytest.mark.parametrize(
    ("name", "kind", "option"),
    [
        ("adam", torch.optim.Adam, ("amsgrad", False)),
        ("amsgrad", torch.optim.Adam, ("amsgrad", True)),
        ("radam", torch.optim.RAdam, ("betas", (0.8, 0.9))),
        ("sgd", torch.optim.SGD, ("momentum", 0.3)),
        ("yellowfin", YellowFin, ("momentum", 0.3)),
    ],
)
def test_means_and_scales_move_at_their_rates(name, kind, option):
    run, bnn = built(optimizer=name, lr=0.02, scale_lr=0.005, momentum=0.3, betas=(0.8, 0.9))
    optimizer = run.optimiser(bnn, 1)
    assert type(optimizer) is kind
    assert {g["name"]: g["lr"] for g in optimizer.param_groups} == {"means": 0.02, "scales": 0.005}
    assert all(g[option[0]] == option[1] for g in optimizer.param_groups)
    assert dataclasses.replace(run, scale_lr=None).optimiser(bnn, 1).param_groups[1]["lr"] == 0.02


@pytest.mark.parametrize(("name", "largest"), [("adabound", False), ("amsbound", True)])
def test_bounded_optimisers_close_on_their_final_rate(name, largest):
    pytest.importorskip("pytorch_optimizer")
    run, bnn = built(optimizer=name, lr=0.02, scale_lr=0.005, final_lr=0.3)
    groups = run.optimiser(bnn, 1).param_groups
    assert [(g["lr"], g["final_lr"], g["ams_bound"]) for g in groups] == [(0.02, 0.3, largest), (0.005, 0.3, largest)]


def test_without_their_package_bounded_optimisers_say_which_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    run, bnn = built(optimizer="adabound")
    with pytest.raises(InputError, match="pip install pytorch-optimizer"):
        run.optimiser(bnn, 1)


def test_turns_are_epochs():
    run, bnn = built(turns=(2, 1))
    optimizer = run.optimiser(bnn, steps=5)
    assert isinstance(optimizer, Alternating)
    assert optimizer.turns == {"means": 10, "scales": 5}


def test_a_run_is_decided_by_its_fields_and_is_watched():
    run = cell(Scale.SMOKE, "digits", 0, optimizer="sgd", lr=0.01)
    once, again = run.run(), run.run()
    assert once == again
    assert {len(once[name]) for name in ("nlls", "kls", "losses", "accuracies", "val_nlls")} == {run.size.epochs}
    assert once["loss"] == pytest.approx(once["nll"] + once["kl"] / run.size.train)
    assert once["kls"][-1] == once["kl"] > 0
    assert len(once["confidences"]) == NOISE
    assert all(0.1 <= c <= 1 for c in once["confidences"])
    assert (once["means_lr"], once["scales_lr"], once["diverged"]) == (0.01, 0.01, False)


def test_a_run_that_diverges_ends_with_numbers_that_say_so():
    run = cell(Scale.SMOKE, "digits", 0, optimizer="sgd", lr=1e8)
    found = run.run()
    assert found["diverged"]
    assert found["accuracy"] == 0.1
    assert found["val_nll"] == pytest.approx(math.log(10))
    assert math.isnan(found["loss"])
    assert math.isnan(found["scale"])
    assert found["accuracies"] == [0.1] * run.size.epochs


def test_a_plateau_lets_each_group_fall_by_its_own_number():
    size = dataclasses.replace(cell(Scale.SMOKE, "digits", 0).size, epochs=3)
    run = Training("digits", size, 0, estimator="total", kl_ratio=0.0, plateau=(0, 0.1))
    found = run.run()  # the NLL falls; the KL, which nothing asks to fall, rises
    assert found["means_lr"] == 1e-3
    assert found["scales_lr"] < 5e-4
