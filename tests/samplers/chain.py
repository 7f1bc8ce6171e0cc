"""A chain in a process of its own, which may be killed in the middle: runpy gives it its TASK."""

import os
import signal
from pathlib import Path

import torch
from torch import nn

import credent as cr
from credent.data import batches

SAMPLERS = {
    "SGLD": lambda net, **given: cr.samplers.SGLD(net.parameters(), **given),
    "PSGLD": lambda net, **given: cr.samplers.PSGLD(net.parameters(), burn_in=12, **given),
    "BNPSGLD": lambda net, **given: cr.samplers.BNPSGLD(net, burn_in=12, **given),
}


def run(run_dir: str, kind: str, killed_at: int | None = None) -> cr.Result:
    """Thirty steps with short last batches, momentum and a schedule, killed before the batch with this number."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(30, 3)
    rows = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    loss = cr.MAP(net, cr.likelihoods.Categorical(), num_data=30)
    sampler = SAMPLERS[kind](net, lr=1e-3, num_data=30, momentum=0.5)
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    loss.register_forward_pre_hook(count)
    return cr.fit(
        loss,
        sampler,
        batches(rows, 7, shuffle=True, seed=1),
        epochs=6,
        scheduler=cr.samplers.cyclical(sampler, period=10),
        schedule="step",
        keep=cr.Thin(after=0.4, every=2),
        checkpoint_every=4,
        run_dir=Path(run_dir),
        resume=True,
        progress=False,
    )


if __name__ == "__main__":
    run(**TASK)  # noqa: F821  (given by whoever runs this file)
