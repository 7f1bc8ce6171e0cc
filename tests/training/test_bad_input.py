"""Wrong input is refused with the line to write instead, and harms nothing on disk."""

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import credent as cr
from credent.data import batches
from credent.errors import BudgetError, CheckpointError, CredentError, InputError, NonFiniteError
from credent.families import Mixture
from credent.training import checkpoint


def contents(directory):
    return {p.relative_to(directory): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


@pytest.fixture
def begun(build, rows, tmp_path):
    """A run of three steps that another loader is about to go on with: `go_on(loader)` must fail, and not harm it."""
    cr.fit(build("MAP"), None, list(batches(rows, 8)), steps=3, run_dir=tmp_path, progress=False)
    before = contents(tmp_path)

    def go_on(loader, error, match, objective=None, **options):
        options = {"steps": 9, "run_dir": tmp_path, "resume": True, "progress": False} | options
        with pytest.raises(error, match=match) as caught:
            cr.fit(build("MAP") if objective is None else objective, None, loader, **options)
        assert isinstance(caught.value, CredentError)
        assert contents(tmp_path) == before

    return go_on


def test_an_empty_loader(build, rows, begun, tmp_path):
    begun([], InputError, "loader is empty.*no batch")
    run_dir = tmp_path / "new"
    with pytest.raises(InputError, match="loader is empty"):
        cr.fit(build("MAP"), None, [], epochs=1, run_dir=run_dir, progress=False)
    # the next attempt needs no other directory
    assert cr.fit(build("MAP"), None, batches(rows, 8), epochs=1, run_dir=run_dir, progress=False).steps == 4


def test_a_generator_that_is_used_up(build, rows):
    once = (each for each in [rows[:8], rows[8:16]])
    with pytest.raises(InputError, match="generator that was used up"):
        cr.fit(build(), None, once, epochs=2, progress=False)


@pytest.mark.parametrize("batch", [torch.zeros(8, 5), {"x": torch.zeros(8, 5)}, (torch.zeros(8, 5),), ([0.0], [1])])
def test_batches_of_another_make(begun, batch):
    begun([batch], InputError, r"the loader gave \w+; training needs \(x, y\)")


def test_a_last_batch_of_one_row_leaves_batchnorm_nothing(build, rows):
    with pytest.raises(InputError, match=r"one row leaves BatchNorm nothing.*drop_last=True"):
        cr.fit(build(norm=True), None, [rows[:8], rows[8:9]], epochs=1, progress=False)


def test_labels_that_are_no_tensor(build, rows):
    x, y = rows[:4]
    with pytest.raises(InputError, match=r"targets are a tensor, and here is a ndarray: torch\.as_tensor"):
        build()(x, y.numpy())


def test_a_file_in_the_place_of_a_run(build, rows, tmp_path):
    place = tmp_path / "file"
    place.write_text("mine")
    with pytest.raises(InputError, match="is a file, and a run is a directory"):
        cr.fit(build(), None, batches(rows, 8), steps=1, run_dir=place, progress=False)
    assert place.read_text() == "mine"


def test_a_mixture_has_no_file_of_its_own(build, tmp_path):
    mixture = Mixture([build(seed=0).posterior, build(seed=1).posterior])
    with pytest.raises(InputError, match="a mixture has a file for each member's"):
        cr.save(mixture, tmp_path / "m.safetensors")
    with pytest.raises(InputError, match=r"here is a Mixture. Of a mixture.*Mixture\(\[load"):
        cr.save(build(), tmp_path / "m.safetensors", mixture)
    assert not list(tmp_path.iterdir())


def test_batches_without_rows(begun, rows):
    x, y = rows.tensors
    begun(DataLoader(TensorDataset(x, y), batch_size=None), InputError, r"shape \(\).*batch_size=32")
    begun([(x[:0], y[:0])], InputError, r"shape \(0,\).*at least one row")


def test_labels_out_of_range(begun, rows):
    x, y = rows.tensors
    begun([(x, y + 1)], InputError, "labels run from 1 to 3.*3 outputs.*renumber")
    begun([(x, y - 1)], InputError, "labels run from -1 to 1.*renumber.*passed over are not known")


def test_an_optimiser_that_is_not_built(rows):
    bnn = cr.MAP(nn.Linear(5, 3), cr.likelihoods.Categorical(), num_data=len(rows))
    with pytest.raises(InputError, match=r"Adam\(objective\.param_groups"):
        cr.fit(bnn, torch.optim.Adam, batches(rows, 8), steps=1, progress=False)


def test_classes_on_the_second_axis():
    outputs, y = torch.zeros(4, 5, 8, 8), torch.zeros(4, 8, 8).long()
    with pytest.raises(InputError, match=r"movedim\(1, -1\)"):
        cr.likelihoods.Categorical().log_prob(outputs, y)
    assert cr.likelihoods.Categorical().log_prob(outputs.movedim(1, -1), y).shape == (4,)


def test_targets_of_another_shape_or_type(begun, rows):
    x, y = rows.tensors
    begun([(x, y[:8])], InputError, r"must have shape \(32,\).*y has \(8,\)")
    begun([(x, nn.functional.one_hot(y, 3))], InputError, r"y\.argmax\(-1\)")
    begun([(x, y.float())], InputError, r"y\.long\(\)")
    line = cr.MAP(nn.Linear(5, 1), cr.likelihoods.Gaussian(), num_data=32)
    with pytest.raises(InputError, match=r"y\.unsqueeze\(-1\)"):
        cr.fit(line, None, [(x, x[:, 0])], steps=1, progress=False)


def test_how_long(build, rows, tmp_path):
    for length in ({}, {"epochs": 1, "steps": 1}):
        with pytest.raises(InputError, match="epochs=10, or steps=5000"):
            cr.fit(build(), None, batches(rows, 8), run_dir=tmp_path / "new", progress=False, **length)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("wrong", [{"accumulate": 0}, {"log_every": 0}])
def test_counts_from_one(build, rows, wrong):
    with pytest.raises(InputError, match="count from 1"):
        cr.fit(build(), None, batches(rows, 8), steps=1, progress=False, **wrong)


@pytest.mark.parametrize("options", [{}, {"schedule": "step"}])
def test_a_plateau_schedule_needs_something_to_watch(build, rows, options):
    objective = build()
    sgd = torch.optim.SGD(objective.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd)
    val = {"val": batches(rows, 8)} if options else {}
    with pytest.raises(InputError, match=r"ReduceLROnPlateau.*val=loader.*'epoch'"):
        cr.fit(objective, sgd, batches(rows, 8), steps=1, scheduler=plateau, progress=False, **options, **val)


def test_an_empty_validation(build, rows):
    with pytest.raises(InputError, match=r"validation loader is empty.*leave val= out"):
        cr.fit(build(), None, batches(rows, 8), steps=1, val=[], progress=False)


# -- numbers that are none --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "step"), [(torch.nan, 4), (torch.inf, 4)])
def test_data_that_are_not_finite(begun, rows, value, step):
    """NaN is seen in the loss; an infinity that tanh turns into one, in the gradient before it moves a weight."""
    x, y = rows.tensors[0].clone(), rows.tensors[1]
    x[5, 2] = value
    match = rf"step {step}, because the data.*row 5 of a tensor \(32, 5\).*last good checkpoint"
    begun([(x, y)] * 2, NonFiniteError, match)


def test_broken_weights_are_not_written(begun, rows, monkeypatch, tmp_path):
    """An optimiser that breaks the weights, with a checkpoint after every step: the step that does it leaves none."""
    step, calls = torch.optim.Adam.step, []

    def broken(self, *args):
        step(self, *args)
        calls.append(self)
        if len(calls) == 2:
            self.param_groups[0]["params"][0].data[0, 0] = torch.nan

    monkeypatch.setattr(torch.optim.Adam, "step", broken)
    match = r"parameter net\.0\.weight is no longer finite at step 5"
    with pytest.raises(AssertionError):  # the fourth step is whole, and its checkpoint is the only thing that is new
        begun(list(batches(rows, 8)), NonFiniteError, match, checkpoint_every=1)
    newest = checkpoint.load(tmp_path / "checkpoint")
    assert newest["step"] == 4
    assert all(v.isfinite().all() for v in newest["objective"].values() if isinstance(v, torch.Tensor))


def test_targets_that_are_not_finite():
    x = torch.linspace(0, 1, 6)[:, None]
    y = x.clone()
    y[4] = torch.nan
    objective = cr.VI(nn.Linear(1, 1), cr.likelihoods.Gaussian(), num_data=6)
    with pytest.raises(NonFiniteError, match=r"row 4 of a tensor \(6, 1\).*Clean or drop"):
        cr.fit(objective, None, [(x, y)], steps=1, progress=False)


def test_a_learning_rate_that_diverges(tmp_path):
    """The error names what broke and when; the newest checkpoint is whole, finite, and goes on."""

    def build(lr):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))
        objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=0.1), num_data=16)
        return objective, torch.optim.SGD(objective.parameters(), lr=lr, momentum=0.9)

    x = torch.linspace(-1, 1, 16)[:, None]
    options = {"run_dir": tmp_path, "checkpoint_every": 1, "progress": False}
    with pytest.raises(NonFiniteError) as caught:
        cr.fit(*build(0.1), [(x, 2 * x)], steps=500, **options)
    state = checkpoint.load(tmp_path / "checkpoint")
    assert f"step {state['step'] + 1}" in str(caught.value)
    for word in ("largest weight is", "in net.", "lower the learning rate", "clip=1.0", "last good checkpoint"):
        assert word in str(caught.value)
    assert 1 < state["step"] < 500
    tensors = [v for k, v in state["objective"].items() if k.startswith("net.")]
    assert len(tensors) == 4
    assert all(v.isfinite().all() for v in tensors)
    assert not (tmp_path / "posterior.safetensors").exists()
    with pytest.raises(NonFiniteError):
        cr.fit(*build(0.1), [(x, 2 * x)], steps=500, resume=True, **options)
    assert checkpoint.load(tmp_path / "checkpoint")["step"] == state["step"]


def test_a_last_step_that_diverges_is_no_result(build, rows):
    objective = build("MAP")
    sgd = torch.optim.SGD(objective.parameters(), lr=torch.inf)
    with pytest.raises(NonFiniteError, match=r"parameter net\.0\.weight is no longer finite at step 1"):
        cr.fit(objective, sgd, batches(rows, 8), steps=1, progress=False)


def test_gradients_that_overflow(build, rows):
    """A finite loss of sqrt(w) at w = 0 has an infinite gradient; with clip= it is seen before it does harm."""

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return x[:, :3] * 0 + self.w.sqrt()

    objective = cr.MAP(Root(), cr.likelihoods.Categorical(), num_data=32)
    with pytest.raises(NonFiniteError, match=r"gradient of net\.w is not finite at step 1"):
        cr.fit(objective, None, batches(rows, 32), steps=1, clip=1.0, progress=False)
    assert objective.net.w.isfinite().all()


def test_an_infinite_score_does_not_stop_the_run(tmp_path):
    """A target whose square overflows has an infinite NLL: a null in the history, not the end of the run."""
    objective = cr.MAP(nn.Linear(1, 1), cr.likelihoods.Gaussian(), num_data=1)
    x = torch.ones(1, 1)
    options = {"val": [(x, 1e30 * x)], "run_dir": tmp_path, "progress": False}
    result = cr.fit(objective, None, [(x, x)], epochs=2, **options)
    assert [row["val_nll"] for row in result.history] == [None, None]
    assert '"val_nll": null' in (tmp_path / "history.jsonl").read_text()


# -- files ------------------------------------------------------------------------------------------------------------


class Trap:
    """A pickle that leaves a file behind wherever it is loaded with code allowed."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def bombs(directory, trap):
    """Both ways to hide one: a bare pickle, and a zip as torch writes it."""
    directory.mkdir(parents=True)
    (directory / "step-000000001.pt").write_bytes(pickle.dumps({"mark": "credent checkpoint 1", "x": Trap(trap)}))
    torch.save({"mark": "credent checkpoint 1", "x": Trap(trap)}, directory / "step-000000002.pt")


def test_a_checkpoint_with_code_in_it_is_not_run(build, rows, tmp_path):
    trap = tmp_path / "sprung"
    bombs(tmp_path / "run" / "checkpoint", trap)
    pickle.loads((tmp_path / "run" / "checkpoint" / "step-000000001.pt").read_bytes())
    assert trap.exists()  # the trap works
    trap.unlink()
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read.*another directory"):
        cr.fit(build(), None, batches(rows, 8), steps=1, run_dir=tmp_path / "run", resume=True, progress=False)
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        cr.load(build(), tmp_path / "run" / "checkpoint" / "step-000000002.pt")
    assert not trap.exists()
    assert contents(tmp_path) == before


def test_foreign_and_truncated_checkpoints(build, rows, tmp_path):
    fit = {"loader": batches(rows, 8), "run_dir": tmp_path, "progress": False}
    cr.fit(build(), None, steps=2, checkpoint_every=1, **fit)
    newest, older = tmp_path / "checkpoint/step-000000002.pt", tmp_path / "checkpoint/step-000000001.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    torch.save({"weights": torch.zeros(2)}, older)
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match=r"step-000000002\.pt: .*step-000000001\.pt: not written by this version"):
        cr.fit(build(), None, steps=4, resume=True, **fit)
    assert contents(tmp_path) == before


# -- memory -----------------------------------------------------------------------------------------------------------


def test_more_draws_than_memory_are_refused_before_anything_runs(build, rows, tmp_path, monkeypatch):
    objective = build("MAP")
    size = 4 * sum(p.numel() for p in objective.net.parameters())
    monkeypatch.setattr(type(objective), "forward", lambda *_: pytest.fail("it trains"))
    keep = cr.Thin(after=0.0, every=1, max_bytes=10 * size)
    options = {"run_dir": tmp_path / "new", "progress": False}
    with pytest.raises(BudgetError, match=rf"11 draws of {size} bytes.*Thin\(every=2\).*max_bytes="):
        cr.fit(objective, None, batches(rows, 8), steps=11, keep=keep, **options)
    with pytest.raises(InputError, match="keeps no draw of a run of 11 steps"):
        cr.fit(objective, None, batches(rows, 8), steps=11, keep=cr.Thin(after=0.5, every=6), **options)
    assert not (tmp_path / "new").exists()


def sampled(method=cr.MAP, num_data=8, **options):
    """One step of SGLD on all parameters of a linear network, told that there are 8 data."""
    net = nn.Linear(3, 1)
    objective = method(net, cr.likelihoods.Gaussian(), num_data=num_data, **options)
    sampler = cr.samplers.SGLD(net.parameters(), lr=1e-5, num_data=8)
    rows, keep = [(torch.zeros(8, 3), torch.zeros(8, 1))], cr.Thin(after=0.0, every=1)
    return cr.fit(objective, sampler, rows, steps=1, keep=keep, progress=False)


def test_a_sampler_and_an_objective_that_agree():
    assert sampled().steps == 1


@pytest.mark.filterwarnings("ignore:num_data=9", "ignore:the optimiser does not move")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_data": 9}, r"num_data=8\) and an objective with num_data=9"),
        ({"random": "weight"}, r"add noise to 'net.bias'.*layout\.params"),
        ({"prior": cr.penalties.L1(1.0)}, r"penalty without one.*prior_of"),
        ({"method": cr.VI}, r"cr\.MAP\("),
    ],
)
def test_a_sampler_and_an_objective_that_do_not(options, words):
    with pytest.raises(InputError, match=words):
        sampled(**options)
