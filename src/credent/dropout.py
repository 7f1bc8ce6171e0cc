"""A network's own dropout, kept on while it predicts: every pass draws masks of its own.

    f_s(x) = f(x; w_s, z_s),     z_s ~ Bernoulli(1 - p) / (1 - p)

A network that was trained with dropout has learnt to be right under many masks, and what they disagree about is what it
does not know [Gal & Ghahramani 2016]. Masks are drawn for each input by itself, and for any posterior of the weights: a
point, for which this is Monte-Carlo dropout as it is known, or draws of it.

Layers that drop are torch's dropout modules, and its recurrent and attention layers with a rate; the network is
otherwise as it was found. A `forward` that drops by itself, by `F.dropout` or as attention of Hugging Face, looks at
a mode that it shares with much else, and is not reached: layers of which it reads but the rate are warned of.

>>> net = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.5)).eval()
>>> with dropping(net, seed=0):
...     drawn = net(torch.ones(8, 1)).flatten()
>>> drawn.round().tolist()                       # zero, or twice the input
[0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0]
>>> net(torch.ones(1, 1)).round().item()
1.0
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from credent.errors import InputError

_STREAM = 3 * 2**30  # masks shall not follow the noise of weights, which has the same seed; torch takes 32 bits of it


@contextmanager
def dropping(module: nn.Module, seed: int | None) -> Iterator[None]:
    """Within: its dropout layers drop, not in place, and nothing else of its mode changes.

    Masks are those of the seed, but for cuDNN's recurrent layers, which keep a state of their own, and torch's
    generators come back as they were; None goes on with theirs.
    """
    layers = [m for m in module.modules() if _rate(m) > 0]
    if not layers:
        raise InputError(
            f"dropout=True, and {type(module).__name__} has no layer that drops: train it with nn.Dropout(p) where it"
            " should, or leave dropout=True out. F.dropout in a forward of your own cannot be kept on."
        )
    modes, called = [(layer, layer.training) for layer in layers], set[nn.Module]()
    hooks = [layer.register_forward_pre_hook(lambda layer, _: called.add(layer)) for layer in layers]
    inplace = [layer for layer in layers if isinstance(layer, _DropoutNd) and layer.inplace]
    fused = torch.backends.mha.get_fastpath_enabled()
    with _stream(module, seed):
        try:
            torch.backends.mha.set_fastpath_enabled(False)  # encoder layers in evaluation mode would skip their dropout
            for layer in layers:
                layer.training = True
            for layer in inplace:
                layer.inplace = False  # what they are given may be the caller's, and the next pass's
            yield
            _warn_of_idle([name for name, layer in module.named_modules() if layer in set(layers) - called])
        finally:
            for hook in hooks:
                hook.remove()
            torch.backends.mha.set_fastpath_enabled(fused)
            for layer, training in modes:
                layer.training = training
            for layer in inplace:
                layer.inplace = True


def _warn_of_idle(names: list[str]) -> None:
    if names:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        warnings.warn(
            f"dropout=True: {some} did not run, so nothing was dropped there. Attention that reads a rate and drops by"
            " itself, as Hugging Face's does, cannot be kept on.",
            stacklevel=5,
        )


@contextmanager
def _stream(module: nn.Module, seed: int | None) -> Iterator[None]:
    """Within: torch's generators of the module's devices are those of the seed; no other is touched."""
    if seed is None:
        yield
        return
    gpus = {p.device for p in module.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(gpus):
        own = (_STREAM + seed) % 2**64
        torch.default_generator.manual_seed(own)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(own)
        yield


def _rate(module: nn.Module) -> float:
    """Of a layer whose mode says nothing but whether it drops; one recurrent layer alone has nothing between layers."""
    if isinstance(module, _DropoutNd):
        return module.p
    if isinstance(module, nn.RNNBase):
        return float(module.dropout) if module.num_layers > 1 else 0.0
    return float(module.dropout) if isinstance(module, nn.MultiheadAttention) else 0.0
