"""Monitors see each step's gradients, change nothing, and go on where they were."""

import pytest
import torch
from torch import nn

import credent as cr


class Norms:
    """The running sum of squared gradients, reported every second step."""

    def __init__(self, every=1):
        self.every, self.total, self.looks = every, 0.0, 0

    def __call__(self, objective):
        self.looks += 1
        self.total += sum(float(p.grad.square().sum()) for p in objective.layout.params().values())
        return {"total": self.total} if self.looks % 2 == 0 else {}

    def state_dict(self):
        return {"total": self.total, "looks": self.looks}

    def load_state_dict(self, state):
        self.total, self.looks = state["total"], state["looks"]


def problem():
    torch.manual_seed(0)
    x = torch.randn(12, 3)
    net = nn.Linear(3, 1)
    objective = cr.MAP(net, cr.likelihoods.Gaussian(scale=1.0), num_data=12)
    return objective, torch.optim.SGD(net.parameters(), lr=0.1), [(x[i : i + 4], x[i : i + 4, :1]) for i in (0, 4, 8)]


def by_hand(steps):
    objective, optimizer, batches = problem()
    sums, total = [], 0.0
    for step in range(steps):
        objective(*batches[step % 3]).backward()
        total += sum(float(p.grad.square().sum()) for p in objective.net.parameters())
        sums.append(total)
        optimizer.step()
        optimizer.zero_grad()
    return sums, objective.net.weight.detach()


def test_a_monitor_sees_the_gradients_of_each_step_and_training_is_untouched():
    objective, optimizer, batches = problem()
    result = cr.fit(objective, optimizer, batches, epochs=2, monitors=[Norms()], progress=False)
    sums, weight = by_hand(6)
    rows = [(row["step"], row["total"]) for row in result.history if "total" in row]
    assert rows == [(s, pytest.approx(sums[s - 1], rel=1e-6)) for s in (2, 4, 6)]
    assert torch.equal(objective.net.weight, weight)


def test_every_counts_steps():
    objective, optimizer, batches = problem()
    monitor = Norms(every=3)
    cr.fit(objective, optimizer, batches, epochs=4, monitors=[monitor], progress=False)
    assert monitor.looks == 4


def test_a_resumed_run_goes_on_with_the_memory(tmp_path):
    objective, optimizer, batches = problem()
    cr.fit(objective, optimizer, batches, epochs=1, monitors=[Norms()], run_dir=tmp_path, progress=False)
    objective, optimizer, batches = problem()
    result = cr.fit(
        objective, optimizer, batches, epochs=2, monitors=[Norms()], run_dir=tmp_path, resume=True, progress=False
    )
    sums, _ = by_hand(6)
    assert [row["total"] for row in result.history if "total" in row] == pytest.approx([sums[1], sums[3], sums[5]])


def test_another_number_of_monitors_is_refused(tmp_path):
    objective, optimizer, batches = problem()
    cr.fit(objective, optimizer, batches, epochs=1, monitors=[Norms()], run_dir=tmp_path, progress=False)
    objective, optimizer, batches = problem()
    with pytest.raises(cr.errors.CheckpointError, match="1 monitors"):
        cr.fit(objective, optimizer, batches, epochs=2, run_dir=tmp_path, resume=True, progress=False)


def test_every_of_zero_is_refused():
    objective, optimizer, batches = problem()
    with pytest.raises(cr.errors.InputError, match="every=0"):
        cr.fit(objective, optimizer, batches, epochs=1, monitors=[Norms(every=0)], progress=False)
