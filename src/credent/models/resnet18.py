"""ResNet-18 for 32x32 images.

    block(x) = activation(shortcut(x) + bn(conv(activation(bn(conv(x))))))

A 3x3 convolution, norm and activation, four stages of two blocks with width, 2, 4 and 8 width channels, the mean over
pixels, a linear head. The shortcut is x itself, or a normed 1x1 convolution where the shape changes.
He et al., Deep residual learning for image recognition, 2016, with the small first layer that is usual for 32x32 images
in place of the 7x7 convolution and pooling. `PreActResNet18` has norms and activations before the convolutions instead.

Shapes: x (n, in_channels, 32, 32), or any other size; output (n, num_classes).

>>> import torch
>>> net = ResNet18(num_classes=10, width=4)
>>> net(torch.zeros(2, 3, 32, 32)).shape
torch.Size([2, 10])
"""

from collections.abc import Callable

from torch import Tensor, nn

from credent.models.initialise import kaiming_

BLOCKS_PER_STAGE = 2


class ResNet18(nn.Module):
    """18 weighted layers; 11,173,962 parameters at width 64 and 10 classes."""

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 64,
        in_channels: int = 3,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        channels = width
        for stage in range(4):
            for index in range(BLOCKS_PER_STAGE):
                shrinks = stage > 0 and index == 0
                out_channels = width * 2**stage
                blocks.append(_Block(channels, out_channels, 2 if shrinks else 1, activation))
                channels = out_channels
        stem = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.body = nn.Sequential(stem, nn.BatchNorm2d(width), activation(), *blocks)
        self.head = nn.Linear(channels, num_classes)
        kaiming_(self.body, self.head)

    def forward(self, x: Tensor) -> Tensor:
        """X (n, in_channels, height, width) to (n, num_classes)."""
        output: Tensor = self.head(self.body(x).mean((2, 3)))
        return output


class _Block(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            activation(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut.append(nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(out_channels))
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.activation(self.shortcut(x) + self.residual(x))
        return output
