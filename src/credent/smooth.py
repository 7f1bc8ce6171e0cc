"""Which activations of a network have kinks, and the same network without them.

A kink is a spike in the second derivative that no derivative taken at a point can see: the curvature of a ReLU network,
differentiated twice, misses how the network bends from one linear piece to the next [Unlu & Aitchison 2021, eq. 31].

    max(x, 0)  becomes  log(1 + e^x)                                                        softplus

>>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
>>> kinks(net, torch.zeros(1, 2))
['ReLU at 1']
>>> smooth(net)[1], kinks(smooth(net), torch.zeros(1, 2))
(Softplus(beta=1.0, threshold=20.0), [])
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from credent.network import Network

_SMOOTH_MODULES: dict[type[nn.Module], Callable[[], nn.Module]] = {
    **dict.fromkeys((nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ReLU6, nn.SELU, nn.Threshold), nn.Softplus),
    nn.Hardtanh: nn.Tanh,
    nn.Hardsigmoid: nn.Sigmoid,
    nn.Hardswish: nn.SiLU,
}
_SMOOTH_CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(
        ("relu", "relu_", "leaky_relu", "leaky_relu_", "prelu", "rrelu", "rrelu_", "relu6", "selu", "selu_"),
        functional.softplus,
    ),
    **dict.fromkeys(("hardtanh", "hardtanh_"), torch.tanh),
    "hardsigmoid": torch.sigmoid,
    "hardswish": functional.silu,
}
_OTHER_KINKS = {
    *("threshold", "threshold_", "hardshrink", "softshrink", "abs", "abs_", "absolute", "absolute_"),
    *("clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_", "maximum", "minimum"),
    *("fmax", "fmin"),
}
_DROPOUT = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"}


def smooth(net: nn.Module) -> nn.Module:
    """A copy of the network with softplus in the place of ReLU and its kin, written as modules or as functions.

    Saturating pieces become their smooth namesakes: hardtanh tanh, hardsigmoid sigmoid, hardswish SiLU. Others, such as
    clamp, abs, maximum and the shrinks, have none and stay. The parameters
    keep their names and values, except a PReLU's slope, which is gone.
    """
    copied = copy.deepcopy(net)
    for parent in list(copied.modules()):
        for name, child in list(parent._modules.items()):  # named_children would pass over one that stands here twice
            if child is not None and type(child) in _SMOOTH_MODULES:
                parent._modules[name] = _SMOOTH_MODULES[type(child)]()
    if type(copied) in _SMOOTH_MODULES:
        return _SMOOTH_MODULES[type(copied)]()
    calls = _Calls()
    copied.register_forward_pre_hook(calls.begin)
    copied.register_forward_hook(calls.end, always_call=True)
    return copied


class _Calls:
    """Hooks that put smooth functions in the place of calls such as `torch.relu(x)` for the length of one forward."""

    def __init__(self) -> None:
        self._open: list[_Replacing] = []

    def begin(self, *_: Any) -> None:
        mode = _Replacing()
        mode.__enter__()  # type: ignore[no-untyped-call]
        self._open.append(mode)

    def end(self, *_: Any) -> None:
        self._open.pop().__exit__(None, None, None)  # type: ignore[no-untyped-call]


class _Replacing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        replacement = _SMOOTH_CALLS.get(name)
        if replacement is None:
            return func(*args, **(kwargs or {}))
        x = args[0] if args else (kwargs or {})["input"]
        return x.copy_(replacement(x.clone())) if name.endswith("_") else replacement(x)


class Watch(TorchFunctionMode):
    """Within: notes every piecewise-linear activation and every active dropout that a forward calls."""

    def __init__(self) -> None:
        super().__init__()
        self.kinks: list[str] = []
        self.stubborn: list[str] = []
        """The kinks that `smooth` has nothing for."""
        self.dropout: list[str] = []
        self.within: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").removeprefix("_")
        if name in _SMOOTH_CALLS:
            self.kinks.append(self._place(name))
        elif (name in _OTHER_KINKS or _larger_of_two(name, args, kwargs)) and _differentiable(args, kwargs):
            self.kinks.append(self._place(name))
            self.stubborn.append(self._place(name))
        if name in _DROPOUT and _active(args, kwargs):
            self.dropout.append(self._place(name))
        if name == "scaled_dot_product_attention" and kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0) > 0:
            self.dropout.append(self._place(name))
        return func(*args, **kwargs)

    def _place(self, name: str) -> str:
        return self.within[-1] if self.within else f"{name}()"


@contextmanager
def watched(network: Network) -> Iterator[Watch]:
    """Within: a `Watch` over the network's forwards that knows which module is running."""
    watch = Watch()
    hooks = []
    for name, module in network.module.named_modules():
        hidden = f"{type(module).__name__} at {name}" if name else type(module).__name__
        if isinstance(module, nn.RNN) and module.nonlinearity == "relu":
            watch.kinks.append(hidden)
            watch.stubborn.append(hidden)
        if isinstance(module, nn.MultiheadAttention | nn.RNNBase) and module.training and module.dropout > 0:
            watch.dropout.append(hidden)  # inside their kernels, where no call is seen
        if any(True for _ in module.children()):
            continue  # a call in a container's own forward is a function's, and named as such
        label = f"{type(module).__name__} at {name}" if name else type(module).__name__
        hooks.append(module.register_forward_pre_hook(lambda *_, label=label: watch.within.append(label)))
        hooks.append(module.register_forward_hook(lambda *_: _discard(watch.within), always_call=True))
    try:
        with watch:
            yield watch
    finally:
        for hook in hooks:
            hook.remove()


def kinks(net: nn.Module, x: Any) -> list[str]:
    """The piecewise-linear activations that one forward of `x` meets: modules by name, functions as `relu()`.

    Max-pooling is not among them: it selects, and where it does so it is smooth. An activation that is written with
    comparisons, `torch.where(x > 0, x, 0)`, is not seen.
    """
    network = Network(net)
    with torch.enable_grad(), network.frozen_statistics(), watched(network) as watch:
        network.mean(x)
    return watch.kinks


def _discard(stack: list[str]) -> None:
    stack.pop()  # and nothing is returned: a hook's value would take the place of the module's output


def _larger_of_two(name: str, args: Any, kwargs: Any) -> bool:
    """torch.max(x, zeros), which is a ReLU, and not torch.max(x, dim=1), which selects."""
    return name in ("max", "min") and (isinstance(kwargs.get("other", args[1] if len(args) > 1 else None), Tensor))


def _differentiable(args: Any, kwargs: Any) -> bool:
    values = [*args, *kwargs.values()]
    return any(isinstance(v, Tensor) and v.requires_grad for v in values)


def _active(args: Any, kwargs: Any) -> bool:
    p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return bool(training) and p > 0
