"""Mini-batches in a seeded order, sliced whole out of the tensors.

A plain `DataLoader` picks one row at a time and stacks them. Here a batch of row numbers indexes the `TensorDataset`
once, which makes an epoch over MNIST a fraction of a second in one process. The loader owns its generator
(`loader.generator`): iterating neither reads nor moves torch's global one, and each epoch is a new order.

Shapes: yields [x (batch, *shape), y (batch, ...)]; the last batch is smaller unless `drop_last`.

>>> rows = torch.arange(10)
>>> loader = batches(TensorDataset(rows, rows), batch_size=4, shuffle=True, seed=0)
>>> len(loader), len(loader.dataset)
(3, 10)
>>> [len(x) for x, y in loader]
[4, 4, 2]
"""

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler, TensorDataset

from credent.errors import InputError


def batches(
    dataset: TensorDataset, batch_size: int, shuffle: bool = False, seed: int = 0, drop_last: bool = False
) -> DataLoader[tuple[Tensor, ...]]:
    """A `DataLoader` over whole batches of `dataset`, shuffled anew each epoch by its own generator if `shuffle`."""
    if batch_size < 1:
        raise InputError(
            f"batches(batch_size={batch_size}): a batch holds at least one row; for all rows at once write "
            f"batch_size={len(dataset)}."
        )
    generator = torch.Generator().manual_seed(seed)
    order: Sampler[int] = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
    return DataLoader(
        dataset,
        sampler=BatchSampler(order, batch_size, drop_last),
        batch_size=None,  # the sampler already yields batches
        generator=generator,  # or each epoch would draw a worker seed from torch's global generator
    )
