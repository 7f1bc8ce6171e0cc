"""What `fit` sees to when the optimiser is a sampler."""

import errno
import os
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import credent as cr
from credent.data import batches
from credent.errors import BudgetError, CheckpointError, CredentError, NonFiniteError
from credent.families import Draws


def chain(rows, sampler="SGLD", batch_size=8, net_seed=0, given=None, **options):
    """Sixteen steps on thirty-two rows, four to an epoch; `given` goes to the sampler."""
    torch.manual_seed(net_seed)
    net = nn.Linear(5, 3)
    objective = cr.MAP(net, cr.likelihoods.Categorical(), num_data=32)
    made = getattr(cr.samplers, sampler)
    target = net if sampler == "BNPSGLD" else net.parameters()
    walk = made(target, **{"lr": 1e-3, "num_data": 32, **(given or {})})
    options = {"keep": cr.Thin(after=0.5, every=2), "progress": False, "steps": 16} | options
    return cr.fit(objective, walk, batches(rows, batch_size, shuffle=True, seed=0), **options)


def same(a, b):
    return len(a) == len(b) and all(
        torch.equal(u[k], v[k]) for u, v in zip(a.draws(), b.draws(), strict=True) for k in u
    )


# -- streams ----------------------------------------------------------------------------------------------------------


def test_seed_reaches_the_sampler_s_own_stream(rows):
    """Whatever seed the sampler was built with, and whatever the global stream was then."""
    one, other = (chain(rows, given={"seed": s}, seed=7).posterior for s in (1, 2))
    assert same(one, other)
    assert not same(one, chain(rows, given={"seed": 1}, seed=8).posterior)
    assert not same(*(chain(rows, given={"seed": s}).posterior for s in (1, 2)))


# -- other laws -------------------------------------------------------------------------------------------------------


def test_clipping_is_named(rows):
    with pytest.warns(UserWarning, match=r"clip=0\.1 bounds the gradient and not the noise, so SGLD does not sample"):
        chain(rows, clip=0.1)
    chain(rows, clip=0.1, given={"temperature": 0.0})  # an optimiser then


@pytest.mark.parametrize(
    ("burn_in", "advice"),
    [(10, r"step 10.*Thin\(after=0\.62\)"), (1000, r"step 1000.*burn_in=9"), (9, None), (None, None)],
)
@pytest.mark.parametrize("sampler", ["PSGLD", "BNPSGLD"])
def test_draws_from_before_the_end_of_burn_in_are_named(rows, sampler, burn_in, advice):
    if advice is None:
        assert len(chain(rows, sampler, given={"burn_in": burn_in}).posterior) == 4
        return
    with pytest.warns(UserWarning, match=rf"kept from step 10 on, and {sampler} adapts until {advice}"):
        chain(rows, sampler, given={"burn_in": burn_in})


# -- going on as it was begun -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"given": {"temperature": 0.5}}, r"temperature is \[1\.0\], this one's is \[0\.5\]"),
        ({"given": {"momentum": 0.9}}, r"momentum is \[0\.0\], this one's is \[0\.9\]"),
        ({"given": {"burn_in": 5}}, "burn_in is 4, this one's is 5"),
        ({"given": {"decay": 0.5}}, r"decay of the preconditioner is 0\.99"),
        ({"batch_size": 4}, "batch size is 8, this one's is 4"),
        ({"accumulate": 2}, "number of batches in a step is 1, this one's is 2"),
    ],
)
def test_a_chain_of_another_law_does_not_go_on(rows, tmp_path, changes, match):
    given = {"burn_in": 4}
    chain(rows, "PSGLD", given=given, run_dir=tmp_path)
    assert same(chain(rows, "PSGLD", given=given, run_dir=tmp_path, resume=True).posterior, Draws(tmp_path / "draws"))
    changed = {**changes, "given": given | changes.get("given", {})}
    with pytest.raises(CheckpointError, match=match):
        chain(rows, "PSGLD", run_dir=tmp_path, resume=True, **changed)


def test_settings_of_a_nested_preconditioner_count(rows, tmp_path):
    given = {"burn_in": 4, "fallback": cr.samplers.RMSprop(decay=0.9)}
    chain(rows, "BNPSGLD", given=given, run_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"decay of the fallback is 0\.9, this one's is 0\.8"):
        changed = given | {"fallback": cr.samplers.RMSprop(decay=0.8)}
        chain(rows, "BNPSGLD", given=changed, run_dir=tmp_path, resume=True)


# -- disks ------------------------------------------------------------------------------------------------------------

BYTES = 4 * 18  # of a draw


def test_a_disk_without_room_is_refused_before_anything_runs(rows, tmp_path, monkeypatch):
    def has(free):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free) if path.exists() else None)

    has(4 * BYTES - 1)
    with pytest.raises(BudgetError, match=rf"4 draws of {BYTES} bytes are {4 * BYTES}.*has {4 * BYTES - 1} free"):
        chain(rows, run_dir=tmp_path / "deep" / "run")
    assert not (tmp_path / "deep").exists()
    has(4 * BYTES)
    chain(rows, run_dir=tmp_path / "deep" / "run")
    has(0)
    chain(rows, run_dir=tmp_path / "deep" / "run", resume=True)  # nothing is missing
    chain(rows)  # in memory


def test_a_disk_that_fills_keeps_every_finished_draw(rows, tmp_path, monkeypatch):
    """Full at the third draw; with room again the chain goes on to the bytes of one that always had it."""
    replace, kept = os.replace, []

    def full(source, target):
        if "draws" in str(target):
            if len(kept) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            kept.append(target)
        replace(source, target)

    whole, filled = tmp_path / "whole", tmp_path / "filled"
    chain(rows, run_dir=whole, checkpoint_every=3)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(CredentError) as caught:
            chain(rows, run_dir=filled, checkpoint_every=3)
    for words in ("No space left", "2 draws that are finished are whole", f"need {2 * BYTES} bytes", "resume=True"):
        assert words in str(caught.value)
    assert str(filled / "draws") in str(caught.value)
    finished = {p.name: p.read_bytes() for p in (filled / "draws").iterdir()}
    assert len(finished) == 2
    assert len(Draws(filled / "draws")) == 2
    chain(rows, run_dir=filled, checkpoint_every=3, resume=True)
    again, expected = ({p.name: p.read_bytes() for p in (d / "draws").iterdir()} for d in (filled, whole))
    assert again == expected
    assert finished.items() <= again.items()


# -- steps that are too large -----------------------------------------------------------------------------------------


def test_a_chain_that_diverges_is_stopped_and_its_draws_kept(tmp_path):
    """A regression of curvature 1600: steps above 4 / 1600 grow until numbers end; a tenth of that one does not."""
    x = torch.linspace(-1, 1, 16)[:, None]

    def run(lr, run_dir):
        torch.manual_seed(0)
        net = nn.Linear(1, 1)
        objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=0.1), num_data=16)
        walk = cr.samplers.SGLD(net.parameters(), lr=lr, num_data=16, seed=0)
        keep = cr.Thin(after=0.0, every=5)
        return cr.fit(objective, walk, [(x, x)], steps=200, keep=keep, run_dir=run_dir, progress=False)

    with pytest.raises(NonFiniteError) as caught:
        run(4e-3, tmp_path / "large")
    kept = len(Draws(tmp_path / "large" / "draws"))
    assert 0 < kept < 40
    for words in ("SGLD(lr=0.004)", "diverges", "lr=0.0004", f"{kept} finished draws are in", "run_dir of its own"):
        assert words in str(caught.value)
    assert "clip" not in str(caught.value)
    assert all(w.isfinite().all() for params in Draws(tmp_path / "large" / "draws").draws() for w in params.values())
    assert len(run(4e-4, tmp_path / "small").posterior) == 40
