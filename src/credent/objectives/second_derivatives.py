"""BatchNorm and softplus with second derivatives that take few passes over memory.

With r = (var x + eps)^(-1/2), z = (x - mean x) r, all statistics those of one channel over M numbers, and
P(u) = u - mean(u) - z mean(u z), the backward pass of BatchNorm, y = w z + b, takes g to

    by x:  w r P(g),          by w:  sum g z,          by b:  sum g.

Let u, a, c be the cotangents of these three, and A = a r - w r^2 mean(u z), B = -w r^2 mean(g z). Then

    by g:  w r P(u) + a z + c
    by x:  A P(g) + B P(u) - w r^2 mean(u P(g)) z
    by w:  r sum u P(g),      sum u P(g) = sum u g - M mean(u) mean(g) - M mean(u z) mean(g z).

Both images are sums of g, u and x with one number per channel each: two passes for the sums and five for the images,
where autograd's own formula takes about thirty. Softplus y = log(1 + e^(k x)) / k has y' = s = sigmoid(k x), so its
backward pass g s has the cotangents u s and k u s (g - g s), all but one product of which is at hand.

`fast_second_derivatives()` puts them in the place of `functional.batch_norm` and `functional.softplus`, which torch's
modules call. They have no third derivative.

>>> x = torch.tensor([[1.0], [3.0]], requires_grad=True)
>>> with fast_second_derivatives():
...     functional.batch_norm(x, None, None, training=True, eps=0.0).flatten()
tensor([-1.,  1.], grad_fn=<ViewBackward0>)
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_batch_norm_backward = torch.ops.aten.native_batch_norm_backward
_softplus_backward = torch.ops.aten.softplus_backward


class fast_second_derivatives(TorchFunctionMode):
    """Within: BatchNorm and softplus are the functions below; running statistics follow the batches as ever."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _FAST.get(func, func)(*args, **(kwargs or {}))


def _batch_norm(
    input: Tensor,  # the names are functional.batch_norm's
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """torch's own where there is nothing to gain: fixed statistics, coarse types; and one number, for its error."""
    if training and input.dtype in (torch.float32, torch.float64) and input.numel() > input.shape[1]:
        y: Tensor = _BatchNorm.apply(input, weight, bias, running_mean, running_var, momentum, eps)  # type: ignore[no-untyped-call]
        return y
    return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


class _BatchNorm(torch.autograd.Function):
    """y = w z + b; x (N, C, ...), w and b (C,) or None."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        y, mean, r = torch.native_batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)
        ctx.save_for_backward(x, weight, mean, r)
        ctx.eps, ctx.has_bias = eps, bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, r = ctx.saved_tensors
        by_x, by_weight, by_bias = _BatchNormBackward.apply(g, x, weight, mean, r, ctx.eps)  # type: ignore[no-untyped-call]
        return by_x, None if weight is None else by_weight, by_bias if ctx.has_bias else None, None, None, None, None


class _BatchNormBackward(torch.autograd.Function):
    """The backward pass as a function of g, x and w; `mean` and r are those of x, whatever their gradient."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, r: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        mask = [True, True, True]
        by_x, by_weight, by_bias = _batch_norm_backward(g, x, weight, None, None, mean, r, True, eps, mask)
        ctx.save_for_backward(g, x, weight, mean, r, by_weight, by_bias)
        return by_x, by_weight, by_bias

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, u: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor | None, ...]:
        g, x, weight, mean, r, sum_gz, sum_g = ctx.saved_tensors
        size, wr = x.numel() / len(mean), r if weight is None else weight * r
        sum_uz, sum_u = _sums(u, x, mean, r)
        sum_ug, _ = _sums(u, g, torch.zeros_like(mean), torch.ones_like(r))
        u_along_g = sum_ug - (sum_u * sum_g + sum_uz * sum_gz) / size
        by_weight = None if weight is None else r * u_along_g
        # by g = wr u + of_x x + constant
        of_x = (a - wr * sum_uz / size) * r
        by_g = _combined(c - wr * sum_u / size - of_x * mean, (u, wr), (x, of_x))
        # by x = of_g g + of_u u + of_x x + constant
        of_g, of_u = r * (a - wr * sum_uz / size), -r * wr * sum_gz / size
        of_x = -r * (r * wr * u_along_g + of_g * sum_gz + of_u * sum_uz) / size
        by_x = _combined(-(of_g * sum_g + of_u * sum_u) / size - of_x * mean, (g, of_g), (u, of_u), (x, of_x))
        return by_g, by_x, by_weight, None, None, None


def _sums(u: Tensor, x: Tensor, mean: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """sum u (x - mean) r and sum u of each channel, (C,): what BatchNorm's backward pass begins with."""
    _, along, alone = _batch_norm_backward(u, x, None, None, None, mean, r, True, 0.0, [False, True, True])
    return along, alone


def _combined(constant: Tensor, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """constant + sum of tensor * coefficient, with one number (C,) per channel."""
    shape = [1, -1, *[1] * (terms[0][0].ndim - 2)]
    total = torch.addcmul(constant.view(shape), terms[0][0], terms[0][1].view(shape))
    for tensor, coefficient in terms[1:]:
        total.addcmul_(tensor, coefficient.view(shape))
    return total


def _softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    y: Tensor = _Softplus.apply(input, beta, threshold)  # type: ignore[no-untyped-call]
    return y


class _Softplus(torch.autograd.Function):
    """y = log(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, beta: float, threshold: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.options = beta, threshold
        return functional.softplus(x, beta, threshold)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        return _SoftplusBackward.apply(g, x, *ctx.options), None, None  # type: ignore[no-untyped-call]


class _SoftplusBackward(torch.autograd.Function):
    """g s as a function of g and x."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
        gs: Tensor = _softplus_backward(g, x, beta, threshold)
        ctx.save_for_backward(g, x, gs)
        ctx.options = beta, threshold
        return gs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor | None, ...]:
        g, x, gs = ctx.saved_tensors
        us = _softplus_backward(u, x, *ctx.options)
        by_x = torch.sub(g, gs).mul_(us)
        return us, by_x if ctx.options[0] == 1 else by_x.mul_(ctx.options[0]), None, None


_FAST = {functional.batch_norm: _batch_norm, functional.softplus: _softplus}
