"""VGG for 32x32 images, with batch norm and one linear layer at its end.

    stage = (conv 3x3 - bn - activation) as often as the depth says - max-pool 2x2

Five stages of 1, 2, 4, 8 and 8 times `width` channels, the mean over pixels, a linear head. Convolutions have no bias:
the norm layer after each would undo it. Simonyan & Zisserman, Very deep convolutional networks, 2015, in the form that
is usual for 32x32 images, without the two wide linear layers. Pooling rounds up, so that small images lose no pixels:
8x8 is one pixel after three stages and stays one.

Shapes: x (n, in_channels, 32, 32), or any other size; output (n, num_classes).

>>> import torch
>>> net = VGG19(num_classes=10, width=4)
>>> sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in net.modules())
17
>>> net(torch.zeros(2, 3, 32, 32)).shape
torch.Size([2, 10])
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from credent.models.initialise import kaiming_

_WIDTHS = (1, 2, 4, 8, 8)


class VGG(nn.Module):
    """What the depths share; the number in a name counts the three linear layers of the original."""

    convolutions: ClassVar[tuple[int, ...]]
    """Of each stage."""

    def __init__(
        self,
        num_classes: int = 10,
        width: int = 64,
        in_channels: int = 3,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = in_channels
        for count, times in zip(self.convolutions, _WIDTHS, strict=True):
            for _ in range(count):
                convolution = nn.Conv2d(channels, times * width, 3, padding=1, bias=False)
                layers += [convolution, nn.BatchNorm2d(times * width), activation()]
                channels = times * width
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, num_classes)
        kaiming_(self.body, self.head)

    def forward(self, x: Tensor) -> Tensor:
        """X (n, in_channels, height, width) to (n, num_classes)."""
        output: Tensor = self.head(self.body(x).mean((2, 3)))
        return output


class VGG11(VGG):
    """Eight convolutions; 9,228,362 parameters at width 64 and 10 classes."""

    convolutions = (1, 1, 2, 2, 2)


class VGG13(VGG):
    """Ten convolutions; 9,413,066 parameters."""

    convolutions = (2, 2, 2, 2, 2)


class VGG16(VGG):
    """Thirteen convolutions; 14,724,042 parameters."""

    convolutions = (2, 2, 3, 3, 3)


class VGG19(VGG):
    """Sixteen convolutions; 20,035,018 parameters."""

    convolutions = (2, 2, 4, 4, 4)
