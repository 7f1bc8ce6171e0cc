"""Kaiming initialisation: activations keep their scale from layer to layer under ReLU.

    body:  w ~ N(0, 2 / fan_in)        head:  w ~ N(0, 1 / fan_in)        biases 0

Norm layers keep torch's own start (gain 1, shift 0). He et al., Delving deep into rectifiers, 2015.

>>> body = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU())
>>> kaiming_(body, nn.Linear(1000, 2))
>>> round(body[0].weight.var().item() * 1000, 1), body[0].bias.abs().sum().item()
(2.0, 0.0)
"""

from torch import nn


def kaiming_(body: nn.Module, head: nn.Linear) -> None:
    """Draw every convolution and linear layer of `body` for ReLU, and `head` for no activation, in place."""
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    nn.init.kaiming_normal_(head.weight, nonlinearity="linear")
    nn.init.zeros_(head.bias)
