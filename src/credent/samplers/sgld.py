"""Stochastic gradient Langevin dynamics: gradient descent with the noise that makes it sample.

    w <- w - (eps/2) grad U + sqrt(eps T) xi

Welling, Teh 2011; with momentum, Chen, Fox, Guestrin 2014. Where U = w^2 / 2 the chain's variance is T / (1 - eps/4).

>>> w = torch.nn.Parameter(torch.zeros(20_000))
>>> sampler = SGLD([w], lr=1.0, num_data=1, temperature=0.5, seed=0)
>>> for _ in range(20):
...     w.grad = w.detach().clone()
...     sampler.step()
>>> round(w.var().item() / (0.5 / (1 - 1 / 4)), 1)
1.0
"""

import torch  # noqa: F401  (the doctest's)

from credent.samplers.langevin import Identity, Langevin, Params


class SGLD(Langevin):
    """Langevin dynamics with no preconditioner.

    lr: eps; the gradient step is (eps/2) N times MAP's gradient.
    temperature: 1 samples the posterior, less concentrates it, 0 is gradient descent.
    momentum: the share of the velocity that a step keeps, with the noise that fits it.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        num_data: int,
        temperature: float = 1.0,
        momentum: float = 0.0,
        seed: int | None = None,
    ) -> None:
        super().__init__(params, Identity(), lr, num_data, temperature, momentum, None, seed)
