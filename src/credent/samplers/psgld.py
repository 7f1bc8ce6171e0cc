"""Langevin dynamics with RMSprop's preconditioner: short steps where gradients are large, long ones where small.

    V <- decay V + (1 - decay) g^2,        G = diag(1 / (damping + sqrt V)),        P = sqrt G

g is the gradient of MAP's loss, in nats per datum, prior included (Li, Chen, Carlson, Carin 2016, leave the prior out
of V: a difference of order 1/N). V begins as the first g^2. While V adapts, G depends on w and the chain would need the
correction Gamma = div G, which the papers drop; once V is frozen there is none.

>>> w = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
>>> sampler = PSGLD([w], lr=0.2, num_data=10, temperature=0.0, damping=0.0)
>>> w.grad = torch.tensor([3.0, 0.003])
>>> sampler.step()                                 # (0.2 / 2) x 10 x g / |g|, whatever the scale of g
>>> w.detach()
tensor([0., 0.])
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from credent.errors import InputError
from credent.samplers.langevin import Langevin, Params, Preconditioner, State


@dataclass(frozen=True)
class RMSprop(Preconditioner):
    """G = 1 / (damping + sqrt V), elementwise, V the running mean of squared gradients."""

    decay: float = 0.99
    damping: float = 1e-5

    def __post_init__(self) -> None:
        if not (0 <= self.decay < 1 and self.damping >= 0):
            raise InputError(f"{self!r}: decay is a share in [0, 1), and damping is not negative.")

    def adapt(self, state: State, params: list[Tensor], grads: list[Tensor]) -> None:
        """V <- decay V + (1 - decay) g^2; the first g^2 is V itself."""
        new = [(p, g) for p, g in zip(params, grads, strict=True) if "square" not in state[p]]
        for p, g in new:
            state[p]["square"] = g.square()
        squares = [state[p]["square"] for p in params]
        torch._foreach_lerp_(squares, torch._foreach_mul(grads, grads), 1 - self.decay)

    def drift(self, state: State, params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        """g / (damping + sqrt V)."""
        return list(torch._foreach_div(grads, self._inverse(state, params)))

    def diffuse(self, state: State, params: list[Tensor], noise: list[Tensor]) -> None:
        """xi / sqrt(damping + sqrt V)."""
        torch._foreach_div_(noise, torch._foreach_sqrt(self._inverse(state, params)))

    def freeze(self) -> None:
        """V stays as it is."""

    def _inverse(self, state: State, params: list[Tensor]) -> list[Tensor]:
        inverse = torch._foreach_sqrt([state[p]["square"] for p in params])
        torch._foreach_add_(inverse, self.damping)
        return list(inverse)


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
