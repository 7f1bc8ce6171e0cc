"""Any `nn.Module` as a function of its named parameters, f(x; w).

`Network(module)(params, x)` runs the module with `params` in place of its own parameters and leaves the module as it
was, whatever happens inside. The module itself is never converted: pretrained weights stay, tied weights are one
parameter, and layers of any kind work because only parameters are looked at.

Shapes: `params` maps some of the names of `module.named_parameters()` to tensors of the parameters' shapes.

>>> net = nn.Linear(2, 1, bias=False)
>>> Network(net)({"weight": torch.tensor([[1.0, 2.0]])}, torch.tensor([[3.0, 4.0]]))
tensor([[11.]])
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from credent.errors import InputError

Params = dict[str, Tensor]
"""Tensors by parameter name."""

Owners = dict[str, list[tuple[nn.Module, str]]]
"""The places (module, attribute) that hold a parameter, by the parameter's first name."""


class Network:
    """A module seen as a function of its parameters."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._owners = owners(module)
        self._norms = [m for m in module.modules() if isinstance(m, _NormBase)]

    @property
    def device(self) -> torch.device | None:
        """Where the first parameter is, and inputs are expected; None without parameters."""
        return next((p.device for p in self.module.parameters()), None)

    def __call__(self, params: Mapping[str, Tensor], x: Any) -> Tensor:
        """Outputs of the module at `params`: `x` is a tensor, a tuple of arguments or a dict of keyword arguments."""
        unknown = [name for name in params if name not in self._owners]
        if unknown:
            raise InputError(
                f"the posterior speaks of {unknown[0]!r}, and {type(self.module).__name__} has no such parameter: it is"
                " of another network."
            )
        with self._swapped(params):
            return _outputs(self._run(x))

    def trained(self) -> list[Tensor]:
        """The parameters that learn, as they are now, each once."""
        held = (places[0][0]._parameters[places[0][1]] for places in self._owners.values())
        return [p for p in held if p is not None and p.requires_grad]

    def mean(self, x: Any) -> Tensor:
        """Outputs of the module at its own parameters."""
        return _outputs(self._run(x))

    def part(self, module: nn.Module, params: Mapping[str, Tensor], *arguments: Any, **keywords: Any) -> Tensor:
        """Outputs of one of the modules within, with `params`, under the whole network's names, in their places."""
        with self._swapped(params):
            return _outputs(module(*arguments, **keywords))

    def holders(self, names: Iterable[str]) -> list[nn.Module]:
        """The modules within that hold all of these parameters wherever they stand, the smallest first."""
        holding = {module for name in names for module, _ in self._owners.get(name, ())}
        everywhere = self.module.named_modules(remove_duplicate=False)
        around = [set(accumulate(path.split("."), "{}.{}".format)) for path, m in everywhere if m in holding]
        shared = set.intersection(*around) - {""} if around else set()
        return [self.module.get_submodule(path) for path in sorted(shared, key=len, reverse=True)]

    def _run(self, x: Any) -> Any:
        if isinstance(x, Mapping):
            return self.module(**x)
        if isinstance(x, tuple | list):
            return self.module(*x)
        return self.module(x)

    @contextmanager
    def _swapped(self, params: Mapping[str, Tensor]) -> Iterator[None]:
        """Put `params` where the modules keep their parameters, and put their own back, also after an exception.

        Written here because `torch.func.functional_call` leaves the given tensors in the network when a module that is
        registered twice ties its weights.
        """
        slots = [(m._parameters, a, value) for name, value in params.items() for m, a in self._owners[name]]
        own = [slot[attribute] for slot, attribute, _ in slots]
        try:
            for slot, attribute, value in slots:
                slot[attribute] = value  # type: ignore[assignment]  # modules read it as they would a Parameter
            yield
        finally:
            for (slot, attribute, _), parameter in zip(slots, own, strict=True):
                slot[attribute] = parameter

    # -- modes --------------------------------------------------------------------------------------------------------

    def normalises_after(self, names: Iterable[str]) -> bool:
        """Whether running statistics of a norm layer follow one of these parameters, in the order of registration.

        Such statistics are those of no single draw: each draw normalises differently, and predicts wrongly with them.
        """
        order = {id(module): i for i, module in enumerate(self.module.modules())}
        norms = [order[id(m)] for m in self.module.modules() if isinstance(m, _NormBase) and m.track_running_stats]
        return any(order[id(module)] < max(norms, default=-1) for name in names for module, _ in self._owners[name])

    @contextmanager
    def frozen_statistics(self) -> Iterator[None]:
        """Normalise with the batch as in training, but leave the running statistics alone."""
        norms = [m for m in self._norms if m.track_running_stats and m.training]
        own = [dict(norm._buffers) for norm in norms]
        try:
            for norm in norms:
                norm._buffers.update(dict.fromkeys(norm._buffers))  # InstanceNorm writes to any statistics it finds
            yield
        finally:
            for norm, buffers in zip(norms, own, strict=True):
                norm._buffers.update(buffers)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode (no dropout, running statistics); every submodule's own mode comes back afterwards."""
        modes = [(m, m.training) for m in self.module.modules()]
        try:
            self.module.eval()
            yield
        finally:
            for module, training in modes:
                module.training = training

    @contextmanager
    def statistics_of(self, params: Mapping[str, Tensor], batches: Iterable[Any]) -> Iterator[None]:
        """Within: normalisation statistics re-estimated at `params` as plain averages over `batches` of inputs."""
        norms = [m for m in self.module.modules() if isinstance(m, _NormBase) and m.track_running_stats]
        own = [(norm, dict(norm._buffers), norm.momentum, norm.training) for norm in norms]
        try:
            for norm in norms:
                norm._buffers.update({k: None if b is None else b.clone() for k, b in norm._buffers.items()})
                norm.reset_running_stats()
                norm.train()
            with torch.no_grad():
                for count, x in enumerate(batches, 1):
                    for norm in norms:  # a cumulative average, which BatchNorm calls None and InstanceNorm cannot count
                        norm.momentum = None if isinstance(norm, _BatchNorm) else 1 / count
                    self(params, x)
            for norm in norms:
                norm.eval()
            yield
        finally:
            for norm, buffers, momentum, training in own:
                norm._buffers.update(buffers)
                norm.momentum, norm.training = momentum, training

    @contextmanager
    def captured_inputs(self, *kinds: type[nn.Module]) -> Iterator[dict[str, Tensor]]:
        """Within: the latest input of every layer of these kinds, by the layer's name, without a second pass."""
        inputs: dict[str, Tensor] = {}

        def recorder(name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
            def record(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
                inputs[name] = next(iter((*arguments, *keywords.values()))).detach()

            return record

        layers = {name: m for name, m in self.module.named_modules() if isinstance(m, kinds)}
        hooks = [layer.register_forward_pre_hook(recorder(name), with_kwargs=True) for name, layer in layers.items()]
        try:
            yield inputs
        finally:
            for hook in hooks:
                hook.remove()


def owners(module: nn.Module) -> Owners:
    """Every place that holds a parameter, by the parameter's first name: tied weights have several places."""
    first: dict[int, str] = {}
    found: Owners = {}
    for prefix, child in module.named_modules():
        for attribute, parameter in child._parameters.items():
            if parameter is None:
                continue
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise InputError(
                    f"{type(child).__name__} '{prefix}' has no shapes yet; run one batch through it first: net(x)."
                )
            name = first.setdefault(id(parameter), f"{prefix}.{attribute}" if prefix else attribute)
            found.setdefault(name, []).append((child, attribute))
    return found


def take(x: Any, rows: Tensor | slice, device: torch.device | None = None) -> Any:
    """These rows of inputs as a network takes them, on this device."""

    def some(t: Tensor) -> Tensor:
        return t[rows.to(t.device) if isinstance(rows, Tensor) else rows].to(device or t.device)

    return each_tensor(x, some)


def each_tensor(x: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The function of a tensor, or of each in a tuple or dict of them; what is no tensor stays as it is."""
    if isinstance(x, Mapping):
        return {k: each_tensor(v, function) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return tuple(each_tensor(v, function) for v in x)
    return function(x) if isinstance(x, Tensor) else x


def _outputs(result: Any) -> Tensor:
    if isinstance(result, Tensor):
        return result
    logits = result.get("logits") if isinstance(result, Mapping) else None  # Hugging Face models
    if isinstance(logits, Tensor):
        return logits
    raise InputError(
        f"the network returned {type(result).__name__}, but a likelihood needs one tensor; wrap the network in a module"
        " whose forward returns the tensor to predict from, such as `lambda x: lstm(x)[0][:, -1]` in an nn.Module."
    )
