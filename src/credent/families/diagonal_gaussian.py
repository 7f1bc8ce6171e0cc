"""The Gaussian that a prior may be: what every family has a closed-form KL to.

    p(w) = prod_k N(w_k; m_k, s_k^2),       one mean m_k and one standard deviation s_k for each parameter tensor
    -log p(w) = sum_k |w_k - m_k|^2 / (2 s_k^2) + n_k log s_k + n_k log(2 pi) / 2

Its terms are asked for at every step, so what is the same at all of them is computed once.

>>> p = DiagonalGaussian(Layout(torch.nn.Linear(2, 1)), {"weight": 0.0, "bias": 0.0}, {"weight": 2.0, "bias": 1.0})
>>> p.energy(torch.tensor([8.0, 1.0]))                           # 8 / (2 * 4) + 1 / 2
tensor(1.5000)
>>> round(p.log_scales, 4)                                       # 2 log 2
1.3863
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from credent.layout import Layout


class DiagonalGaussian:
    """Independent Gaussians on a layout, by the names of its parameters."""

    def __init__(self, layout: Layout, loc: Mapping[str, float], scale: Mapping[str, float]) -> None:
        self.layout, self.loc, self.scale = layout, loc, scale
        self._precisions: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    @cached_property
    def log_scales(self) -> float:
        """sum_k n_k log s_k."""
        return sum(shape.numel() * math.log(self.scale[k]) for k, shape in self.layout.shapes.items())

    @cached_property
    def _moved(self) -> list[tuple[int, float]]:
        """Which tensors do not rest at zero, and where they rest."""
        return [(i, self.loc[k]) for i, k in enumerate(self.layout.names) if self.loc[k]]

    def offsets(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """w - m, for one tensor of any shape per parameter; most rest at zero and need no subtraction."""
        found = list(tensors)
        for i, m in self._moved:
            found[i] = found[i] - m
        return found

    def energy(self, squares: Tensor) -> Tensor:
        """sum_k squares_k / (2 s_k^2), for the sum of squares of each parameter's tensor, (K,)."""
        return squares @ self._precision(squares) / 2

    def pulls(self, c: Tensor) -> list[Tensor]:
        """c / s_k^2: what a tensor's offset is multiplied with in the gradient of c x energy."""
        return list((c * self._precision(c)).unbind())

    def _precision(self, like: Tensor) -> Tensor:
        kind = like.dtype, like.device
        if kind not in self._precisions:
            self._precisions[kind] = like.new_tensor([self.scale[k] ** -2 for k in self.layout.names])
        return self._precisions[kind]
