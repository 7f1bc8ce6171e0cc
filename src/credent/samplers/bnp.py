"""Langevin dynamics preconditioned by the statistics of layer inputs, as batch normalisation would have them.

For one unit of a layer, theta = [b; w] and h the layer's input with m entries, the Fisher matrix is that of [1; h], and

    G = P P',    P = U D / q,    U = [1 -mu'; 0 I],    D = diag(1, 1/s),    s^2 = var + eps1 max(var) + eps2

turns [1; h] into something centred and of unit variance. mu and var are running averages of the inputs' mean and
variance, and q^2 = max(m / n, 1) with n the rows of a minibatch. Of a gradient (g_w, g_b) and of any (u_w, u_b):

    P' g:    (g_w - mu g_b) / (s q),        g_b / q
    P u:     u_w / (s q),                   u_b / q - <u_w, mu> / (s q)

Lange, Deng, Ye, Lin 2023 print sqrt(q) where the noise needs q: its covariance is then G q, so that T is q and not 1
whenever a layer is wider than the minibatch; `noise="printed"` does as they print. In a convolution h is the patch that
the kernel sees, and mean and variance are those of its channels. Without a bias there is no U. Weights of other layers,
and weights that several layers share, have the `fallback`.

Shapes: in a linear layer `weight` is (units, m), in a convolution (units, m / positions of the kernel, *kernel).

>>> net = nn.Linear(1, 1)
>>> sampler = BNPSGLD(net, lr=1e-3, num_data=10, temperature=0.0, decay=0.0, floor=(0.0, 0.0))
>>> _ = nn.init.zeros_(net.weight), nn.init.zeros_(net.bias)
>>> (net(torch.tensor([[100.0], [104.0]])) - 1).sum().backward()              # g = [2; 204], mu = 102, s = 2
>>> sampler.step()                                                            # G g = [2; 0]
>>> (net.weight.item(), round(net.bias.item(), 4))                            # -(1e-3 / 2) x 10 x 2
(0.0, -0.01)
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from credent import native
from credent.errors import InputError
from credent.network import owners
from credent.samplers.inputs import LayerInputs, Moments
from credent.samplers.langevin import Identity, Langevin, Preconditioner, State, Step
from credent.samplers.ranks import joined

_KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Layer:
    """The parameters of one layer: a weight, with or without a bias."""

    weight: Tensor
    bias: Tensor | None
    groups: int

    @property
    def params(self) -> list[Tensor]:
        """The weight, and the bias if there is one."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def over_inputs(self, channels: Tensor) -> Tensor:
        """Numbers by input channel in the shape of one unit's weights; each group of a convolution has its own."""
        inputs, *kernel = self.weight.shape[1:]
        channels = channels.view(-1, inputs, *(1 for _ in kernel)).expand(-1, inputs, *kernel)
        if self.groups > 1:
            channels = channels.repeat_interleave(self.weight.shape[0] // self.groups, 0)
        return channels.contiguous()

    def over_units(self, units: Tensor) -> Tensor:
        """Numbers by unit in a shape that fits the weight."""
        return units.view(-1, *(1 for _ in self.weight.shape[1:]))


@dataclass(frozen=True)
class Map:
    """P of one layer, in shapes that fit its weight."""

    mean: Tensor
    """mu."""
    root: Tensor
    """1 / (s q)."""
    pull: Tensor
    """mu / (s q)."""
    unit_root: float
    """1 / q."""
    hotter: float
    """What the noise is multiplied by: 1, or sqrt q as printed."""

    def fits(self, layer: Layer, given: "list[Moved]") -> bool:
        """Whether a compiled loop can take it: numbers of each unit lie together, in the order that the map has."""
        alike = layer.groups == 1 and all(native.alike(*([t] for t in each.streams)) for each in given)
        moved = given[0].moved
        same = self.mean.shape == (1, *moved.shape[1:]) and self.mean.stride()[1:] == moved.stride()[1:]
        return alike and same and native.suits(self.mean)


@dataclass(frozen=True)
class Moved:
    """A parameter or its velocity, which is moved, with its gradient and noise."""

    moved: Tensor
    grad: Tensor
    noise: Tensor

    @property
    def streams(self) -> tuple[Tensor, Tensor, Tensor]:
        """As compiled loops take them."""
        return self.moved, self.grad, self.noise


@dataclass(frozen=True)
class InputNormalising(Preconditioner):
    """G from the inputs of the layers that have been seen; other parameters have the fallback's."""

    layers: dict[nn.Module, Layer]
    inputs: LayerInputs
    decay: float
    floor: tuple[float, float]
    batch_size: int | None
    rows: Literal["positions", "batch"]
    noise: Literal["exact", "printed"]
    fallback: Preconditioner

    def drift(self, state: State, step: Step) -> None:
        """P u, layer by layer; noise is made as hot as it should be."""
        if step.adapting:
            self._average(state)
        layers, others = self._split(state, step.params)
        if step.adapting and not layers:
            raise InputError(
                "BNPSGLD has seen no training pass through its network's layers before step(): build it on the very"
                " network that is trained, not on a copy, call net.train(), and run it with gradients."
            )
        mine = step.of([p for layer in layers for p in layer.params]) if others else step
        given = {p: Moved(*each) for p, *each in zip(mine.params, mine.moved, mine.grads, mine.normal(), strict=True)}
        for layer in layers:
            self._drift(self._map(state, layer), layer, [given[p] for p in layer.params], step.rate, step.spread)
        if others:
            self.fallback.drift(state, step.of(others))

    def _average(self, state: State) -> None:
        """Running averages of what the layers have just seen, beginning at mean 0 and variance 1."""
        known = [(state[self.layers[module].weight], seen) for module, seen in joined(self.inputs.take()).items()]
        for place, seen in known:
            self._begin(place, seen)
        if known:
            averages = [place[what] for what in ("mean", "variance") for place, _ in known]
            news = [seen.mean for _, seen in known] + [seen.variance for _, seen in known]
            torch._foreach_lerp_(averages, news, 1 - self.decay)

    def _drift(self, p: Map, layer: Layer, given: list[Moved], rate: float, spread: float) -> None:
        """Of the weight and of the bias."""
        spread *= p.hotter
        if p.fits(layer, given):
            weight, *bias = (tuple(native.addresses(each.streams)) for each in given)
            shape = len(layer.weight), layer.weight[0].numel()
            rates = p.unit_root, rate, spread
            at = tuple(native.addresses((p.mean, p.root, p.pull))), weight, *(bias or [()])
            native.kernels.normalised_drift(torch.get_num_threads(), *shape, *at, *rates)
            return
        u = [each.noise.mul_(spread) for each in given]
        grad = given[0].grad
        if len(given) > 1:
            grad = torch.addcmul(grad, p.mean, layer.over_units(given[1].grad), value=-1)
            u[1].add_(given[1].grad, alpha=rate * p.unit_root)
        u[0].addcmul_(grad, p.root, value=rate)
        self._move(p, u, [each.moved for each in given], 1.0)

    def move(self, state: State, params: list[Tensor], u: list[Tensor], moved: list[Tensor], scale: float) -> None:
        """P u."""
        given, onto = dict(zip(params, u, strict=True)), dict(zip(params, moved, strict=True))
        layers, others = self._split(state, params)
        for layer in layers:
            each = [given[p] for p in layer.params], [onto[p] for p in layer.params]
            self._move(self._map(state, layer), *each, scale)
        if others:
            self.fallback.move(state, others, [given[p] for p in others], [onto[p] for p in others], scale)

    def _move(self, p: Map, u: list[Tensor], moved: list[Tensor], scale: float) -> None:
        """Of the weight and of the bias."""
        moved[0].addcmul_(u[0], p.root, value=scale)
        if len(u) > 1:
            moved[1].add_(u[1], alpha=scale * p.unit_root).sub_(_dot(u[0], p.pull), alpha=scale)

    def freeze(self) -> None:
        """Look no more."""
        self.inputs.watching = False
        self.fallback.freeze()

    def _begin(self, known: dict[str, Any], seen: Moments) -> None:
        """Averages that are there, and no map of what they were."""
        if "mean" not in known:  # rows are those of the first batch: the last one of an epoch may be short
            known["mean"], known["variance"] = torch.zeros_like(seen.mean), torch.ones_like(seen.variance)
            known["rows"], known["positions"] = seen.rows, seen.positions
        known.pop("_map", None)

    def _split(self, state: State, params: list[Tensor]) -> tuple[list[Layer], list[Tensor]]:
        """Layers that were seen and have all their gradients, and the parameters of none of them."""
        given = set(params)
        seen = (layer for layer in self.layers.values() if "mean" in state.get(layer.weight, ()))
        layers = [layer for layer in seen if given.issuperset(layer.params)]
        taken = {p for layer in layers for p in layer.params}
        return layers, [p for p in params if p not in taken]

    def _map(self, state: State, layer: Layer) -> Map:
        """Made once for all the steps with these averages."""
        known = state[layer.weight]
        if "_map" not in known:
            count = (self.batch_size or known["rows"]) * (known["positions"] if self.rows == "positions" else 1)
            q = max(layer.weight[0].numel() / count, 1.0) ** 0.5
            shapes = self._shapes(layer, known["mean"], known["variance"], q)
            known["_map"] = Map(*shapes, 1 / q, 1.0 if self.noise == "exact" else q**0.5)
        found: Map = known["_map"]
        return found

    def _shapes(self, layer: Layer, mean: Tensor, variance: Tensor, q: float) -> tuple[Tensor, Tensor, Tensor]:
        """mu, 1 / (s q) and mu / (s q), in the shape and memory order of a unit's weights."""
        part, floor = self.floor
        suits = layer.groups == 1 and native.suits(mean, variance, layer.weight) and native.dense(layer.weight)
        if suits and mean.shape == variance.shape == layer.weight.shape[1:2]:
            made = tuple(torch.empty_like(layer.weight[:1]) for _ in range(3))
            kernel, last = layer.weight[0, 0].numel(), not layer.weight.is_contiguous()
            at = mean.data_ptr(), variance.data_ptr(), len(mean), kernel, last, part, floor, q
            native.kernels.input_map(*at, *native.addresses(made))
            return made[0], made[1], made[2]
        variance = variance.view(layer.groups, -1)  # max(var) is over the inputs that the unit sees
        variance = (variance + (part * variance.amax(1, keepdim=True) + floor)).flatten()
        mean, root = layer.over_inputs(mean), layer.over_inputs((variance * q**2).rsqrt_())
        return mean, root, mean * root


class BNPSGLD(Langevin):
    """Langevin dynamics preconditioned by layer inputs; with `temperature=0`, BNP-preconditioned gradient descent.

    net: its trainable parameters are sampled, and its linear and convolutional layers are watched.
    burn_in: the steps in which the statistics adapt; then they are frozen and the chain samples. None never freezes.
    decay, floor: of the running averages; (eps1, eps2), which keep s^2 from zero.
    batch_size: rows of a minibatch, for q; None takes those of the first.
    rows: whether each position of an image or a sequence counts as a row for q, or only each member of the batch.
    noise: "exact" has the posterior as its law, "printed" is too hot by q.
    fallback: for the other parameters, `Identity()` or `RMSprop()`.
    """

    def __init__(
        self,
        net: nn.Module,
        lr: float,
        *,
        num_data: int,
        temperature: float = 1.0,
        momentum: float = 0.0,
        burn_in: int | None = 1000,
        decay: float = 0.99,
        floor: tuple[float, float] = (1e-2, 1e-4),
        batch_size: int | None = None,
        rows: Literal["positions", "batch"] = "positions",
        noise: Literal["exact", "printed"] = "exact",
        fallback: Preconditioner = Identity(),  # noqa: B008  (it has no state)
        seed: int | None = None,
    ) -> None:
        if not (0 <= decay < 1 and min(floor) >= 0):
            raise InputError(f"BNPSGLD(decay={decay}, floor={floor}): decay is in [0, 1), the floors not negative.")
        if batch_size is not None and batch_size < 1:
            raise InputError(f"BNPSGLD(batch_size={batch_size}): the rows of a minibatch, at least one.")
        if rows not in ("positions", "batch") or noise not in ("exact", "printed"):
            raise InputError(
                f"BNPSGLD(rows={rows!r}, noise={noise!r}): rows is 'positions' or 'batch', noise 'exact' or 'printed'."
            )
        layers = _layers(net)
        inputs = LayerInputs(layers)
        g = InputNormalising(layers, inputs, decay, floor, batch_size, rows, noise, fallback)
        trainable = [p for p in net.parameters() if p.requires_grad]
        super().__init__(trainable, g, lr, num_data, temperature, momentum, burn_in, seed)


def _layers(net: nn.Module) -> dict[nn.Module, Layer]:
    """Linear and convolutional layers whose weight is trained and is theirs alone."""
    places = [places for places in owners(net).values() if len(places) == 1]
    own = {places[0] for places in places if places[0][0]._parameters[places[0][1]].requires_grad}  # type: ignore[union-attr]
    found: dict[nn.Module, Layer] = {}
    for module in net.modules():
        if isinstance(module, _KINDS) and (module, "weight") in own:
            groups = 1 if isinstance(module, nn.Linear) else module.groups
            found[module] = Layer(module.weight, module.bias if (module, "bias") in own else None, groups)
    if not found:
        raise InputError(
            f"{type(net).__name__} has no trainable linear or convolutional layer whose inputs BNPSGLD could normalise:"
            " write PSGLD(net.parameters(), ...) or SGLD(...)."
        )
    return found


def _dot(weight: Tensor, by: Tensor) -> Tensor:
    """For each unit the sum over its weights of weight x by, where `by` is of all units or of each."""
    if by.shape[0] == 1:
        return torch.mv(weight.flatten(1), by.flatten())
    return (weight * by).flatten(1).sum(1)
