"""Each group falls by its own number."""

import pytest
import torch

import credent as cr
from credent.errors import InputError
from credent.optim.plateau import Plateau


def optimizer():
    a, b = (torch.zeros(1, requires_grad=True) for _ in range(2))
    return torch.optim.SGD([{"name": "means", "params": [a], "lr": 1.0}, {"name": "scales", "params": [b], "lr": 2.0}])


def rates(schedule):
    return [group["lr"] for group in schedule.optimizer.param_groups]


def test_each_group_follows_its_own_number():
    schedule = Plateau(optimizer(), {"means": "nll", "scales": "kl"}, factor=0.5, patience=1)
    for nll, kl in ((3.0, 9.0), (2.0, 9.0), (1.0, 9.0)):  # nll falls, kl stands still for two epochs
        schedule.step({"nll": nll, "kl": kl})
    assert rates(schedule) == [1.0, 1.0]
    for nll in (1.0, 1.0):
        schedule.step({"nll": nll, "kl": 1.0})
    assert rates(schedule) == [0.5, 1.0]


def test_it_is_torchs_plateau_for_one_group():
    losses = [5.0, 4.0, 4.1, 4.2, 3.9999, 3.0, 3.0, 3.0, 3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 2.5]
    p, q = (torch.zeros(1, requires_grad=True) for _ in range(2))
    ours = Plateau(torch.optim.SGD([{"name": "means", "params": [p]}], lr=1.0), {"means": "loss"}, 0.5, 2, 1e-3)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([q], lr=1.0), "min", 0.5, 2, 1e-3)
    for loss in losses:
        ours.step({"loss": loss})
        theirs.step(loss)
        assert rates(ours) == theirs.get_last_lr()


def test_a_saved_state_goes_on():
    whole, first, second = (Plateau(optimizer(), {"means": "nll"}, patience=2) for _ in range(3))
    numbers = [{"nll": v} for v in (2.0, 1.0, 1.0, 1.0, 1.0)]
    for row in numbers:
        whole.step(row)
    for row in numbers[:3]:
        first.step(row)
    second.load_state_dict(first.state_dict())
    for row in numbers[3:]:
        second.step(row)
    assert rates(whole) == rates(second) == [0.1, 2.0]


def test_fit_hands_it_the_epochs_numbers():
    torch.manual_seed(0)
    x = torch.randn(32, 2)
    bnn = cr.VI(torch.nn.Linear(2, 1), cr.likelihoods.Gaussian(scale=1.0), num_data=32)
    moved = torch.optim.Adam(bnn.param_groups(1e-2, 1e-2))
    schedule = Plateau(moved, {"means": "val_nll", "scales": "kl"}, patience=0, threshold=10.0)  # nothing is progress
    cr.fit(bnn, moved, [(x, x[:, :1])], epochs=3, val=[(x, x[:, :1])], scheduler=schedule, progress=False)
    assert [g["lr"] for g in moved.param_groups] == pytest.approx(
        [1e-4, 1e-4]
    )  # two of three epochs: the first is best


@pytest.mark.parametrize("log_every", [1, 2, 3, 100])
def test_fit_hands_it_the_means_whenever_rows_are_written(log_every):
    """A row written at the last batch of an epoch leaves no means for the epoch's own row; they are handed on still."""
    torch.manual_seed(0)
    x = torch.randn(32, 2)
    bnn = cr.VI(torch.nn.Linear(2, 1), cr.likelihoods.Gaussian(scale=1.0), num_data=32)
    moved = torch.optim.Adam(bnn.param_groups(1e-2, 1e-2))
    schedule = Plateau(moved, {"means": "nll", "scales": "kl"}, patience=0, threshold=10.0)
    loader = [(x, x[:, :1])] * 2
    cr.fit(bnn, moved, loader, epochs=2, val=loader, scheduler=schedule, log_every=log_every, progress=False)
    assert [g["lr"] for g in moved.param_groups] == pytest.approx([1e-3, 1e-3])


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="has named ones"):
        Plateau(optimizer(), {"biases": "nll"})
    with pytest.raises(InputError, match="factor between 0 and 1"):
        Plateau(optimizer(), {"means": "nll"}, factor=1.0)
    with pytest.raises(InputError, match="'val_nll' needs"):
        Plateau(optimizer(), {"means": "val_nll"}).step({"nll": 1.0})
