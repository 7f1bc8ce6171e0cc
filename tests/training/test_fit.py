"""`fit` is the hand-written loop, to the bit, with what long runs need around it."""

import math
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import credent as cr
from credent.data import batches
from credent.errors import InputError
from credent.training import history, progress

OPTIMIZERS = {
    "momentum": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    "adam": torch.optim.Adam,
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["MAP", "VI"])
def test_it_is_the_hand_written_loop(build, rows, by_hand, same, kind, optimizer):
    """With BatchNorm, dropout, a ragged last batch and a new order each epoch."""
    states, results = [], []
    for by in ("hand", "fit"):
        objective = build(kind, norm=True, dropout=True)
        opt = OPTIMIZERS[optimizer](objective.param_groups(lr=0.05, scale_lr=0.02))
        loader = batches(rows, 7, shuffle=True, seed=4)
        if by == "hand":
            by_hand(objective, opt, loader, epochs=3)
        else:
            results.append(cr.fit(objective, opt, loader, epochs=3, progress=False))
        states.append((objective.state_dict(), opt.state_dict(), torch.get_rng_state(), loader.generator.get_state()))
    assert same(*states)
    assert results[0].steps == 15
    assert results[0].run_dir is None


def test_validation_logging_and_files_change_nothing(build, rows, same, tmp_path):
    states = []
    for options in ({}, {"val": batches(rows, 9), "log_every": 1, "run_dir": tmp_path, "checkpoint_every": 1}):
        objective = build(norm=True, dropout=True)
        cr.fit(objective, None, batches(rows, 7, shuffle=True), epochs=2, progress=False, **options)
        states.append(objective.state_dict())
    assert same(*states)


def test_the_seed_is_all_that_decides(build, rows, same):
    """The network's first weights and the loader's order are the caller's; everything else follows `seed`."""
    states = []
    for disturbance, seed in ((0, 7), (1, 7), (0, 8)):
        objective = build(dropout=True)
        list(objective.posterior.draws(disturbance))  # moves the objective's own stream
        torch.rand(disturbance), np.random.rand(disturbance), [random.random() for _ in range(disturbance)]  # noqa: NPY002
        cr.fit(objective, None, batches(rows, 8), epochs=1, seed=seed, progress=False)
        states.append((objective.state_dict(), torch.rand(1), np.random.rand(), random.random()))  # noqa: NPY002
    assert same(states[0], states[1])
    for a, b in zip(states[0], states[2], strict=True):
        assert not same(a, b)


def test_what_was_left_in_the_gradients_is_not_taken(build, rows, same):
    states = []
    for left in (False, True):
        objective = build("MAP")
        if left:
            for p in objective.parameters():
                p.grad = torch.full_like(p, torch.inf)
        cr.fit(objective, None, batches(rows, 8), epochs=1, progress=False)
        states.append(objective.state_dict())
    assert same(*states)


def test_an_objective_in_evaluation_mode_trains(build, rows, by_hand, same):
    by_fit, hand = build(norm=True).eval(), build(norm=True)
    cr.fit(by_fit, torch.optim.SGD(by_fit.parameters(), lr=0.1), batches(rows, 8), epochs=1, progress=False)
    by_hand(hand, torch.optim.SGD(hand.parameters(), lr=0.1), batches(rows, 8), epochs=1)
    assert same(by_fit.state_dict(), hand.state_dict())


# -- accumulation, clipping, precision --------------------------------------------------------------------------------


def test_accumulated_batches_are_their_joined_rows(build, rows, by_hand):
    """Groups of two out of five unequal batches: 8 + 4, 3 + 9, and 8 alone."""
    x, y = rows.tensors[0].double(), rows.tensors[1]
    parts = list(zip(x.split([8, 4, 3, 9, 8]), y.split([8, 4, 3, 9, 8]), strict=True))
    joined = [(x[:12], y[:12]), (x[12:24], y[12:24]), (x[24:], y[24:])]
    found = []
    for by in ("fit", "hand"):
        objective = build("MAP").double()
        opt = torch.optim.SGD(objective.parameters(), lr=0.3, momentum=0.9)
        if by == "fit":
            result = cr.fit(objective, opt, parts, epochs=4, accumulate=2, progress=False)
            assert result.steps == 12
        else:
            by_hand(objective, opt, joined, epochs=4)
        found.append(objective.posterior.mean())
    for k, w in found[0].items():
        torch.testing.assert_close(w, found[1][k], rtol=0, atol=1e-12)


def test_a_clipped_step_has_the_norm_it_may_have(build, rows):
    def gradient(objective):
        objective(*rows.tensors).backward()
        found = [p.grad.clone() for p in objective.parameters()]
        objective.zero_grad()
        return found

    for limit in (0.01, 1e6):
        objective = build("MAP").double()
        rows.tensors = rows.tensors[0].double(), rows.tensors[1]
        before, grads = [p.detach().clone() for p in objective.parameters()], gradient(objective)
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
        assert 0.01 < norm < 1e6
        factor = min(1, limit / norm)
        sgd = torch.optim.SGD(objective.parameters(), lr=1.0)
        cr.fit(objective, sgd, [tuple(rows.tensors)], steps=1, clip=limit, progress=False)
        for p, was, g in zip(objective.parameters(), before, grads, strict=True):
            # torch adds 1e-6 to the norm that it divides by
            torch.testing.assert_close(p.detach(), was - factor * g, rtol=2e-6, atol=1e-12)


def test_bfloat16_runs_the_network_in_half_precision_and_changes_little(build, rows):
    found, seen = [], []
    for autocast in (None, torch.bfloat16):
        objective = build("VI")
        objective.net[0].register_forward_hook(lambda _, __, out: seen.append(out.dtype))
        cr.fit(objective, None, batches(rows, 8), epochs=5, autocast=autocast, progress=False)
        assert {p.dtype for p in objective.parameters()} == {torch.float32}
        found.append(torch.cat([w.flatten() for w in objective.posterior.mean().values()]))
    assert seen == [torch.float32] * 20 + [torch.bfloat16] * 20
    difference = (found[0] - found[1]).abs().max()
    assert 0 < difference < 0.01  # 20 Adam steps of 1e-3: rounding may turn a few of them


def test_float16_is_refused(build, rows):
    with pytest.raises(InputError, match=r"float16.*torch\.bfloat16"):
        cr.fit(build(), None, batches(rows, 8), steps=1, autocast=torch.float16, progress=False)


# -- optimiser and schedules ------------------------------------------------------------------------------------------


def test_the_default_optimiser_is_fused_adam(build, rows, by_hand, same, monkeypatch):
    made = []

    class Spy(torch.optim.Adam):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    hand = build()
    by_hand(hand, torch.optim.Adam(hand.param_groups(lr=1e-3, scale_lr=1e-2), fused=True), batches(rows, 8), epochs=2)
    monkeypatch.setattr(torch.optim, "Adam", Spy)
    objective = build()
    result = cr.fit(objective, None, batches(rows, 8), epochs=2, progress=False)
    assert same(objective.state_dict(), hand.state_dict())
    assert [group["fused"] for group in made[0].param_groups] == [True, True]
    assert (result.history[-1]["lr_means"], result.history[-1]["lr_scales"]) == (1e-3, 1e-2)


@pytest.mark.parametrize("schedule", ["step", "epoch"])
def test_schedules_move_when_they_say(build, rows, same, schedule):
    """Four batches an epoch, three epochs; the loop by hand steps the schedule where it should."""
    objective, hand = build("MAP"), build("MAP")
    sgd = torch.optim.SGD(objective.parameters(), lr=0.4)
    options = {"scheduler": ExponentialLR(sgd, 0.5), "schedule": schedule, "log_every": 1}
    result = cr.fit(objective, sgd, batches(rows, 8), epochs=3, progress=False, **options)
    lr = 0.4
    for _ in range(3):
        for x, y in batches(rows, 8):
            hand.zero_grad()
            hand(x, y).backward()
            with torch.no_grad():
                for p in hand.parameters():
                    p.add_(p.grad, alpha=-lr)
            lr *= 0.5 if schedule == "step" else 1
        lr *= 0.5 if schedule == "epoch" else 1
    assert same(objective.posterior.mean(), hand.posterior.mean())
    rates = [row["lr_0"] for row in result.history]
    expected = [0.4 * 0.5 ** (t if schedule == "step" else (t - 1) // 4) for t in range(1, 13)]
    assert rates == pytest.approx(expected)


def test_the_plateau_schedule_sees_the_validation(build, rows):
    """A learning rate too large to settle; torch's own schedule, fed the history's numbers, cuts at the same epochs.

    Rows are written every fourth step too, that is also right at the end of an epoch.
    """
    objective = build("MAP")
    sgd = torch.optim.SGD(objective.parameters(), lr=3.0)
    plateau = ReduceLROnPlateau(sgd, factor=0.5, patience=1)
    options = {"scheduler": plateau, "val": batches(rows, 8), "log_every": 4}
    result = cr.fit(objective, sgd, batches(rows, 8), epochs=12, progress=False, **options)
    scores = [row for row in result.history if "val_nll" in row]
    other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=3.0)
    reference = ReduceLROnPlateau(other, factor=0.5, patience=1)
    rates = []
    for row in scores:
        rates.append(other.param_groups[0]["lr"])
        reference.step(row["val_nll"])
    assert [row["lr_0"] for row in scores] == rates
    assert rates[-1] < 3.0
    assert plateau.state_dict() == reference.state_dict()


@pytest.mark.parametrize("every", [1, 2])
def test_validation_is_as_often_as_asked_and_at_the_end(build, rows, every):
    """And a plateau schedule waits for it: where nothing moves, each validation but the first cuts the rate."""
    objective = build("MAP")
    sgd = torch.optim.SGD(objective.parameters(), lr=1.0)
    plateau = ReduceLROnPlateau(sgd, factor=0.5, patience=0)
    options = {"scheduler": plateau, "val": [tuple(rows.tensors)], "val_every": every, "clip": 1e-9}
    result = cr.fit(objective, sgd, batches(rows, 8), epochs=5, progress=False, **options)
    epochs = [row["epoch"] for row in result.history if "val_nll" in row]
    assert epochs == ([1, 2, 3, 4, 5] if every == 1 else [2, 4, 5])
    assert sgd.param_groups[0]["lr"] == 0.5 ** (len(epochs) - 1)


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_validation_is_what_a_hand_computes(build, rows):
    """Ten draws without dropout; the training rows serve, in batches of nine."""
    objective = build("VI", norm=False, dropout=True)
    result = cr.fit(objective, None, batches(rows, 8), epochs=2, val=batches(rows, 9), progress=False)
    x, y = rows.tensors
    net = objective.net.eval()
    draws = objective.posterior.draws(10, seed=0)
    probs = torch.stack([torch.func.functional_call(net, w, (x,)).double().softmax(-1) for w in draws]).mean(0).detach()
    row = result.history[-1]
    assert row["val_nll"] == pytest.approx(-float(probs[torch.arange(32), y].log().mean()), rel=1e-5)
    assert row["val_accuracy"] == pytest.approx(float((probs.argmax(-1) == y).double().mean()), abs=1e-12)


def test_validation_of_a_regression_is_what_a_hand_computes():
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 12)[:, None]
    y = torch.sin(3 * x)
    objective = cr.VI(nn.Linear(1, 1), cr.likelihoods.Gaussian(scale=0.5), num_data=12)
    result = cr.fit(
        objective, None, [(x, y)], steps=3, val=[(x[:7], y[:7]), (x[7:], y[7:])], val_samples=4, progress=False
    )
    outputs = torch.stack([x @ w["weight"].T + w["bias"] for w in objective.posterior.draws(4, seed=0)]).double()
    density = (torch.exp(-2 * (y - outputs) ** 2) / (0.5 * math.sqrt(2 * math.pi))).mean(0)
    assert result.history[-1]["val_nll"] == pytest.approx(-float(density.log().mean()), rel=1e-5)
    assert result.history[-1]["val_rmse"] == pytest.approx(
        float((outputs.mean(0) - y).square().mean().sqrt()), rel=1e-5
    )


def test_history_rows_are_means_since_the_row_before(build, rows, tmp_path):
    """Five batches an epoch, a row after every second batch of it and at its end."""
    objective, hand = build("VI"), build("VI")
    sgd, other = (torch.optim.SGD(o.parameters(), lr=0.1) for o in (objective, hand))
    options = {"log_every": 2, "run_dir": tmp_path, "progress": False}
    result = cr.fit(objective, sgd, batches(rows, 7), epochs=2, **options)
    terms = []
    for x, y in [*batches(rows, 7)] * 2:
        other.zero_grad()
        loss = hand(x, y)
        loss.backward()
        other.step()
        right = (hand.last.outputs.argmax(-1) == y).double().mean()
        terms.append([loss.item(), float(hand.last.nll), float(hand.last.penalty), float(right)])
    steps, start = [2, 4, 5, 7, 9, 10], 0
    assert [(row["step"], row["epoch"]) for row in result.history] == [(s, 1 if s <= 5 else 2) for s in steps]
    for row, end in zip(result.history, steps, strict=True):
        mean = np.mean(terms[start:end], axis=0)
        assert [row[k] for k in ("loss", "nll", "kl", "accuracy")] == pytest.approx(mean, rel=1e-6)
        assert row["beta"] == 1.0
        assert row["loss"] == pytest.approx(row["nll"] + row["kl"] / 32, rel=1e-6)
        start = end
    assert history.read(tmp_path / "history.jsonl") == result.history


@pytest.mark.parametrize(("length", "steps"), [({"epochs": 2}, 8), ({"steps": 6}, 6), ({"steps": 3}, 3)])
def test_epochs_and_steps(build, rows, by_hand, length, steps):
    """Steps go on into the next epoch, in its own order, and stop where they should."""
    objective, hand = build("MAP"), build("MAP")
    loader = batches(rows, 8, shuffle=True, seed=2)
    result = cr.fit(objective, torch.optim.SGD(objective.parameters(), lr=0.1), loader, progress=False, **length)
    loader = batches(rows, 8, shuffle=True, seed=2)
    weights = by_hand(hand, torch.optim.SGD(hand.parameters(), lr=0.1), loader, epochs=2)
    assert result.steps == steps
    for k, w in objective.posterior.mean().items():
        assert torch.equal(w, weights[steps - 1][k])


def test_loaders_without_a_length(build, rows, same):
    class Stream(IterableDataset):
        def __iter__(self):
            yield from zip(*rows.tensors, strict=True)

    found = []
    for loader in (batches(rows, 8), DataLoader(Stream(), batch_size=8)):
        objective = build("MAP")
        assert cr.fit(objective, None, loader, epochs=2, progress=False).steps == 8
        found.append(objective.posterior.mean())
    assert same(*found)
    with pytest.raises(InputError, match="no length: say steps="):
        cr.fit(build("MAP"), None, DataLoader(Stream(), batch_size=8), epochs=2, keep=cr.Thin(), progress=False)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_draws_are_the_weights_at_their_steps(build, rows, by_hand, same, tmp_path, where):
    objective, hand = build("MAP"), build("MAP")
    options = {"run_dir": tmp_path} if where == "disk" else {}
    sgd = torch.optim.SGD(objective.parameters(), lr=0.1)
    loader, keep = batches(rows, 7), cr.Thin(after=0.35, every=2)
    result = cr.fit(objective, sgd, loader, epochs=2, keep=keep, progress=False, **options)
    weights = by_hand(hand, torch.optim.SGD(hand.parameters(), lr=0.1), batches(rows, 7), epochs=2)
    assert len(result.posterior) == 3
    for draw, step in zip(result.posterior.draws(), (6, 8, 10), strict=True):  # ceil(0.35 * 10) = 4
        assert same(draw, weights[step - 1])


def test_progress_is_a_line_per_epoch_where_there_is_no_terminal(build, rows, capsys, monkeypatch):
    """At most one every few seconds, and one at the end."""
    cr.fit(build(), None, batches(rows, 8), epochs=3)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1", "epoch 3"]
    assert all("nll" in line for line in lines)
    monkeypatch.setattr(progress, "_SECONDS_PER_LINE", -1.0)
    cr.fit(build(), None, batches(rows, 8), epochs=2)
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["epoch 1", "epoch 2"]
    cr.fit(build(), None, batches(rows, 8), epochs=1, progress=False)
    assert capsys.readouterr() == ("", "")


# -- num_data ---------------------------------------------------------------------------------------------------------


def test_a_num_data_that_is_not_the_data_s_is_pointed_out(build, rows):
    with pytest.warns(UserWarning, match=r"num_data=8, .* 32 examples.*num_data=len\(loader\.dataset\)") as caught:
        cr.fit(build(num_data=8), None, batches(rows, 8), steps=1, progress=False)
    assert caught[0].filename == __file__
    cr.fit(build(num_data=8), None, [(x, y) for x, y in batches(rows, 8)], steps=1, progress=False)  # says no size


def test_a_batch_is_not_larger_than_the_data(build, rows):
    with pytest.raises(InputError, match=r"batch of 32 .* num_data=8.*num_data=len\(dataset\)"):
        cr.fit(build(num_data=8), None, [TensorDataset(*rows.tensors)[:]], steps=1, progress=False)
