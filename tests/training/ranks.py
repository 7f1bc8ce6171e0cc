"""What the tests of data-parallel training run under torchrun, and the same runs for a single process.

    torchrun --nproc-per-node 2 ranks.py DIRECTORY

Each process builds under a seed of its own, so that whatever they agree on, they agree on because of `fit`.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import credent as cr

RANK = int(os.environ.get("RANK", "0"))
SIZES = [8, 8, 7, 1]  # an odd batch, and one with fewer rows than processes
N = sum(SIZES)
DRAWS = 60


def rows() -> tuple[Tensor, Tensor]:
    """Twenty-four rows of five numbers in three classes, in float64."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 5, generator=generator, dtype=torch.float64)
    return x, (x @ torch.randn(5, 3, generator=generator, dtype=torch.float64)).argmax(-1)


def objective(kind: type[cr.objectives.Objective] = cr.VI) -> cr.objectives.Objective:
    """A small classifier in float64."""
    torch.manual_seed(RANK)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    return kind(net, cr.likelihoods.Categorical(), num_data=N).double()


def weights(kind: type[cr.objectives.Objective]) -> dict[str, Tensor]:
    """Means and scales after twenty steps of momentum on batches of the sizes above."""
    built = objective(kind)
    sgd = torch.optim.SGD(built.param_groups(lr=0.1, scale_lr=0.1), momentum=0.9)
    parts = list(zip(*(t.split(SIZES) for t in rows()), strict=True))
    cr.fit(built, sgd, parts, epochs=5, progress=False)
    return {k: v for k, v in built.state_dict().items() if not k.endswith("_extra_state")}


class Collect(torch.optim.SGD):
    """An optimiser that moves nothing and remembers every gradient."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, lr=0.0)
        self.seen: list[Tensor] = []

    def step(self, closure: Any = None) -> None:
        """Remember."""
        self.seen.append(torch.cat([p.grad.flatten() for g in self.param_groups for p in g["params"]]))


def line() -> tuple[cr.VI, Tensor, Tensor]:
    """A linear regression without intercept, whose expected gradient is known: two weights and seven rows."""
    net = nn.Linear(2, 1, bias=False).double()
    net.weight.data = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    family = cr.families.Gaussian(initial_scale=0.5)
    prior, noise = cr.priors.Gaussian(scale=1.0), cr.likelihoods.Gaussian(scale=0.7)
    bnn = cr.VI(net, noise, prior, num_data=7, family=family, samples=16)
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return bnn.double(), x, x.sum(-1, keepdim=True) + 0.3


def gradients() -> Tensor:
    """The gradient of means and scales at fixed values, each from sixteen draws of the weights, (DRAWS, 4)."""
    bnn, x, y = line()
    collect = Collect(bnn.param_groups(lr=0.0))
    cr.fit(bnn, collect, [(x, y)], steps=DRAWS, seed=0, progress=False)
    return torch.stack(collect.seen)


class Stop(Exception):
    """A run that ends where it should not."""


def chain(run_dir: Path, stop: int | None, resume: bool) -> cr.Result:
    """Draws under dropout and a shuffled loader, stopped in the batch with this number."""
    torch.manual_seed(RANK)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3))
    built = cr.VI(net, cr.likelihoods.Categorical(), num_data=N).double()
    adam = torch.optim.Adam(built.param_groups(lr=1e-2))
    seen = 0

    def count(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == stop:
            raise Stop

    built.register_forward_pre_hook(count)
    loader = DataLoader(TensorDataset(*rows()), 7, shuffle=True)
    keep = cr.Thin(after=0.25, every=2)
    options = {"keep": keep, "checkpoint_every": 3, "log_every": 2, "progress": False, "run_dir": run_dir}
    return cr.fit(built, adam, loader, epochs=3, resume=resume, **options)


def orders() -> dict[str, Any]:
    """Which rows this process trains on in three epochs.

    Under a DistributedSampler, alone and inside a BatchSampler, and out of one loader that the global generator
    shuffles, with dropout drawing from that generator for an odd number of rows.
    """
    x = torch.arange(N, dtype=torch.float64)[:, None]
    dataset = TensorDataset(x, x)
    found = {}
    for name in ("alone", "nested", "shuffled"):
        sampler: Any = DistributedSampler(dataset, seed=3)
        if name == "alone":
            loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        elif name == "nested":
            loader = DataLoader(dataset, batch_sampler=BatchSampler(sampler, 4, drop_last=False))
        else:
            loader = DataLoader(dataset, batch_size=5, shuffle=True)
        net = nn.Sequential(nn.Linear(1, 1), nn.Dropout()).double()
        built = cr.MAP(net, cr.likelihoods.Gaussian(scale=1e3), num_data=N)
        seen: list[float] = []
        net.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.extend(inputs[0].flatten().tolist()))
        cr.fit(built, None, loader, epochs=3, progress=False)
        found[name] = seen
    return found


def sampled(seed: int | None) -> list[dict[str, Tensor]]:
    """Draws of a sampler whose stream each process seeds for itself."""
    built = objective(cr.MAP)
    sampler = cr.samplers.SGLD(built.net.parameters(), lr=1e-2, num_data=N, seed=100 + RANK)
    keep = cr.Thin(after=0.0, every=2)
    return list(cr.fit(built, sampler, [rows()], steps=4, keep=keep, seed=seed, progress=False).posterior.draws())


def main(directory: Path) -> None:
    """Everything, in one start of the processes."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"MAP": weights(cr.MAP), "VI": weights(cr.VI), "gradients": gradients(), "orders": orders()}
    built = objective(cr.MAP)
    options = {"steps": 4, "progress": False}
    kept = cr.fit(built, None, [rows()], keep=cr.Thin(after=0.0, every=2), **options)
    found["kept"] = list(kept.posterior.draws())
    found["sampled"] = {"own": sampled(None), "seeded": sampled(3)}
    cr.fit(objective(), None, [rows()], run_dir=directory / f"only{RANK}", checkpoint_every=1, **options)
    whole = chain(directory / "whole", None, resume=False)
    found["draws"] = len(whole.posterior)
    for stop in (6, 3):
        try:
            chain(directory / "stopped", stop, resume=True)
        except Stop:
            dist.barrier()
    chain(directory / "stopped", None, resume=True)
    try:
        chain(directory / "whole", None, resume=False)
    except cr.CredentError as error:
        found["refused"] = str(error)
    torch.save(found, directory / f"rank{RANK}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
