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
from credent.errors import BudgetError, CheckpointError, CredentError, InputError, NonFiniteError
from credent.families import Draws
from credent.training.sampling import warn_of_burn_in


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
    [
        (10, r"step 10.*Write Thin\(after=0\.63\), or run longer"),
        (1000, r"step 1000.*burn_in=9"),
        (15, r"step 15.*burn_in=9"),
        (9, None),
        (None, None),
    ],
)
@pytest.mark.parametrize("sampler", ["PSGLD", "BNPSGLD"])
def test_draws_from_before_the_end_of_burn_in_are_named(rows, sampler, burn_in, advice):
    if advice is None:
        assert len(chain(rows, sampler, given={"burn_in": burn_in}).posterior) == 4
        return
    with pytest.warns(UserWarning, match=rf"kept from step 10 on, and {sampler} adapts until {advice}"):
        chain(rows, sampler, given={"burn_in": burn_in})


@pytest.mark.parametrize(("burn_in", "total"), [(331, 1000), (999, 1003), (1, 3), (2, 7)])
def test_the_advice_of_a_later_start_helps(burn_in, total):
    """It is taken once, and then there is nothing left to warn of."""
    sampler = cr.samplers.PSGLD([nn.Parameter(torch.zeros(1))], lr=1e-3, num_data=1, burn_in=burn_in)
    with pytest.warns(UserWarning, match="Write Thin") as caught:
        warn_of_burn_in(sampler, cr.Thin(after=0.0, every=1), total)
    after = float(str(caught[0].message).split("Thin(after=")[1].split(")")[0])
    warn_of_burn_in(sampler, cr.Thin(after=after, every=1), total)
    assert after < burn_in / total + 0.011


def test_a_chain_of_which_nothing_is_kept_is_told_to_be_a_point():
    net, rows = nn.Linear(1, 1), [(torch.ones(4, 1), torch.ones(4, 1))]
    objective = cr.MAP(net, cr.likelihoods.Gaussian(), num_data=4)
    walk = cr.samplers.SGLD(net.parameters(), lr=1e-3, num_data=4)
    with pytest.warns(UserWarning, match=r"no draw of SGLD is kept.*keep=cr\.Thin"):
        cr.fit(objective, walk, rows, steps=2, progress=False)
    descent = cr.samplers.SGLD(net.parameters(), lr=1e-3, num_data=4, temperature=0.0)
    cr.fit(objective, descent, rows, steps=2, progress=False)


def test_a_noise_that_the_chain_leaves_where_it_is_is_named():
    net = nn.Linear(1, 1)
    objective = cr.MAP(net, cr.likelihoods.Gaussian("learnt"), num_data=4)
    walk, keep = cr.samplers.SGLD(net.parameters(), lr=1e-3, num_data=4), cr.Thin(after=0.0, every=1)
    with pytest.warns(
        UserWarning, match=r"log_scale: SGLD draws random.*stays at its value.*Gaussian\(scale="
    ) as caught:
        cr.fit(objective, walk, [(torch.zeros(4, 1), torch.zeros(4, 1))], steps=1, keep=keep, progress=False)
    assert "param_groups" not in str(caught[0].message)


@pytest.mark.parametrize(("method", "prior"), [(cr.MAP, cr.penalties.L2(1.0)), (cr.MAP, cr.penalties.L1(1.0))])
def test_at_temperature_zero_a_sampler_is_an_optimiser(method, prior):
    """BNP-preconditioned descent on a penalty without a density; a chain on it is refused."""
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 16)[:, None]

    def run(temperature):
        net = nn.Linear(1, 1)
        objective = method(net, cr.likelihoods.Gaussian(scale=1.0), prior, num_data=16)
        walk = cr.samplers.BNPSGLD(net, lr=0.1, num_data=16, temperature=temperature)
        return cr.fit(objective, walk, [(x, 2 * x)], steps=50, progress=False).history[-1]["nll"]

    assert run(0.0) < 1.0
    with pytest.raises(InputError, match="draws from a density"):
        run(0.1)


# -- going on as it was begun -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"given": {"temperature": 0.5}}, r"temperature is \[1\.0\], this one's is \[0\.5\]"),
        ({"given": {"momentum": 0.9}}, r"momentum is \[0\.0\], this one's is \[0\.9\]"),
        ({"given": {"burn_in": 5}}, "burn_in is 4, this one's is 5"),
        ({"given": {"decay": 0.5}}, r"decay of the preconditioner is 0\.99"),
        ({"given": {"lr": 2e-3}}, r"lr is \[0\.001\], this one's is \[0\.002\]"),
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


def regression(run_dir, steps=4, scale=0.1, delay=10.0, keep=None, resume=True):
    """A chain with a schedule, on sixteen points; `fit` gets all of it anew."""
    torch.manual_seed(0)
    x, net = torch.linspace(-1, 1, 16)[:, None], nn.Linear(1, 1)
    objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=scale), num_data=16)
    walk = cr.samplers.SGLD(net.parameters(), lr=1e-4, num_data=16, seed=0)
    options = {"scheduler": cr.samplers.polynomial(walk, delay=delay), "schedule": "step", "progress": False}
    keep = cr.Thin(after=0.0, every=1) if keep is None else keep
    return cr.fit(objective, walk, [(x, x)], steps=steps, run_dir=run_dir, resume=resume, keep=keep, **options)


def test_another_noise_or_schedule_is_another_posterior(tmp_path):
    regression(tmp_path)
    with pytest.raises(CheckpointError, match=r"known of the likelihood is 0\.1, this one's is 1\.0"):
        regression(tmp_path, scale=1.0)
    with pytest.raises(CheckpointError, match=r"of the scheduler is \[\{'delay': 10\.0.*\[\{'delay': 20\.0"):
        regression(tmp_path, delay=20.0)
    assert regression(tmp_path).steps == 4


def draws(run_dir):
    return {p.name: p.read_bytes() for p in (run_dir / "draws").iterdir()}


def test_a_chain_can_be_made_longer(tmp_path):
    """Where the draws that are there are also the longer one's, they stay, and the bytes are those of one long run."""
    regression(tmp_path / "long", steps=12)
    for steps in (4, 4, 12):
        longer = regression(tmp_path / "longer", steps=steps)
    assert draws(tmp_path / "longer") == draws(tmp_path / "long")
    assert len(longer.posterior) == 12
    with pytest.raises(CheckpointError, match=r"draws of a run of 12 steps.*this one has 8: write steps=12, or more"):
        regression(tmp_path / "longer", steps=8)


def test_draws_of_another_plan_are_not_mixed_with_these(tmp_path):
    half = cr.Thin(after=0.5, every=2)
    regression(tmp_path, steps=8, keep=half)
    before = draws(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        regression(tmp_path, steps=12, keep=half)
    words = str(caught.value)
    assert "one every 2 after step 4; Thin(after=0.5, every=2) in 12 steps is one every 2 after step 6" in words
    after = float(words.split("Write Thin(after=")[1].split(",")[0])
    assert draws(tmp_path) == before
    assert len(regression(tmp_path, steps=12, keep=cr.Thin(after=after, every=2)).posterior) == 4
    assert before.items() <= draws(tmp_path).items()


def test_a_deleted_draw_is_not_replaced_by_another(tmp_path):
    """As the error about a broken one advises: the numbers of the others stay, and none is there twice."""
    regression(tmp_path / "long", steps=12)
    regression(tmp_path / "one", steps=8)
    for gone in ("00000003", "00000007"):
        (tmp_path / "one" / "draws" / f"{gone}.safetensors").unlink()
    regression(tmp_path / "one", steps=12)
    expected = draws(tmp_path / "long")
    for gone in ("00000003", "00000007"):
        del expected[f"{gone}.safetensors"]
    assert draws(tmp_path / "one") == expected


# -- disks ------------------------------------------------------------------------------------------------------------

BYTES = 4 * 18  # of a draw


def test_a_disk_without_room_is_refused_before_anything_runs(rows, tmp_path, monkeypatch):
    def has(free):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free) if path.exists() else None)

    has(4 * BYTES)
    with pytest.raises(
        BudgetError, match=rf"4 draws of {BYTES} bytes and a checkpoint are .*has {4 * BYTES} free"
    ) as no:
        chain(rows, run_dir=tmp_path / "deep" / "run")
    assert not (tmp_path / "deep").exists()
    need = int(str(no.value).split("checkpoint are ")[1].split(" bytes")[0].replace(",", ""))
    assert 5 * BYTES < need < 5 * BYTES + 50_000  # the weights, and the states of generators
    has(need - 1)
    with pytest.raises(BudgetError):
        chain(rows, run_dir=tmp_path / "deep" / "run")
    has(need)
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
    for words in ("No space left", "2 draws that are finished are whole", "resume=True"):
        assert words in str(caught.value)
    size = (filled / "checkpoint" / "step-000000012.pt").stat().st_size
    need = f"{2 * BYTES + size:,} bytes"
    assert f"The others and a checkpoint need {need}" in str(caught.value)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2 * BYTES + size - 1))
        with pytest.raises(BudgetError, match=rf"2 draws of {BYTES} bytes and a checkpoint are {need}"):
            chain(rows, run_dir=filled, checkpoint_every=3, resume=True)
        patched.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2 * BYTES + size))
    assert str(filled / "draws") in str(caught.value)
    finished = {p.name: p.read_bytes() for p in (filled / "draws").iterdir()}
    assert len(finished) == 2
    assert len(Draws(filled / "draws")) == 2
    chain(rows, run_dir=filled, checkpoint_every=3, resume=True)
    again, expected = ({p.name: p.read_bytes() for p in (d / "draws").iterdir()} for d in (filled, whole))
    assert again == expected
    assert finished.items() <= again.items()


def test_a_disk_that_fills_twice_before_the_first_checkpoint(rows, tmp_path, monkeypatch):
    """The chain goes on from its own unseeded beginning, and what is there stays there until it is written again."""
    replace, writes = os.replace, []

    def full(source, target):
        if "draws" in str(target):
            writes.append(target)
            if len(writes) in (4, 4 + 2):
                raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    plan = {"keep": cr.Thin(after=0.0, every=2), "given": {"seed": None}}
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CredentError, match="3 draws that are finished"):
        chain(rows, run_dir=tmp_path / "run", **plan)
    first = draws(tmp_path / "run")
    assert len(first) == 3
    with pytest.raises(CredentError, match="3 draws that are finished"):
        chain(rows, net_seed=1, run_dir=tmp_path / "run", resume=True, **plan)
    assert draws(tmp_path / "run") == first
    chain(rows, net_seed=2, run_dir=tmp_path / "run", resume=True, **plan)
    assert first.items() <= draws(tmp_path / "run").items()
    chain(rows, run_dir=tmp_path / "whole", **plan)
    assert draws(tmp_path / "run") == draws(tmp_path / "whole")
    assert len(draws(tmp_path / "run")) == 8


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
    assert "last of them may already be" in str(caught.value)
    assert len(caught.value.draws) == kept
    with pytest.raises(NonFiniteError, match=rf"{kept} finished draws are in this error's `draws`") as caught:
        run(4e-3, None)
    assert same(Draws(caught.value.draws), Draws(tmp_path / "large" / "draws"))
    assert "clip" not in str(caught.value)
    assert all(w.isfinite().all() for params in Draws(tmp_path / "large" / "draws").draws() for w in params.values())
    assert len(run(4e-4, tmp_path / "small").posterior) == 40
