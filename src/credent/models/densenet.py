"""DenseNet-121 for 32x32 images: every layer sees the outputs of all layers before it in its stage.

    layer(x)      = [conv 3x3 (act(bn(conv 1x1 (act(bn(x)))))),  x]       growth channels more, through 4 growth between
    transition(x) = pool 2x2 (conv 1x1 (act(bn(x))))                      half the channels, half the image

A 3x3 convolution to width channels, stages of 6, 12, 24 and 16 layers with transitions between them, a last norm and
activation, the mean over pixels, a linear head. The growth is width / 2. Huang et al., Densely connected convolutional
networks, 2017, with the small first layer that is usual for 32x32 images. Pooling rounds up, so that small images lose
no pixels: 8x8 is one pixel in the last stage.

Shapes: x (n, in_channels, 32, 32), or any other size; output (n, num_classes).

>>> net = DenseNet121(num_classes=10, width=4)
>>> net(torch.zeros(2, 3, 32, 32)).shape
torch.Size([2, 10])
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.models.initialise import kaiming_

LAYERS_OF_STAGES = (6, 12, 24, 16)


class DenseNet121(nn.Module):
    """121 weighted layers; 6,956,298 parameters at width 64, so growth 32, and 10 classes."""

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 64,
        in_channels: int = 3,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        if width < 2 or width % 2:
            raise InputError(f"DenseNet121(width={width}): each layer adds half the width, so it is even, such as 8.")
        growth, channels = width // 2, width
        layers: list[nn.Module] = [nn.Conv2d(in_channels, width, 3, padding=1, bias=False)]
        for stage, count in enumerate(LAYERS_OF_STAGES):
            if stage > 0:
                layers.append(_transition(channels, channels // 2, activation))
                channels //= 2
            for _ in range(count):
                layers.append(_Layer(channels, growth, activation))
                channels += growth
        self.body = nn.Sequential(*layers, nn.BatchNorm2d(channels), activation())
        self.head = nn.Linear(channels, num_classes)
        kaiming_(self.body, self.head)

    def forward(self, x: Tensor) -> Tensor:
        """X (n, in_channels, height, width) to (n, num_classes)."""
        output: Tensor = self.head(self.body(x).mean((2, 3)))
        return output


class _Layer(nn.Module):
    def __init__(self, channels: int, growth: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.added = nn.Sequential(
            nn.BatchNorm2d(channels),
            activation(),
            nn.Conv2d(channels, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            activation(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.added(x), x], 1)


def _transition(channels: int, out_channels: int, activation: Callable[[], nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(channels),
        activation(),
        nn.Conv2d(channels, out_channels, 1, bias=False),
        nn.AvgPool2d(2, ceil_mode=True),
    )
