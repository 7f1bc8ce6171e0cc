"""Training runs on digits that a test starts in its own process or in another, and kills there.

Every variant trains a network with dropout and BatchNorm by variational inference, with checkpoints in mid-epoch:

    schedule    shuffled by the loader's own generator, one cycle of the learning rate, validation
    draws       the same without the schedule, keeping draws
    average     the same without the schedule, averaging its iterates
    transform   shuffled and transformed by the global generators, two batches a step, a plateau schedule
"""

import os
import random
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, TensorDataset

import credent as cr
from credent import files
from credent.data import batches

ROWS, BATCH = 92, 16  # six batches an epoch, the last of twelve rows
STEPS = {"schedule": 24, "draws": 24, "average": 24, "transform": 18}


class Jittered(Dataset):
    """Each row moved by numbers from all three global generators, as users' augmentations do."""

    def __init__(self, rows: TensorDataset) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        x, y = self.rows[index]
        return x + 0.1 * (torch.rand(()) + np.random.rand() + random.random()), y  # noqa: NPY002


def arguments(variant: str) -> dict[str, Any]:
    """What `fit` takes, built anew and the same in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(3)
    data = cr.data.load("digits")
    rows, val = (TensorDataset(*part[:ROWS]) for part in (data.train, data.val))
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10)
    )
    bnn = cr.VI(net, cr.likelihoods.Categorical(), num_data=ROWS)
    optimizer = torch.optim.Adam(bnn.param_groups(lr=2e-2, scale_lr=1e-2))
    common = {"objective": bnn, "optimizer": optimizer, "val": batches(val, 50), "val_samples": 2, "seed": 5}
    common |= {"log_every": 4, "checkpoint_every": 3, "progress": False}
    if variant == "transform":
        loader = DataLoader(Jittered(rows), batch_size=BATCH, shuffle=True)
        scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)
        return common | {"loader": loader, "epochs": 6, "accumulate": 2, "scheduler": scheduler, "checkpoint_every": 2}
    common |= {"loader": batches(rows, BATCH, shuffle=True, seed=1), "epochs": 4}
    if variant == "draws":
        return common | {"keep": cr.Thin(after=0.2, every=1)}
    if variant == "average":
        return common | {"average": cr.optim.Average(bnn, power=3.0)}
    cycle = OneCycleLR(optimizer, max_lr=[2e-2, 1e-2], total_steps=STEPS["schedule"] + 1)
    return common | {"scheduler": cycle, "schedule": "step"}


def sabotage(objective: nn.Module, how: str, after: int) -> None:
    """Arrange for this process to meet its fate in the batch with this number, counted from 1 in this process."""
    seen = 0

    def count(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if how == "slow":
            time.sleep(0.02)
        elif seen == after:
            fates[how]()

    def kill(number: int) -> None:
        os.kill(os.getpid(), number)

    def replace(path: Path, target: Path) -> None:
        if str(target).endswith(".pt"):
            if how == "truncated":  # a disk that lost what it promised to keep
                path.write_bytes(path.read_bytes()[:-1000])
                own(path, target)
            os._exit(9)
        own(path, target)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    own = os.replace
    fates = {
        "SIGKILL": lambda: kill(signal.SIGKILL),
        "SIGTERM": lambda: kill(signal.SIGTERM),
        "SIGINT": lambda: kill(signal.SIGINT),
        "unfinished": lambda: setattr(files.os, "replace", replace),
        "truncated": lambda: setattr(files.os, "replace", replace),
        "full": limit,
    }
    objective.register_forward_pre_hook(count)


def train(run_dir: str, variant: str, how: str | None = None, after: int = 0, **changes: Any) -> cr.Result:
    """Begin the run or go on with it."""
    given = arguments(variant) | changes
    if how is not None:
        sabotage(given["objective"], how, after)
    return cr.fit(**given, run_dir=run_dir, resume=True)


if __name__ == "__main__":
    try:
        train(**TASK)  # noqa: F821  (given by whoever runs this file)
    except KeyboardInterrupt:
        sys.exit(130)
    except cr.CredentError as error:
        Path(TASK["run_dir"], "error.txt").write_text(str(error))  # noqa: F821
        sys.exit(3)
