"""ResNet-20 for 32x32 images, with parameter-free shortcuts (option A).

    block(x) = relu(shortcut(x) + bn(conv(relu(bn(conv(x))))))

A 3x3 convolution, three stages of three blocks with width, 2 width and 4 width channels, the mean over pixels, a linear
head. Where a stage halves the image, the shortcut takes every second pixel and pads the new channels with zeros, so it
has no parameters. He et al., Deep residual learning for image recognition, 2016, section 4.2 (0.27 M
parameters; projection shortcuts, option B, would make it 272,474).

Shapes: x (n, in_channels, 32, 32), or any other size; output (n, num_classes).

>>> net = ResNet20(num_classes=10)
>>> sum(p.numel() for p in net.parameters())
269722
>>> net(torch.zeros(2, 3, 32, 32)).shape
torch.Size([2, 10])
"""

import torch
from torch import Tensor, nn

from credent.models.initialise import kaiming_

BLOCKS_PER_STAGE = 3


class ResNet20(nn.Module):
    """The CIFAR network of 20 weighted layers."""

    def __init__(self, num_classes: int = 10, width: int = 16, in_channels: int = 3) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = width
        for stage in range(3):
            for index in range(BLOCKS_PER_STAGE):
                shrinks = stage > 0 and index == 0
                out_channels = width * 2**stage
                blocks.append(_Block(channels, out_channels, stride=2 if shrinks else 1))
                channels = out_channels
        stem = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.body = nn.Sequential(stem, nn.BatchNorm2d(width), nn.ReLU(), *blocks)
        self.head = nn.Linear(channels, num_classes)
        kaiming_(self.body, self.head)

    def forward(self, x: Tensor) -> Tensor:
        """X (n, in_channels, height, width) to (n, num_classes)."""
        output: Tensor = self.head(self.body(x).mean((2, 3)))
        return output


class _Block(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.new_channels = out_channels - in_channels
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x[:, :, :: self.stride, :: self.stride]
        before = self.new_channels // 2
        shortcut = nn.functional.pad(shortcut, (0, 0, 0, 0, before, self.new_channels - before))
        return torch.relu(shortcut + self.residual(x))
