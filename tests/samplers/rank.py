"""One of two processes that hold the two halves of a batch: runpy gives it its TASK."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import credent as cr


def inputs() -> torch.Tensor:
    """Five rows, of which the first process has three."""
    return torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 + 10


def statistics(h: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a sampler knows of two layers after one step; the gradient has no part in it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 2, 2), nn.Flatten(), nn.Linear(18, 1)).double()
    sampler = cr.samplers.BNPSGLD(net, lr=1e-3, num_data=5, decay=0.5, temperature=0.0)
    net(h).sum().backward()
    sampler.step()
    known = [sampler.state[p] for p in (net[0].weight, net[2].weight)]
    rows = {f"rows{i}": torch.tensor(k["rows"]) for i, k in enumerate(known)}
    return rows | {f"{name}{i}": k[name] for i, k in enumerate(known) for name in ("mean", "variance")}


if __name__ == "__main__":
    directory, rank = Path(TASK["directory"]), TASK["rank"]  # noqa: F821  (given by whoever runs this file)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2)
    torch.save(statistics(inputs()[:3] if rank == 0 else inputs()[3:]), directory / f"{rank}.pt")
    dist.destroy_process_group()
