"""LeNet-5 with max-pooling, for 28x28 and 32x32 images.

    conv 5x5 (6) - pool - conv 5x5 (16) - pool - linear 120 - linear 84 - linear num_classes

LeCun et al., Gradient-based learning applied to document recognition, 1998. Images of 28x28 get a border of two zeros,
which is the paper's 32x32 frame and the same as padding 2 in the first convolution; so one network takes both sizes.

Shapes: x (n, in_channels, 28, 28) or (n, in_channels, 32, 32); output (n, num_classes).

>>> import torch
>>> net = LeNet5()
>>> sum(p.numel() for p in net.parameters())
61706
>>> net(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 10])
"""

from collections.abc import Callable

from torch import Tensor, nn

from credent.errors import InputError


class LeNet5(nn.Module):
    """The classic small convolutional network; `activation` follows every layer but the head."""

    def __init__(
        self, num_classes: int = 10, in_channels: int = 1, activation: Callable[[], nn.Module] = nn.ReLU
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5),
            activation(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            activation(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, 120),
            activation(),
            nn.Linear(120, 84),
            activation(),
        )
        self.head = nn.Linear(84, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """X (n, in_channels, 28 or 32, the same) to (n, num_classes)."""
        size = tuple(x.shape[-2:])
        if size == (28, 28):
            x = nn.functional.pad(x, (2, 2, 2, 2))
        elif size != (32, 32):
            raise InputError(
                f"LeNet5 takes images of 28x28 or 32x32 pixels, and these are {size[0]}x{size[1]}: resize them with "
                "torch.nn.functional.interpolate(x, size=(32, 32)), or use MLP, which takes any size."
            )
        output: Tensor = self.head(self.body(x))
        return output
