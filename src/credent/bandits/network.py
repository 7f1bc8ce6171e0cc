"""The networks of several seeds side by side, each with weights, inputs and outputs of its own.

    f_s(x_s) = W_s relu( ... W_s x_s + b_s ... ) + b_s,        s = 1 .. S

S linear layers side by side are a 1x1 convolution with S groups, and that is what `Abreast` is to everything that looks
at its parameters (a prior's fan-in, BNP's statistics by group); it computes with batched products, which are ten times
faster. A loss that is summed over seeds has each seed's own gradient, so one objective and one sampler train them all,
each with the law that it would have alone.

Shapes: contexts (n, S, features); outputs (n, S, arms), or (n, S) for given arms (n, S).

>>> net = ValueNetwork(features=3, arms=2, hidden=(4,), seeds=(0, 1))
>>> net(torch.zeros(5, 2, 3)).shape, net(torch.zeros(5, 2, 3), torch.zeros(5, 2, dtype=torch.long)).shape
(torch.Size([5, 2, 2]), torch.Size([5, 2]))
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from credent.models import MLP


class Abreast(nn.Conv1d):
    """S linear layers, computed as a batched product: (S, n, inputs) to (S, n, outputs)."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        first, count = layers[0], len(layers)
        super().__init__(count * first.in_features, count * first.out_features, 1, groups=count)
        assert self.bias is not None
        with torch.no_grad():
            self.weight.copy_(torch.cat([layer.weight for layer in layers])[..., None])
            self.bias.copy_(torch.cat([layer.bias for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        """Each slice of x through its own layer."""
        assert self.bias is not None
        weight = self.weight.view(self.groups, -1, self.weight.shape[1])
        return torch.baddbmm(self.bias.view(self.groups, 1, -1), x, weight.transpose(1, 2))

    def register_forward_hook(self, hook: Callable[..., Any], **options: Any) -> RemovableHandle:
        """Hooks see what they would see at a convolution: (n, S inputs, 1) and (n, S outputs, 1)."""
        return super().register_forward_hook(_AsConvolution(hook), **options)


class _AsConvolution:
    """A hook in front of another, which shows it inputs and outputs in a convolution's shapes."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, layer: nn.Module, arguments: tuple[Tensor, ...], *rest: Any) -> None:
        *keywords, output = rest
        self.hook(layer, tuple(_channels(x) for x in arguments), *keywords, _channels(output))


def _channels(x: Tensor) -> Tensor:
    """(S, n, width) as (n, S width, 1)."""
    return x.detach().transpose(0, 1).flatten(1)[..., None]


class ValueNetwork(nn.Module):
    """The expected reward of each arm: a ReLU network for each seed, which decides how it begins."""

    def __init__(
        self, features: int, arms: int, hidden: Sequence[int], seeds: Sequence[int], dropout: float = 0.0
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            nets = []
            for seed in seeds:
                torch.manual_seed(seed)
                nets.append(MLP(features, arms, hidden))
            layers = [[m for m in net.modules() if isinstance(m, nn.Linear)] for net in nets]
            stacked = [Abreast(each) for each in zip(*layers, strict=True)]
        between = [nn.ReLU()] if not dropout else [nn.ReLU(), nn.Dropout(dropout)]
        self.body = nn.Sequential(stacked[0], *(m for _, layer in pairwise(stacked) for m in (*between, layer)))

    def forward(self, contexts: Tensor, arms: Tensor | None = None) -> Tensor:
        """Values of all arms, or of the given ones."""
        values: Tensor = self.body(contexts.transpose(0, 1)).transpose(0, 1)
        return values if arms is None else values.gather(2, arms[..., None])[..., 0]
