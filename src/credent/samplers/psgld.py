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
        known = [(p, g) for p, g in zip(params, grads, strict=True) if "square" in state[p]]
        if known:
            squares, seen = [state[p]["square"] for p, _ in known], [g for _, g in known]
            torch._foreach_mul_(squares, self.decay)
            torch._foreach_addcmul_(squares, seen, seen, value=1 - self.decay)
        for p, g in zip(params, grads, strict=True):
            state[p].setdefault("square", g.square())
            state[p].pop("_gain", None)

    def drift(self, state: State, params: list[Tensor], grads: list[Tensor], moved: list[Tensor], rate: float) -> None:
        """g / (damping + sqrt V)."""
        self._prepare(state, params)
        torch._foreach_addcmul_(moved, grads, [state[p]["_gain"] for p in params], value=rate)

    def diffuse(self, state: State, params: list[Tensor], noise: list[Tensor]) -> None:
        """xi / sqrt(damping + sqrt V)."""
        self._prepare(state, params)
        torch._foreach_mul_(noise, [state[p]["_root"] for p in params])

    def freeze(self) -> None:
        """V stays as it is."""

    def _prepare(self, state: State, params: list[Tensor]) -> None:
        """G and its root, once for every V."""
        new = [p for p in params if "_gain" not in state[p]]
        if not new:
            return
        gains = torch._foreach_sqrt([state[p]["square"] for p in new])
        torch._foreach_add_(gains, self.damping)
        torch._foreach_reciprocal_(gains)
        for p, gain, root in zip(new, gains, torch._foreach_sqrt(gains), strict=True):
            state[p].update(_gain=gain, _root=root)


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
