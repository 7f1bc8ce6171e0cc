"""A fully connected network.

    h_0 = x,   h_l = activation(W_l h_{l-1} + b_l),   f = W h_L + b

Shapes: x (n, ...) with in_features values a row, flattened; output (n, out_features).

>>> net = MLP(784, 10)                                       # the 784-400-400-10 of the MNIST papers
>>> sum(p.numel() for p in net.parameters())
478410
>>> net(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 10])
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers of the given `hidden` widths, `activation` after each; `hidden=()` is linear regression."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden: Sequence[int] = (400, 400),
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        widths = [in_features, *hidden]
        layers = [nn.Sequential(nn.Linear(fan_in, fan_out), activation()) for fan_in, fan_out in pairwise(widths)]
        self.body = nn.Sequential(*(module for layer in layers for module in layer))
        self.head = nn.Linear(widths[-1], out_features)

    def forward(self, x: Tensor) -> Tensor:
        """X (n, ...) to (n, out_features)."""
        output: Tensor = self.head(self.body(torch.flatten(x, 1)))
        return output
