"""A posterior file is all that prediction needs, the same bytes each time, and never code."""

import hashlib
import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import credent as cr
from credent.errors import CheckpointError, InputError
from credent.families import draws as draws_module
from credent.families.draws import DrawFiles

X = torch.linspace(-2, 2, 20)[:, None]
KINDS = ["MAP", "Gaussian", "Radial", "Draws"]


def build(kind, seed, width=6, noise="learnt"):
    """A regression with BatchNorm and a learnt noise; the seed decides the first weights."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(1, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, 1))
    likelihood = cr.likelihoods.Gaussian(noise)
    if kind in ("MAP", "Draws"):
        return cr.MAP(net, likelihood, num_data=20)
    return cr.VI(net, likelihood, num_data=20, family=getattr(cr.families, kind)())


def trained(kind, run_dir=None):
    objective = build(kind, seed=0)
    keep = cr.Thin(after=0.5, every=2) if kind == "Draws" else None
    optimizer = torch.optim.Adam(objective.param_groups(lr=0.05))
    result = cr.fit(objective, optimizer, [(X, X.sin())], steps=10, keep=keep, run_dir=run_dir, progress=False)
    return objective, result.posterior


def predictions(objective, posterior, samples=None):
    pred = cr.predict(objective.net, posterior, objective.likelihood, X, samples=samples, seed=1)
    return pred.means, pred.scales


@pytest.mark.filterwarnings("ignore:BatchNorm follows random weights")
@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_posterior_predicts_the_same_bits(tmp_path, same, kind):
    """Into a network with other first weights, statistics and noise, which predicted something else."""
    objective, posterior = trained(kind)
    path = tmp_path / "posterior.safetensors"
    cr.save(objective, path, posterior if kind == "Draws" else None)
    fresh = build(kind, seed=1)
    assert not same(predictions(fresh, fresh.posterior, 4), predictions(objective, posterior, 4))
    loaded = cr.load(fresh, path)
    assert type(loaded) is type(posterior)
    assert same(predictions(fresh, loaded, 4), predictions(objective, posterior, 4))
    assert same(loaded.mean(), posterior.mean())
    assert same(loaded.stddev(), posterior.stddev())
    assert same(fresh.net[1].running_var, objective.net[1].running_var)
    assert same(fresh.likelihood.log_scale, objective.likelihood.log_scale)
    if kind == "Draws":
        assert len(loaded) == len(posterior) == 2
        assert all(map(same, loaded.draws(), posterior.draws()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_leaves_the_files_that_save_writes(tmp_path, kind):
    objective, posterior = trained(kind, tmp_path / "run")
    cr.save(objective, tmp_path / "saved" / "posterior.safetensors", posterior if kind == "Draws" else None)

    def contents(directory):
        return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*.safetensors")}

    assert contents(tmp_path / "run") == contents(tmp_path / "saved")
    assert len(contents(tmp_path / "run")) == (3 if kind == "Draws" else 1)


@pytest.mark.parametrize("kind", ["Gaussian", "Draws"])
def test_the_bytes_depend_on_the_numbers_alone(tmp_path, kind):
    digests = set()
    for name in "ab":
        objective, posterior = trained(kind)
        if name == "b":  # where the streams stand is no part of a posterior
            next(objective.posterior.draws())
        cr.save(objective, tmp_path / name / "p.safetensors", posterior if kind == "Draws" else None)
        files = sorted((tmp_path / name).rglob("*.safetensors"))
        digests.add(hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest())
    assert len(digests) == 1


def test_nothing_but_numbers_is_inside(tmp_path):
    """The layout of the file, read by hand: a length, a JSON header, and the tensors' bytes to the end."""
    objective, posterior = trained("Draws")
    path = tmp_path / "posterior.safetensors"
    cr.save(objective, path, posterior)
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    about = header.pop("__metadata__")
    kinds = {"objective": "MAP", "family": "DiracPosterior", "likelihood": "Gaussian"}
    assert json.loads(about["credent"]) == {"credent": 1, **kinds, "draws": 2}
    assert max(each["data_offsets"][1] for each in header.values()) == len(raw) - 8 - length
    names = {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"}
    statistics = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert header.keys() == {f"net.{n}" for n in names | statistics} | {"likelihood.log_scale"}
    assert {p.name for p in (tmp_path / "draws").iterdir()} == {f"{i:08d}.safetensors" for i in (0, 1)}
    assert load_file(tmp_path / "draws" / "00000001.safetensors").keys() == names


# -- draws beside the file --------------------------------------------------------------------------------------------


def test_draws_are_read_one_at_a_time_and_mapped(tmp_path, monkeypatch):
    """Loading opens the first draw alone, and what a draw's tensors point to is the file, not a copy."""
    trained("Draws", tmp_path)
    opened, original = [], draws_module.safe_open
    monkeypatch.setattr(
        draws_module, "safe_open", lambda path, **how: opened.append(path.name) or original(path, **how)
    )
    loaded = cr.load(build("Draws", seed=1), tmp_path / "posterior.safetensors")
    assert opened == ["00000000.safetensors"]
    assert loaded.directory == tmp_path / "draws"
    held = loaded[1]  # while it is held, the process has the file mapped
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path / "draws" / "00000001.safetensors") in maps.read_text()
    before = held["0.weight"].clone()
    held["0.weight"].add_(1.0)  # the mapping is private
    assert torch.equal(loaded[1]["0.weight"], before)


def test_missing_and_foreign_draws_are_named(tmp_path):
    trained("Draws", tmp_path)
    path = tmp_path / "posterior.safetensors"
    (tmp_path / "draws" / "00000000.safetensors").unlink()
    fresh = build("Draws", seed=1)
    before = fresh.net[0].weight.clone()
    with pytest.raises(CheckpointError, match=r"has 2 draws, and .*draws holds 1.*copy it along.*Draws\("):
        cr.load(fresh, path)
    assert len(cr.families.Draws(tmp_path / "draws")) == 1
    shutil.rmtree(tmp_path / "draws")
    with pytest.raises(CheckpointError, match=r"has 2 draws, and .*draws holds 0"):
        cr.load(fresh, path)
    for _ in range(2):
        DrawFiles(tmp_path / "draws").append({"w": torch.zeros(1)})
    with pytest.raises(CheckpointError, match="draws of another network"):
        cr.load(fresh, path)
    assert torch.equal(fresh.net[0].weight, before)


def test_draws_of_another_posterior_are_not_mixed_in(tmp_path):
    objective, posterior = trained("Draws")
    cr.save(objective, tmp_path / "a.safetensors", posterior)
    with pytest.raises(InputError, match=r"already holds 2 draws of another posterior.*directory of its own"):
        cr.save(objective, tmp_path / "b.safetensors", posterior)
    assert not (tmp_path / "b.safetensors").exists()
    loaded = cr.load(build("Draws", 0), tmp_path / "a.safetensors")
    cr.save(objective, tmp_path / "a.safetensors", loaded)  # they are there already
    assert len(list((tmp_path / "draws").iterdir())) == 2


def test_saving_leaves_no_part_and_replaces_whole(tmp_path):
    objective, _ = trained("MAP")
    path = tmp_path / "deep" / "posterior.safetensors"
    cr.save(objective, path)
    cr.save(objective, path)
    assert [p.name for p in path.parent.iterdir()] == ["posterior.safetensors"]


# -- what does not fit ------------------------------------------------------------------------------------------------


class Other(cr.likelihoods.Gaussian):
    """A likelihood with the same tensors."""


def test_what_is_no_objective_is_told_so(tmp_path):
    objective = build("Gaussian", 0)
    for wrong in (objective.posterior, objective.net, "posterior.safetensors"):
        with pytest.raises(
            InputError, match=rf"save\(objective, path\) takes the objective.*a {type(wrong).__name__};"
        ):
            cr.save(wrong, tmp_path / "posterior.safetensors")
        with pytest.raises(InputError, match=r"load\(objective, path\) takes the objective"):
            cr.load(wrong, tmp_path / "posterior.safetensors")
    with pytest.raises(InputError, match=r"is a directory: .*posterior\.safetensors"):
        cr.load(objective, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda: build("Gaussian", 0, width=7), r"another network: .*has shape \(6"),
        (lambda: build("MAP", 0), "VI with GaussianPosterior .* this MAP with DiracPosterior.*build the objective as"),
        (lambda: build("Radial", 0), "GaussianPosterior with Gaussian and does not fit this VI with RadialPosterior"),
        (lambda: cr.VI(build("Gaussian", 0).net, Other("learnt"), num_data=20), "with Gaussian and .* with Other"),
        (lambda: build("Gaussian", 0, noise=0.5), r"differ in likelihood\.log_scale"),
        (lambda: cr.VI(nn.Linear(1, 1), cr.likelihoods.Gaussian(), num_data=20), r"differ in .*net\.0\.bias"),
    ],
)
def test_another_network_s_posterior_is_refused(tmp_path, same, other, match):
    path = tmp_path / "posterior.safetensors"
    cr.save(trained("Gaussian")[0], path)
    objective = other()
    before = {k: v.clone() for k, v in objective.state_dict().items() if isinstance(v, torch.Tensor)}
    with pytest.raises(CheckpointError, match=match):
        cr.load(objective, path)
    assert all(torch.equal(v, objective.state_dict()[k]) for k, v in before.items())


def test_a_prior_that_changes_what_is_drawn_belongs_to_the_file(tmp_path):
    def stable(prior):
        torch.manual_seed(0)
        return cr.VI(nn.Linear(3, 2), cr.likelihoods.Gaussian(0.1), prior, num_data=20)

    mine, path = cr.priors.SelfStabilizing(), tmp_path / "posterior.safetensors"
    saved = stable(mine)
    cr.save(saved, path)
    loaded = cr.load(stable(mine), path)
    assert torch.equal(loaded.stddev()["weight"], saved.posterior.stddev()["weight"])
    for other in (cr.priors.Gaussian(), cr.priors.SelfStabilizing("squares")):
        with pytest.raises(CheckpointError, match=r"SelfStabilizing\(condition='sum'\).*build it with the prior"):
            cr.load(stable(other), path)
    cr.save(stable(cr.priors.Gaussian()), path)
    with pytest.raises(CheckpointError, match=r"makes of q \(q itself\)"):
        cr.load(stable(mine), path)
    cr.load(stable(cr.priors.Laplace()), path)  # of two that leave q alone, either will do


@pytest.mark.parametrize("prior", [cr.priors.InverseReference("inner", every=2), cr.priors.NodeHorseshoe()])
def test_what_a_prior_remembers_is_left_out_and_what_it_learnt_is_not(tmp_path, prior):
    def build():
        torch.manual_seed(0)
        return cr.VI(nn.Linear(3, 2), cr.likelihoods.Gaussian(0.1), prior, num_data=20)

    saved, path = build(), tmp_path / "posterior.safetensors"
    saved(torch.randn(4, 3), torch.randn(4, 2)).backward()
    with torch.no_grad():
        for p in saved.parameters():
            p.add_(0.1)
    cr.save(saved, path)
    learnt = {f"penalty.{k}" for k, _ in saved.penalty.named_parameters()}
    assert {k for k in load_file(path) if k.startswith("penalty.")} == learnt
    fresh = build()
    cr.load(fresh, path)
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), saved.parameters(), strict=True))


def test_foreign_truncated_and_missing_files_are_refused(tmp_path):
    objective = build("Gaussian", 0)
    path = tmp_path / "posterior.safetensors"
    with pytest.raises(CheckpointError, match=r"there is no .*--resume"):
        cr.load(objective, path)
    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="not a posterior that this version of credent wrote"):
        cr.load(objective, path)
    save_file({"w": torch.zeros(2)}, path, metadata={"credent": json.dumps({"credent": 2, "objective": "VI"})})
    with pytest.raises(CheckpointError, match="not a posterior that this version of credent wrote"):
        cr.load(objective, path)
    save_file({"w": torch.zeros(2)}, path, metadata={"credent": "not json"})
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        cr.load(objective, path)
    cr.save(trained("Gaussian")[0], path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        cr.load(objective, path)


def test_safetensors_alone_reads_the_file(tmp_path):
    """Another program needs no part of credent."""
    objective, _ = trained("Gaussian")
    cr.save(objective, tmp_path / "posterior.safetensors")
    tensors = load_file(tmp_path / "posterior.safetensors")
    for name, p in objective.net.named_parameters():
        assert torch.equal(tensors[f"net.{name}"], p.detach())
        assert torch.equal(tensors[f"q.scales.rho.{name}"], objective.state_dict()[f"q.scales.rho.{name}"])
