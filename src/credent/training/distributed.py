"""Data-parallel training under torchrun, with torch's own DDP.

Each process reads the same batches and takes its rows of each; DDP averages the gradients, weighted so that the step
is that of the joined batch. A loader with a `DistributedSampler` hands out its own rows and is left alone. Random
streams are the same on all ranks, so one draw of the weights serves the joined batch, as in a single process.

    torchrun --nproc-per-node 2 train.py
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from credent.training.batches import rows


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

    def agree(self, state: Any) -> Any:
        """What the first process holds, in all of them."""
        if self.size == 1:
            return state
        box = [state]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def share(self, x: Any, y: Tensor, loader: Any) -> tuple[Any, Tensor, float]:
        """This process's rows of a batch, and the weight that makes the averaged gradient the joined batch's."""
        if self.size == 1 or (isinstance(loader, DataLoader) and isinstance(loader.sampler, DistributedSampler)):
            return x, y, 1.0
        total = y.shape[0]
        mine = torch.arange(self.rank, total, self.size)
        if len(mine) == 0:  # fewer rows than processes: stay in step with a row that does not count
            return rows(x, torch.zeros(1, dtype=torch.long)), y[:1], 0.0
        return rows(x, mine), y[mine.to(y.device)], len(mine) * self.size / total
