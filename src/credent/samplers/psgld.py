"""Langevin dynamics with RMSprop's preconditioner: short steps where gradients are large, long ones where small.

    V <- decay V + (1 - decay) g^2,        G = diag(1 / (damping + sqrt V)),        P = sqrt G

g is the gradient of MAP's loss, in nats per datum, prior included (Li, Chen, Carlson, Carin 2016, leave the prior out
of V: a difference of order 1/N). V begins as the first g^2. While V adapts, G depends on w and the chain would need the
correction Gamma = div G, which the papers drop; once V is frozen there is none.

>>> w = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
>>> sampler = PSGLD([w], lr=0.2, num_data=10, temperature=0.0, damping=0.0)
>>> w.grad = torch.tensor([3.0, 0.003])
>>> sampler.step()                                 # (0.2 / 2) x 10 x g / |g|, whatever the scale of g
>>> torch.allclose(w, torch.zeros(2), atol=1e-6)
True
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from credent import native
from credent.errors import InputError
from credent.samplers.langevin import Langevin, Params, Preconditioner, State, Step


@dataclass(frozen=True)
class RMSprop(Preconditioner):
    """G = 1 / (damping + sqrt V), elementwise, V the running mean of squared gradients."""

    decay: float = 0.99
    damping: float = 1e-5

    def __post_init__(self) -> None:
        if not (0 <= self.decay < 1 and self.damping >= 0):
            raise InputError(f"{self!r}: decay is a share in [0, 1), and damping is not negative.")

    def drift(self, state: State, step: Step) -> None:
        """Gradient and noise, each by its root, of V with this gradient in it."""
        if step.adapting:
            squares = [self._square(state[p], p, g) for p, g in zip(step.params, step.grads, strict=True)]
            if step.compiles(squares):
                step.along(native.kernels.adapting_drift, squares, by=(self.decay, self.damping))
                return
            torch._foreach_mul_(squares, self.decay)
            torch._foreach_addcmul_(squares, step.grads, step.grads, value=1 - self.decay)
        roots = self._roots(state, step.params)
        if step.compiles(roots):
            step.along(native.kernels.rooted_drift, roots)
            return
        u = step.normal()
        torch._foreach_mul_(u, step.spread)
        torch._foreach_addcmul_(u, step.grads, roots, value=step.rate)
        torch._foreach_addcmul_(step.moved, u, roots)

    def move(self, state: State, params: list[Tensor], u: list[Tensor], moved: list[Tensor], scale: float) -> None:
        """u / sqrt(damping + sqrt V)."""
        torch._foreach_addcmul_(moved, u, self._roots(state, params), value=scale)

    def freeze(self) -> None:
        """V stays as it is."""

    def _square(self, known: dict[str, Any], p: Tensor, g: Tensor) -> Tensor:
        """V before this gradient, whose root is no longer known; the first g^2 is V itself, its average with itself."""
        known.pop("_root", None)
        if "square" not in known:
            known["square"] = torch.square(g, out=torch.empty_like(p))
        square: Tensor = known["square"]
        return square

    def _roots(self, state: State, params: list[Tensor]) -> list[Tensor]:
        """P = (damping + sqrt V)^(-1/2), made once for all the steps with this V."""
        unknown = [p for p in params if "_root" not in state[p]]
        if any("square" not in state[p] for p in unknown):
            raise InputError(
                "a parameter had its first gradient after the burn-in, so that RMSprop knows nothing of its scale:"
                " write a longer burn_in=, one that ends after all parameters have been trained on, or sample it"
                " with SGLD."
            )
        if unknown:
            squares = [state[p]["square"] for p in unknown]
            for p, root in zip(unknown, self._rooted(squares), strict=True):
                state[p]["_root"] = root
        return [state[p]["_root"] for p in params]

    def _rooted(self, squares: list[Tensor]) -> list[Tensor]:
        roots = [torch.empty_like(square) for square in squares]
        if native.alike(squares, roots):
            native.pass_along(native.kernels.root, (squares, roots), self.damping)
        else:
            for square, root in zip(squares, roots, strict=True):
                torch.sqrt(square, out=root).add_(self.damping).rsqrt_()
        return roots


class PSGLD(Langevin):
    """Langevin dynamics preconditioned by RMSprop.

    burn_in: the steps in which V adapts; then it is frozen and the chain samples. None never freezes it, as the paper.
    decay, damping: of V, and what is added to its root. A weight whose gradient is zero moves by 1/damping.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        num_data: int,
        temperature: float = 1.0,
        momentum: float = 0.0,
        burn_in: int | None = 1000,
        decay: float = 0.99,
        damping: float = 1e-5,
        seed: int | None = None,
    ) -> None:
        super().__init__(params, RMSprop(decay, damping), lr, num_data, temperature, momentum, burn_in, seed)
