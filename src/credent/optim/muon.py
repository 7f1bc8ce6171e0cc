"""Muon: momentum whose directions all have the same length; for matrices, with Adam beside it for all else.

    M <- mu M + (1 - mu) G,        U = mu M + (1 - mu) G,        W <- W - 0.2 sqrt(max(m, n)) lr  P(U)

    P(U) = (U U^T)^(-1/2) U        the nearest matrix with orthonormal rows (or columns, where these are fewer)

A gradient of a layer is dominated by few directions, and the ones it hardly shows are learnt last. P gives all singular
values the same size, so that every direction moves as far as the strongest. The factor makes the entries of a step as
large as Adam's are on average, so that `lr` is a rate of Adam's. Convolutions are matrices of their output channels.

P comes from a few products instead of an SVD, and most of these are of the smaller side alone: with R = U U^T / s and
odd polynomials x q_k(x^2) that take singular values towards 1,

    Q <- q_k(R) Q,      R <- q_k(R) R q_k(R),      q_k(R) = a I + b R + c R^2,          P(U) ~ Q U / sqrt(s)

s = |U U^T|_F bounds the largest eigenvalue. Four steps bring singular values from a fiftieth of the largest on to
between 0.6 and 1.3, which serves as well as 1. [Jordan et al. 2024; of its size, Liu et al. 2025]

>>> weight = torch.nn.Parameter(torch.zeros(2, 2))
>>> optimizer = Muon([weight], lr=1.0)
>>> weight.grad = torch.diag(torch.tensor([3.0, 1.0]))
>>> optimizer.step()
>>> [round(w, 2) for w in weight.diagonal().tolist()]                  # both near 0.2 sqrt(2), whatever the gradient is
[-0.31, -0.2]
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from credent.errors import InputError
from credent.objectives.objective import Objective
from credent.optim.together import Together

_QUINTIC = (3.4445, -4.7750, 2.0315)  # a, b, c of Jordan et al.: the steepest at 0 that stays near 1
_STEPS = 4
_AS_ADAM = 0.2  # root mean square of Adam's steps over its rate, in the middle of training


def orthogonal(matrix: Tensor) -> Tensor:
    """P, nearly: the matrix (m, n) with its singular values taken to between 0.6 and 1.3."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = wide @ wide.T
    size = gram.norm().clamp_min(torch.finfo(gram.dtype).tiny)
    gram /= size
    whole = q = _factor(gram)
    for _ in range(_STEPS - 1):
        gram = q @ gram @ q
        q = _factor(gram)
        whole = q @ whole
    found: Tensor = (whole / size.sqrt()) @ wide
    return found if wide is matrix else found.T


def _factor(gram: Tensor) -> Tensor:
    """q(R)."""
    a, b, c = _QUINTIC
    q = torch.addmm(gram, gram, gram, beta=b, alpha=c)
    q.diagonal().add_(a)
    return q


class Muon(Optimizer):
    """For parameters of two and more dimensions; `Muon.beside_adam(bnn, lr=...)` takes all of them."""

    def __init__(
        self, params: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float = 6e-3, momentum: float = 0.95
    ) -> None:
        if not (lr > 0 and 0 <= momentum < 1):
            raise InputError(
                f"Muon(lr={lr}, momentum={momentum}): a positive rate, such as 6e-3, and momentum below 1."
            )
        super().__init__(params, {"lr": lr, "momentum": momentum})
        if wrong := [group["lr"] for group in self.param_groups if not group["lr"] > 0]:
            raise InputError(f"Muon: a group's lr={wrong[0]} is no positive rate, such as 6e-3.")
        if small := [tuple(p.shape) for group in self.param_groups for p in group["params"] if p.ndim < 2]:
            raise InputError(
                f"Muon moves matrices, and a parameter of shape {small[0]} is none: Muon.beside_adam(bnn, lr=...)"
                " gives what is not a matrix to Adam."
            )

    @staticmethod
    def beside_adam(
        objective: Objective,
        lr: float = 6e-3,
        scale_lr: float | None = None,
        *,
        ratio: float | None = None,
        momentum: float = 0.95,
    ) -> Together:
        """Muon for an objective's matrices; Adam for its vectors, scales and embeddings, whose rows are vectors.

        The rates are those of `objective.param_groups`.
        """
        if not isinstance(objective, Objective):
            raise InputError(
                f"Muon.beside_adam takes the objective, such as VI or MAP, and here is a {type(objective).__name__}."
            )
        looked_up = {
            id(each.weight) for each in objective.modules() if isinstance(each, nn.Embedding | nn.EmbeddingBag)
        }
        matrices, others = [], []
        for group in objective.param_groups(lr, scale_lr, ratio=ratio):
            mine = [p for p in group["params"] if group["name"] != "scales" and p.ndim >= 2 and id(p) not in looked_up]
            known = {id(p) for p in mine}
            matrices.append({**group, "params": mine})
            others.append({**group, "params": [p for p in group["params"] if id(p) not in known]})
        parts: list[Optimizer] = []
        if any(group["params"] for group in matrices):
            parts.append(Muon([group for group in matrices if group["params"]], momentum=momentum))
        if any(group["params"] for group in others):
            parts.append(Adam([group for group in others if group["params"]], fused=True))
        return Together(*parts)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take in the gradients, and move."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads, mu = [p.grad for p in params], group["momentum"]
            held = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in params]
            torch._foreach_lerp_(held, grads, 1 - mu)
            ahead = torch._foreach_lerp(grads, held, mu)
            for p, each in zip(params, ahead, strict=True):
                flat = each.reshape(len(each), -1)
                p.add_(orthogonal(flat).reshape(p.shape), alpha=-_AS_ADAM * math.sqrt(max(flat.shape)) * group["lr"])
        return loss
