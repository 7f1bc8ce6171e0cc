"""Noise on what layers put out in the place of noise on their weights: each example has its own, and gradients less.

For a linear or convolutional layer with weights mu + sigma e, e ~ N(0, I), and input x,

    local      y = x mu + sqrt(x^2 sigma^2) n,      n ~ N(0, 1) for every output of every example
    flipout    y = x mu + ((x r) (sigma e)) s,      e for the batch;  r, s = +-1 for every channel of every example

One draw of the weights makes all examples of a batch err alike; here they err apart, so the noise of a batch's mean
gradient falls with the size of the batch. Flipout has the law of weight noise for each example. `local` has it for each
output: where a layer is used at several positions (a convolution, a sequence) the positions of one example, which share
their weights, err apart too, and a loss that mixes positions before it bends has another expectation.

Both act through hooks while the network runs; the network is as it was afterwards. Weights of other layers, and weights
that several layers share, are drawn as ever. [Kingma, Salimans, Welling 2015; Wen et al. 2018]

>>> from credent.families import Gaussian
>>> net = nn.Linear(2, 1, bias=False)
>>> _ = nn.init.zeros_(net.weight)
>>> layout = Layout(net)
>>> q = Gaussian(initial_scale=math.sqrt(2)).bind(layout)                    # sigma = 1
>>> x = torch.tensor([[3.0, 4.0]]).expand(20_000, 2)
>>> with OutputNoise(net, layout, "local").installed(q):
...     print(round(net(x).std().item()))                                   # |x| sigma
5
"""

import math  # noqa: F401  (the doctest's)
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from credent.families.gaussian import GaussianPosterior
from credent.layout import Layout
from credent.network import Params, owners
from credent.noise import Noise

Kind = Literal["local", "flipout"]

_KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LEAST = 1e-30  # the root's derivative is infinite at zero, where an input is zero


class OutputNoise:
    """The layers of a network that take it, and the hooks that add it."""

    def __init__(self, net: nn.Module, layout: Layout, kind: Kind) -> None:
        self.kind = kind
        places = owners(net)
        names = {held[0]: name for name, held in places.items() if len(held) == 1 and name in layout.shapes}
        self._layers: dict[nn.Module, tuple[str, str | None]] = {
            module: (name, names.get((module, "bias")))
            for (module, attribute), name in names.items()
            if attribute == "weight" and type(module) in _KINDS
        }
        self.names = {name for pair in self._layers.values() for name in pair if name is not None}
        """Of the parameters whose noise is on outputs."""

    @contextmanager
    def installed(self, q: GaussianPosterior) -> Iterator[None]:
        """Within: the layers' outputs are noisy, and differentiable in q's scales."""
        scale = q.layout.views(q.scales.sigma())
        noisy = _local if self.kind == "local" else _flipout
        handles = [
            layer.register_forward_hook(_hook(noisy, scale[weight], None if bias is None else scale[bias], q.noise))
            for layer, (weight, bias) in self._layers.items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def others(self, q: GaussianPosterior) -> Params:
        """A draw of the random parameters whose noise is not on outputs."""
        scale, means = q.layout.views(q.scales.sigma()), q.layout.params()
        return {k: mu + scale[k] * q.noise.normal(mu) for k, mu in means.items() if k not in self.names}


Noisy = Callable[[Any, Tensor, Tensor, Tensor, "Tensor | None", Noise], Tensor]


def _hook(noisy: Noisy, weight: Tensor, bias: Tensor | None, noise: Noise) -> Callable[..., Tensor]:
    def add(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output + noisy(layer, arguments[0], output, weight, bias, noise)

    return add


def _local(layer: Any, x: Tensor, output: Tensor, weight: Tensor, bias: Tensor | None, noise: Noise) -> Tensor:
    variance = _applied(layer, x.square(), weight.square(), None if bias is None else bias.square())
    return variance.clamp_min(_LEAST).sqrt() * noise.normal(output)


def _flipout(layer: Any, x: Tensor, output: Tensor, weight: Tensor, bias: Tensor | None, noise: Noise) -> Tensor:
    last = isinstance(layer, nn.Linear)
    drawn = weight * noise.normal(weight)
    moved = _applied(layer, x * _signs(x, last, noise), drawn, None) * _signs(output, last, noise)
    if bias is None:
        return moved
    shift = bias * noise.normal(bias)
    signs = _signs(output, last, noise)
    return moved + signs * (shift if last else shift.view(-1, *(1 for _ in layer.kernel_size)))


def _applied(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The layer with other weights: strides, groups and padding as it has them."""
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(x, weight, bias)
    found: Tensor = layer._conv_forward(x, weight, bias)
    return found


def _signs(like: Tensor, last: bool, noise: Noise) -> Tensor:
    """+-1 for every example and channel; the same at all positions of an example."""
    if like.ndim == 1:
        shape: tuple[int, ...] = tuple(like.shape)
    elif last:
        shape = (like.shape[0], *(1 for _ in like.shape[1:-1]), like.shape[-1])
    else:
        shape = (like.shape[0], like.shape[1], *(1 for _ in like.shape[2:]))
    drawn = torch.randint(0, 2, shape, generator=noise.generator(like.device), device=like.device, dtype=like.dtype)
    return 2 * drawn - 1
