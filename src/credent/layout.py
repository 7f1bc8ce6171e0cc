"""The random parameters of a network: which they are, what each does in its layer, and one vector under them all.

`Layout(module)` takes every trainable parameter; `random=` takes name patterns or a predicate, so that a Bayesian last
layer costs one argument. A tied weight is one parameter with several names, drawn once.

Shapes: `Params` map the names of `module.named_parameters()` to tensors of the parameters' shapes; `flatten` lays them
into one vector of P numbers, in the memory order that the parameters had when the layout was made.

>>> layout = Layout(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), random="2.*")
>>> layout.names, layout.num_params
(('2.weight', '2.bias'), 4)
>>> layout.roles["2.weight"]
Role(kind='weight', fan_in=3, fan_out=1)
"""

import difflib
import fnmatch
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from credent.errors import InputError
from credent.network import Owners, Params, owners

Random = str | Iterable[str] | Callable[[str, nn.Parameter], bool] | None
"""Which parameters are random: name patterns (`"head.*"`), a predicate, or None for every trainable one."""

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_SUMMING = (nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d, *_TRANSPOSED, nn.RNNBase, nn.RNNCellBase)


_KEPT = 4  # vectors: a training step holds three at a time
_SHORT = 1 << 17  # numbers: torch's allocator is fast enough
_OURS = 2  # references to a storage when only the list of kept vectors has it: the tensor's and the one that asks


@dataclass(frozen=True)
class Role:
    """What a parameter does in its layer: the fans set a weight's natural scale; a norm layer's gain rests at one."""

    kind: Literal["weight", "bias", "gain"]
    fan_in: int = 1
    fan_out: int = 1

    @property
    def natural_scale(self) -> float:
        """The spread that keeps a layer's outputs of order one: 1/sqrt(fan_in) for weights, 1 for the rest."""
        return 1 / math.sqrt(self.fan_in)


class Layout:
    """The random parameters of a module, by name and in one vector."""

    def __init__(self, module: nn.Module, random: Random = None) -> None:
        self._owners = owners(module)
        self.names = tuple(_choose(module, self._owners, random))
        self._homes = [self._owners[name][0] for name in self.names]
        params = self.params()
        kinds = {(p.dtype, p.device) for p in params.values()}
        if len(kinds) > 1:
            listed = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            raise InputError(
                f"the random parameters are of several kinds ({listed}); one vector holds them all. Convert the network"
                " first, as in net.float(), or choose parameters of one kind with random=."
            )
        self.shapes = {k: p.shape for k, p in params.items()}
        self.roles = {k: _role(self._owners[k], p) for k, p in params.items()}
        self._sizes = [p.numel() for p in params.values()]
        self.num_params = sum(self._sizes)
        self.natural_length = math.sqrt(sum(p.numel() * self.roles[k].natural_scale ** 2 for k, p in params.items()))
        # empty_like gives dense strides in the parameter's own memory order: channels_last stays channels_last
        self.strides = {k: torch.empty_like(p).stride() for k, p in params.items()}
        begins = accumulate(self._sizes, initial=0)
        self._shapes, self._strides = list(self.shapes.values()), list(self.strides.values())
        self._begins = list(begins)[:-1]
        self._vectors: list[Tensor] = []

    def warn_of_padding(self) -> None:
        """Whoever draws all weights draws the row of an embedding, too, that torch holds still: no data narrow it."""
        for name in self.names:
            padded = [m for m, _ in self._owners[name] if getattr(m, "padding_idx", None) is not None]
            if padded and isinstance(padded[0], nn.Embedding | nn.EmbeddingBag):
                warnings.warn(
                    f"{name} has a row for padding (padding_idx={padded[0].padding_idx}), which gets no gradient from"
                    " the data: it is random as the prior is. Mask padding in the network, as attention does, or leave"
                    f" this weight out, as in random=lambda k, p: k != {name!r}.",
                    stacklevel=4,
                )

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files have no use for the memory that is kept."""
        return {**self.__dict__, "_vectors": []}

    def first(self) -> Tensor:
        """The first random parameter, for the type and device of all."""
        return _held(*self._owners[self.names[0]][0])

    def params(self) -> Params:
        """The module's own random parameters, as they are now: the means of whatever is built on this layout."""
        return dict(zip(self.names, self.held(), strict=True))

    def held(self) -> list[Tensor]:
        """The same in their order, without names."""
        return [_held(*home) for home in self._homes]

    def last_weight(self) -> str | None:
        """The last weight of the whole module, random or not, in the order in which its parts were registered."""
        weights = [k for k, places in self._owners.items() if _role(places, _held(*places[0])).kind == "weight"]
        return weights[-1] if weights else None

    def vector(self, like: Tensor) -> Tensor:
        """A vector (P,) of the type and device of `like` with anything in it.

        Memory that nobody else refers to any more is handed out again: fresh pages for vectors of many megabytes cost
        more than the arithmetic on them, and looking for some more than a short vector. Not for two threads at a time.
        """
        if self.num_params < _SHORT:
            return self._new(like)
        for kept in self._vectors:
            alone = torch._C._storage_Use_Count(kept.untyped_storage()._cdata) == _OURS
            if alone and kept.dtype == like.dtype and kept.device == like.device:
                return kept.detach()
        new = self._new(like)
        self._vectors = [*self._vectors[-_KEPT + 1 :], new]
        return new.detach()  # or what is written to it would leave its history on the one that is kept

    def _new(self, like: Tensor) -> Tensor:
        with torch.inference_mode(False):  # it may outlive the mode in which it is asked for
            return torch.empty(self.num_params, dtype=like.dtype, device=like.device)

    def flatten(self, params: Mapping[str, Tensor]) -> Tensor:
        """One vector of all random parameters, (P,), in memory of its own."""
        return self.lay([params[name] for name in self.names])[0]

    def lay(self, tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """A vector with a copy of one tensor per random parameter, and the views into it."""
        flat = self.vector(tensors[0])
        views = self.tensors(flat)
        torch._foreach_copy_(views, list(tensors))
        return flat, views

    def lies_under(self, tensors: Sequence[Tensor]) -> bool:
        """Whether each of these tensors, one per random parameter, has its numbers in the order of the vector."""
        strides = list(map(Tensor.stride, tensors))
        return strides == self._strides and [t.shape for t in tensors] == self._shapes

    def unflatten(self, flat: Tensor) -> Params:
        """Views into a vector (P,) under the parameters' names and shapes."""
        return dict(zip(self.names, self.tensors(flat), strict=True))

    def tensors(self, flat: Tensor) -> list[Tensor]:
        """The same views, in the order of the names."""
        start = flat.storage_offset()
        places = zip(self._shapes, self._strides, self._begins, strict=True)
        return [flat.as_strided(shape, strides, start + begin) for shape, strides, begin in places]

    def blank(self, like: Tensor) -> list[Tensor]:
        """Tensors for gradients of the parameters, in their order, with anything in them.

        Each has memory of its own, to which autograd adds other gradients in place; views of one vector have not.
        """
        return [like.new_empty_strided(*place) for place in zip(self._shapes, self._strides, strict=True)]

    def views(self, flat: Tensor) -> Params:
        """`unflatten` for a vector that gradients flow back to."""
        return dict(zip(self.names, _Views.apply(flat, self), strict=True))  # type: ignore[no-untyped-call]


class _Views(torch.autograd.Function):
    """Views whose gradients are laid into one vector: one pass, where slicing would fill a zero vector per view."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, layout: Layout) -> tuple[Tensor, ...]:
        ctx.layout = layout
        return tuple(layout.tensors(flat))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.layout.flatten(dict(zip(ctx.layout.names, grads, strict=True))), None


def _choose(module: nn.Module, owners: Owners, random: Random) -> list[str]:
    parameters = dict(module.named_parameters())
    usable = [k for k in owners if parameters[k].requires_grad and parameters[k].is_floating_point()]
    if not usable:
        raise InputError(
            f"{type(module).__name__} has no trainable parameter, so nothing can be random; "
            "a frozen network wants p.requires_grad_(True) on the parameters to learn."
        )
    if random is None:
        return usable
    if callable(random):
        chosen = [k for k in usable if random(k, parameters[k])]
        if not chosen:
            raise InputError(f"random= returned False for every trainable parameter: {_listed(usable)}.")
        return chosen
    names: dict[str, set[str]] = {k: {k} for k in owners}
    by_id = {id(parameters[k]): k for k in owners}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[by_id[id(parameter)]].add(name)  # a tied weight answers to each of its names
    chosen_set: set[str] = set()
    for pattern in [random] if isinstance(random, str) else list(random):
        matched = {k for k, aliases in names.items() if any(fnmatch.fnmatchcase(a, pattern) for a in aliases)}
        if not matched:
            near = difflib.get_close_matches(pattern, list(names), n=3, cutoff=0.4) or list(names)
            raise InputError(
                f"random={pattern!r} matches no parameter; near it: {_listed(near)}. Patterns are globs: 'head.*'."
            )
        if not matched & set(usable):
            raise InputError(
                f"random={pattern!r} matches only frozen parameters ({_listed(sorted(matched))}); "
                "unfreeze them with p.requires_grad_(True), or choose others."
            )
        chosen_set |= matched & set(usable)
    return [k for k in usable if k in chosen_set]


def _held(module: nn.Module, attribute: str) -> Tensor:
    return module._parameters[attribute]  # type: ignore[return-value]


def _role(owners: Sequence[tuple[nn.Module, str]], parameter: Tensor) -> Role:
    """The role under which a parameter has the most inputs: a tied embedding is scaled as the layer that sums it."""
    return max((_role_in(module, attribute, parameter) for module, attribute in owners), key=lambda role: role.fan_in)


def _role_in(module: nn.Module, attribute: str, parameter: Tensor) -> Role:
    if isinstance(module, _NORMS):
        return Role("gain" if attribute == "weight" else "bias")
    if parameter.ndim < 2 or "bias" in attribute:
        # a norm layer that is not torch's own scales its inputs by its weight, too
        own_norm = attribute == "weight" and "norm" in type(module).__name__.lower()
        return Role("gain" if own_norm else "bias")
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return Role("weight", 1, parameter.shape[1])
    if parameter.shape[0] == 1 and not isinstance(module, _SUMMING):
        return Role("bias")  # added or prepended as it is: a position embedding, a class token
    if type(module).__name__ == "Conv1D":  # Hugging Face's linear layer, whose weight lies the other way round
        return Role("weight", parameter.shape[0], parameter.shape[1])
    receptive = math.prod(parameter.shape[2:])
    if isinstance(module, _TRANSPOSED):
        return Role("weight", parameter.shape[0] // module.groups * receptive, parameter.shape[1] * receptive)
    groups = module.groups if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) else 1
    return Role("weight", parameter.shape[1] * receptive, parameter.shape[0] // groups * receptive)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
