"""Moments of the joined batch, where several processes train one network, each on its own rows.

    mean = sum_r n_r mean_r / n,        variance = sum_r n_r (variance_r + (mean_r - mean)^2) / n,        n = sum_r n_r

All layers travel in one vector, twice. With one process nothing happens.

>>> seen = {torch.nn.Linear(1, 1): Moments(torch.ones(1), torch.ones(1), rows=2, positions=1)}
>>> joined(seen) is seen
True
"""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn

from credent.samplers.inputs import Moments


def joined(seen: dict[nn.Module, Moments]) -> dict[nn.Module, Moments]:
    """The same moments on every process, those of all their rows together."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 and seen):
        return seen
    counts = torch.tensor([m.rows for m in seen.values()], dtype=torch.float64)
    sizes = [m.mean.numel() for m in seen.values()]
    device = next(iter(seen.values())).mean.device
    own = counts.repeat_interleave(torch.tensor(sizes)).to(device)
    total = own.clone()
    dist.all_reduce(total)
    own_mean = torch.cat([m.mean for m in seen.values()]).double()
    mean = own_mean * own / total
    dist.all_reduce(mean)
    variance = (torch.cat([m.variance for m in seen.values()]) + (own_mean - mean).square()) * own / total
    dist.all_reduce(variance)
    parts = zip(seen.items(), *(torch.split(v, sizes) for v in (mean, variance, total)), strict=True)
    return {
        layer: replace(m, mean=mu.to(m.mean.dtype), variance=var.to(m.mean.dtype), rows=int(n[0]))
        for (layer, m), mu, var, n in parts
    }
