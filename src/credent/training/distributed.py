"""Data-parallel training under torchrun, with torch's own DDP.

Each process reads the same batches and takes its rows of each; DDP averages the gradients, weighted so that the step
is that of the joined batch. A loader with a `DistributedSampler` hands out its own rows, in a new order each epoch.
Random streams are the same on all ranks, so one draw of the weights serves the joined batch, as in a single process;
only within the network's forward pass torch's global stream is each rank's own, for its own dropout masks.

    torchrun --nproc-per-node 2 train.py
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from credent.noise import Noise, fresh_seed
from credent.training import generators
from credent.training.batches import rows


def own_device(device: str | torch.device) -> torch.device:
    """The device for this process: under torchrun a bare "cuda" is the one of its local rank."""
    named = torch.device(device)
    if str(named) == "cuda" and "LOCAL_RANK" in os.environ:
        named = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(named)
    return named


class Group:
    """The processes that train together: one, unless torchrun started several."""

    def __init__(self, device: torch.device) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.size > 1 else 0
        self.device = device
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective as all processes call it."""
        if self.size == 1:
            return objective
        return DistributedDataParallel(objective, find_unused_parameters=True)

    def agree_on_randomness(self, noises: list[Noise], of_loader: list[torch.Generator]) -> None:
        """Every stream as the first process has it, in all of them."""
        if self.size == 1:
            return
        box: list[Any] = [generators.capture(of_loader), [noise.get_extra_state() for noise in noises]]
        dist.broadcast_object_list(box, src=0, device=self.device)
        generators.restore(box[0], of_loader)
        for noise, state in zip(noises, box[1], strict=True):
            noise.set_extra_state(state)

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        """Within: a global stream for this process; afterwards all are together, however many rows each one had."""
        if self.size == 1:
            yield
            return
        seed = fresh_seed()
        state = torch.get_rng_state()
        try:
            torch.manual_seed(seed + self.rank)
            yield
        finally:
            torch.set_rng_state(state)

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def begin_epoch(self, loader: Any, epoch: int) -> None:
        """A `DistributedSampler` shuffles by the number of the epoch."""
        for sampler in _own_rows(loader):
            sampler.set_epoch(epoch)

    def share(self, x: Any, y: Tensor, loader: Any) -> tuple[Any, Tensor, float]:
        """This process's rows of a batch, and the weight that makes the averaged gradient the joined batch's."""
        if self.size == 1 or _own_rows(loader):
            return x, y, 1.0
        total = y.shape[0]
        mine = torch.arange(self.rank, total, self.size)
        if len(mine) == 0:  # fewer rows than processes: stay in step with a row that does not count
            return rows(x, torch.zeros(1, dtype=torch.long)), y[:1], 0.0
        return rows(x, mine), y[mine.to(y.device)], len(mine) * self.size / total


def _own_rows(loader: Any) -> list[DistributedSampler[Any]]:
    return [sampler for sampler in generators.samplers(loader) if isinstance(sampler, DistributedSampler)]
