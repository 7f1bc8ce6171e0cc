"""The Gaussian that a prior may be: what every family has a closed-form KL to.

    p(w) = prod_k N(w_k; m_k, s_k^2),       one mean m_k and one standard deviation s_k for each parameter tensor

On a layout, of n_k numbers in tensor k, it has the terms that KLs are made of:

    energy       sum_k |w_k - m_k|^2 / (2 s_k^2)        with the gradient  (w_k - m_k) / s_k^2
    log_scales   sum_k n_k log s_k

They are asked for at every step, so what is the same at all of them is computed once.

>>> p = DiagonalGaussian({"weight": 0.0, "bias": 0.0}, {"weight": 2.0, "bias": 1.0})
>>> laid = p.on(Layout(torch.nn.Linear(2, 1)))
>>> laid.energy([torch.tensor([[2.0, 2.0]]), torch.tensor([1.0])])       # 8 / (2 * 4) + 1 / 2
tensor(1.5000)
>>> round(laid.log_scales, 4)                                    # 2 log 2
1.3863
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from credent import native
from credent.layout import Layout

_BLOCK = 1 << 16  # numbers

Counts = tuple[int, ...]
_Constant = Literal["loc", "precision"]


class DiagonalGaussian:
    """Independent Gaussians, by the names of parameters."""

    def __init__(self, loc: Mapping[str, float], scale: Mapping[str, float]) -> None:
        self.loc, self.scale = loc, scale
        self._laid: LaidGaussian | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files have no use for the vectors that are kept."""
        return {**self.__dict__, "_laid": None}

    def on(self, layout: Layout) -> "LaidGaussian":
        """Its terms for the parameters of a layout, which need not be the one that the prior was bound to."""
        if self._laid is None or self._laid.layout is not layout:
            self._laid = LaidGaussian(layout, self)
        return self._laid


class LaidGaussian:
    """The terms of a Gaussian on a layout, for its tensors, in their order, or for the vector (P,) under them all."""

    def __init__(self, layout: Layout, of: DiagonalGaussian) -> None:
        self.layout = layout
        self.log_scales = sum(shape.numel() * math.log(of.scale[k]) for k, shape in layout.shapes.items())
        self._locs = [of.loc[k] for k in layout.names]
        self._precisions = [of.scale[k] ** -2 for k in layout.names]
        self._ones = (1,) * len(layout.names)
        self._sizes = tuple(shape.numel() for shape in layout.shapes.values())
        self.constants = list(self._sizes), self._locs, self._precisions
        """Sizes, means and precisions of the tensors, as compiled passes take them."""
        self._kept: dict[tuple[Counts, _Constant, torch.dtype, torch.device], Tensor] = {}

    # -- for tensors --------------------------------------------------------------------------------------------------

    def offsets(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """w - m, for tensors of any shape; most rest at zero and need no subtraction."""
        return [w - m if m else w for w, m in zip(tensors, self._locs, strict=True)]

    def quadratic(self, tensors: Sequence[Tensor]) -> Tensor:
        """sum_k |w_k - m_k|^2 / s_k^2, in blocks: norms of millions of float32 lose digits."""
        blocks: list[Tensor] = []
        counts: list[int] = []
        for w in self.offsets(tensors):
            parts = (w,) if w.numel() <= _BLOCK else torch.split(w.reshape(-1), _BLOCK)
            blocks += parts
            counts.append(len(parts))
        norms = torch.stack(torch._foreach_norm(blocks))
        return torch.dot(norms.square(), self._repeated("precision", tuple(counts), norms))

    def energy(self, tensors: Sequence[Tensor], more: float = 0.0) -> Tensor:
        """sum_k |w_k - m_k|^2 / (2 s_k^2) and a number more, in one pass over the weights, forward and backward."""
        value: Tensor = _Energy.apply(self, more, *tensors)  # type: ignore[no-untyped-call]
        return value

    def pulls(self, c: Tensor) -> Tensor:
        """c / s_k^2, (K,)."""
        return c * self._repeated("precision", self._ones, c)

    def pulled(self, tensors: Sequence[Tensor], c: Tensor) -> list[Tensor]:
        """c (w_k - m_k) / s_k^2: the gradients of c times the energy."""
        if self.compiles(tensors) and not torch.is_grad_enabled():
            return self.pulled_by_loop(tensors, c)
        return list(torch._foreach_mul(self.offsets(tensors), list(self.pulls(c).unbind())))

    def compiles(self, tensors: Sequence[Tensor]) -> bool:
        """Whether compiled loops can run along these tensors and the vectors of the layout."""
        return native.suits(*tensors) and self.layout.lies_under(tensors)

    def pulled_by_loop(self, tensors: Sequence[Tensor], c: Tensor) -> list[Tensor]:
        """`pulled`, for tensors of which it is known that they compile."""
        out = self.layout.blank(tensors[0])
        streams = native.addresses(tensors), native.addresses(out)
        native.kernels.pull(torch.get_num_threads(), *self.constants, streams, (float(c),))
        return out

    # -- for the vector -----------------------------------------------------------------------------------------------

    def flat_offset(self, mu: Tensor) -> Tensor:
        """mu - m, (P,)."""
        return mu - self._repeated("loc", self._sizes, mu) if any(self._locs) else mu

    def flat_precision(self, like: Tensor) -> Tensor:
        """1 / s^2, (P,)."""
        return self._repeated("precision", self._sizes, like)

    def _repeated(self, what: _Constant, counts: Counts, like: Tensor) -> Tensor:
        """A number of each tensor so many times over: made at first use, of the type and on the device of `like`."""
        kind = counts, what, like.dtype, like.device
        if kind not in self._kept:
            with torch.inference_mode(False):  # it outlives the mode in which it is asked for first
                made = torch.tensor(self._locs if what == "loc" else self._precisions, dtype=like.dtype)
                self._kept[kind] = made.repeat_interleave(torch.tensor(counts)).to(like.device)
        return self._kept[kind]


class _Energy(torch.autograd.Function):
    """sum_k |w_k - m_k|^2 / (2 s_k^2) + more, whose gradient is (w - m) / s^2."""

    @staticmethod
    def forward(ctx: Any, prior: LaidGaussian, more: float, *tensors: Tensor) -> Tensor:
        ctx.prior, ctx.compiled = prior, prior.compiles(tensors)
        ctx.save_for_backward(*tensors)
        if ctx.compiled:
            streams = (native.addresses(tensors),)
            twice, *_ = native.kernels.energy(torch.get_num_threads(), *prior.constants, streams, ())
            return native.scalar(twice / 2 + more)
        return prior.quadratic(tensors) / 2 + more

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor | None, ...]:
        known = ctx.compiled and not torch.is_grad_enabled()  # and unchanged since, which autograd has looked at
        pulled = ctx.prior.pulled_by_loop if known else ctx.prior.pulled
        return None, None, *pulled(ctx.saved_tensors, c)
