"""Pre-activation ResNet-18 for 32x32 images.

    a = activation(bn(x)),    block(x) = shortcut(x) + conv(activation(bn(conv(a))))

A 3x3 convolution, four stages of two blocks with width, 2, 4 and 8 width channels, a last norm and activation, the mean
over pixels, a linear head. The shortcut is x itself, or a 1x1 convolution of a where the shape changes.
He et al., Identity mappings in deep residual networks, 2016. `activation=nn.Softplus` has the second derivatives that
Variational Laplace needs.

Shapes: x (n, in_channels, 32, 32), or any other size; output (n, num_classes).

>>> import torch
>>> net = PreActResNet18(num_classes=10, width=4)
>>> net(torch.zeros(2, 3, 32, 32)).shape
torch.Size([2, 10])
"""

from collections.abc import Callable

from torch import Tensor, nn

from credent.models.initialise import kaiming_

BLOCKS_PER_STAGE = 2


class PreActResNet18(nn.Module):
    """18 weighted layers; 11,172,170 parameters at width 64 and 10 classes."""

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
        self.body = nn.Sequential(stem, *blocks, nn.BatchNorm2d(channels), activation())
        self.head = nn.Linear(channels, num_classes)
        kaiming_(self.body, self.head)

    def forward(self, x: Tensor) -> Tensor:
        """X (n, in_channels, height, width) to (n, num_classes)."""
        output: Tensor = self.head(self.body(x).mean((2, 3)))
        return output


class _Block(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.activated = nn.Sequential(nn.BatchNorm2d(in_channels), activation())
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            activation(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        )
        changes = stride != 1 or in_channels != out_channels
        self.projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        activated = self.activated(x)
        shortcut = x if self.projection is None else self.projection(activated)
        output: Tensor = shortcut + self.residual(activated)
        return output
