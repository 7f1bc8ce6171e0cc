"""How unevenly gradients spread over the weights of a layer: the empirical Fisher matrix, online, and its condition.

    F_t = (1 - 1/t) F_{t-1} + (1/t) g_t g_t',        g_t the gradient of the loss of step t by theta = [b; w]

theta are bias and weights of one unit: a row of a linear layer, an output channel of a convolution. For every layer,
averaged over units,

    elementwise                   max F_ii / min F_ii
    percentiles                   the same between the 95th and the 5th percentile: the smallest of many is mostly noise
    full                          largest / smallest eigenvalue of F
    preconditioned                of P' F P, which a sampler or optimiser with G = P P' sees in the place of F
    preconditioned_elementwise    of its diagonal

There is no damping. After t < dim theta steps F is singular and its condition infinite; a smallest eigenvalue within
round-off of zero counts as zero. g is the mean over a minibatch, so F holds (mean gradient)^2 as well as noise / B.
Lange, Deng, Ye, Lin 2023, section 4.3, where the average is printed with a minus [papers.md]; Ahn, Korattikara, Welling
2012 have the centred covariance of single examples' gradients in the place of g g'.

Shapes: diagonals (units, dim theta), blocks (watched units, dim theta, dim theta), in float64.

>>> layer = nn.Linear(2, 1, bias=False)
>>> condition = Condition(layer)
>>> for g in ([[2.0, 0.0]], [[0.0, 1.0]]):
...     layer.weight.grad = torch.tensor(g)
...     condition.observe()
>>> condition.numbers()["condition//full"]
4.0
"""

import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from credent.errors import BudgetError, InputError
from credent.network import owners

Precondition = Callable[[list[Tensor], list[Tensor]], object]
"""Called with parameters and vectors of their shapes: puts P v in the place of the vectors v, unit by unit."""

_KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass
class _Layer:
    """The running averages of one layer."""

    params: list[Tensor]  # bias first, where there is one
    diagonal: Tensor
    blocks: Tensor
    steps: int = 0

    @classmethod
    def of(cls, params: list[Tensor], units: int) -> "_Layer":
        """Nothing observed yet."""
        rows, size = len(params[0]), _dimension(params)
        diagonal = torch.zeros(rows, size, dtype=torch.float64, device=params[0].device)
        return cls(params, diagonal, diagonal.new_zeros(min(units, rows), size, size))

    def observe(self) -> None:
        """One step's gradient, if it has come to all of this layer."""
        grads = [p.grad for p in self.params if p.grad is not None]
        if len(grads) < len(self.params):
            return
        g = torch.cat([grad.reshape(len(grad), -1) for grad in grads], 1).to(self.diagonal)
        self.steps += 1
        self.diagonal.lerp_(g.square(), 1 / self.steps)
        g = g[: len(self.blocks), :, None]
        self.blocks.baddbmm_(g, g.mT, beta=1 - 1 / self.steps, alpha=1 / self.steps)

    def numbers(self, precondition: Precondition | None) -> dict[str, float]:
        """Condition numbers by kind."""
        low, high = torch.quantile(self.diagonal, torch.tensor([0.05, 0.95]).to(self.diagonal), dim=1)
        found = {
            "elementwise": _spread(self.diagonal),
            "percentiles": _mean_ratio(high, low),
            "full": self._eigenvalues(self.blocks),
        }
        if precondition is not None:
            p = self._matrix(precondition)
            blocks = p.mT @ self.blocks @ p
            found["preconditioned"] = self._eigenvalues(blocks)
            found["preconditioned_elementwise"] = _spread(blocks.diagonal(dim1=1, dim2=2))
        return found

    def _eigenvalues(self, blocks: Tensor) -> float:
        dimension = blocks.shape[-1]
        if self.steps < dimension:  # of rank t at most
            return math.inf
        values = torch.linalg.eigvalsh(blocks)
        low, high = values[:, 0], values[:, -1]
        return _mean_ratio(high, torch.where(low > dimension * torch.finfo(low.dtype).eps * high, low, 0))

    @torch.no_grad()
    def _matrix(self, precondition: Precondition) -> Tensor:
        """P of the watched units, column by column."""
        columns = []
        for j in range(self.diagonal.shape[1]):
            basis = torch.zeros_like(self.diagonal, dtype=self.params[0].dtype)
            basis[:, j] = 1
            parts = torch.split(basis, [p[0].numel() for p in self.params], 1)
            vectors = [part.reshape(p.shape) for p, part in zip(self.params, parts, strict=True)]
            precondition(list(self.params), vectors)
            columns.append(torch.cat([v.reshape(len(v), -1) for v in vectors], 1)[: len(self.blocks)])
        return torch.stack(columns, 2).to(self.blocks)


class Condition:
    """Condition numbers of the online empirical Fisher matrix, layer by layer; also a monitor of `fit`.

    net: a network, or an objective over one; layers have the names of its `named_modules()`.
    layers: names or patterns ("body.*"); None takes all linear and convolutional layers.
    units: of each layer so many units, the first, have full blocks; elementwise numbers are of all units.
    precondition: puts P v in the place of v, `sampler.precondition` for a sampler; P is taken as it is when the numbers
        are.
    every, report: as a monitor, optimiser steps between two observations, and observations between two reports.
    max_bytes: that the blocks may fill.
    """

    def __init__(
        self,
        net: nn.Module,
        layers: str | Iterable[str] | None = None,
        *,
        units: int = 4,
        precondition: Precondition | None = None,
        every: int = 1,
        report: int = 100,
        max_bytes: int = 2**30,
    ) -> None:
        if min(units, every, report) < 1:
            raise InputError(f"Condition(units={units}, every={every}, report={report}): all count from 1.")
        self.every, self.report, self.precondition = every, report, precondition
        chosen = _chosen(net, layers)
        need = sum(8 * min(units, len(params[0])) * _dimension(params) ** 2 for params in chosen.values())
        if need > max_bytes:
            raise BudgetError(
                f"the blocks of {len(chosen)} layers take {need:,} bytes, and max_bytes is {max_bytes:,}: choose"
                f" layers=, watch fewer than units={units}, or allow {need:,}."
            )
        self._observed = 0
        self._layers = {name: _Layer.of(params, units) for name, params in chosen.items()}

    @torch.no_grad()
    def observe(self) -> None:
        """Take in the gradients that the last backward pass left."""
        for layer in self._layers.values():
            layer.observe()
        self._observed += 1

    def numbers(self) -> dict[str, float]:
        """Condition numbers as "condition/layer/kind", of the layers that have had gradients."""
        found = {k: layer.numbers(self.precondition) for k, layer in self._layers.items() if layer.steps}
        return {f"condition/{name}/{kind}": value for name, each in found.items() for kind, value in each.items()}

    def __call__(self, objective: Any) -> dict[str, float]:
        """As a monitor: observe, and report now and then."""
        self.observe()
        return self.numbers() if self._observed % self.report == 0 else {}

    def state_dict(self) -> dict[str, Any]:
        """The running averages."""
        layers = {k: {"diagonal": v.diagonal, "blocks": v.blocks, "steps": v.steps} for k, v in self._layers.items()}
        return {"observed": self._observed, "layers": layers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if list(state["layers"]) != list(self._layers):
            raise InputError(
                f"these averages are of the layers {list(state['layers'])}, and this Condition watches"
                f" {list(self._layers)}: build it with the same layers=."
            )
        self._observed = state["observed"]
        for name, layer in self._layers.items():
            saved = state["layers"][name]
            layer.diagonal.copy_(saved["diagonal"])
            layer.blocks.copy_(saved["blocks"])
            layer.steps = saved["steps"]


def _chosen(net: nn.Module, layers: str | Iterable[str] | None) -> dict[str, list[Tensor]]:
    """Bias and weight of the layers that were asked for, where they are trained and belong to no other layer."""
    own = {places[0] for places in owners(net).values() if len(places) == 1}
    usable: dict[str, list[Tensor]] = {}
    for name, module in net.named_modules():
        if isinstance(module, _KINDS) and (module, "weight") in own and module.weight.requires_grad:
            bias = module.bias
            trained = bias is not None and (module, "bias") in own and bias.requires_grad
            usable[name] = [bias, module.weight] if trained and bias is not None else [module.weight]
    patterns = ["*"] if layers is None else [layers] if isinstance(layers, str) else list(layers)
    for pattern in patterns:
        if not fnmatch.filter(usable, pattern):
            raise InputError(
                f"layers={pattern!r} matches no linear or convolutional layer with a weight that is trained and its"
                f" own; there are {', '.join(map(repr, usable)) or 'none'}."
            )
    return {k: params for k, params in usable.items() if any(fnmatch.fnmatchcase(k, p) for p in patterns)}


def _dimension(params: list[Tensor]) -> int:
    return sum(p[0].numel() for p in params)


def _spread(diagonal: Tensor) -> float:
    return _mean_ratio(diagonal.amax(1), diagonal.amin(1))


def _mean_ratio(high: Tensor, low: Tensor) -> float:
    """Mean over units; infinite where a smallest number is zero, also of a unit that never had a gradient."""
    return float(torch.where(low > 0, high / low, math.inf).mean())
