"""The networks that are raced, with batches of random data: what images show does not change the time."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import credent as cr


@dataclass(frozen=True)
class Setting:
    """A network and its batch."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    inputs: int
    """For predictions: what a draw of the weights costs counts less, the more inputs go through them."""
    draws: int
    """Of a prediction; the ratio to as many forwards hardly depends on how many, so large networks may have fewer."""

    def net(self) -> nn.Module:
        """The same weights for everyone."""
        torch.manual_seed(0)
        return self.build()

    def batch(self) -> tuple[Tensor, Tensor]:
        """The same data for everyone."""
        torch.manual_seed(1)
        return torch.randn(self.shape), torch.randint(10, self.shape[:1])

    def test_inputs(self) -> Tensor:
        """What predictions are made for."""
        torch.manual_seed(2)
        return torch.randn(self.inputs, *self.shape[1:])


NETWORKS = {
    "mlp": Setting(lambda: cr.models.MLP(784, 10), (128, 1, 28, 28), 1000, 32),
    "lenet5": Setting(cr.models.LeNet5, (128, 1, 28, 28), 1000, 32),
    "resnet20": Setting(cr.models.ResNet20, (128, 3, 32, 32), 250, 8),
    "preact_resnet18": Setting(lambda: cr.models.PreActResNet18(activation=nn.Softplus), (32, 3, 32, 32), 125, 4),
}
