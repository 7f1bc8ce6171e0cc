"""A small plain convolutional network: no norm layers, no shortcuts.

    conv 3x3 (width) - pool - conv 3x3 (2 width) - pool - linear 4 width - linear num_classes

ReLU after every layer but the last. For experiments with penalties: without norm layers the size of a weight matters.
Pooling rounds up, to ceil(pixels / 4) a side in the end.

Shapes: x (n, in_channels, pixels, pixels); output (n, num_classes).

>>> import torch
>>> net = CVNN(width=4, pixels=8)
>>> [tuple(p.shape) for p in net.parameters() if p.ndim > 1]
[(4, 3, 3, 3), (8, 4, 3, 3), (16, 32), (10, 16)]
>>> net(torch.zeros(2, 3, 8, 8)).shape
torch.Size([2, 10])
"""

import math

from torch import Tensor, nn

from credent.models.initialise import kaiming_


class CVNN(nn.Module):
    """Two convolutions and two linear layers; 2,175,626 parameters for 32x32 RGB images."""

    def __init__(self, num_classes: int = 10, width: int = 64, in_channels: int = 3, pixels: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(),
            nn.Linear(2 * width * math.ceil(pixels / 4) ** 2, 4 * width),
            nn.ReLU(),
        )
        self.head = nn.Linear(4 * width, num_classes)
        kaiming_(self.body, self.head)

    def forward(self, x: Tensor) -> Tensor:
        """X (n, in_channels, pixels, pixels) to (n, num_classes)."""
        output: Tensor = self.head(self.body(x))
        return output
