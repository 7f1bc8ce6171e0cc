"""What a metric accepts: tensors that can mean what they claim, handed on as float64 on the CPU.

A metric is the last number before a decision, so a silent broadcast, a logit taken for a probability or a lost NaN is
worse here than anywhere. Every check of this room lives in this file.

Shapes: `probs` (n, C) with C >= 2, labels `y` (n,) of integers in 0..C-1.

>>> import torch
>>> probs, y = classified(torch.tensor([[0.25, 0.75]]), torch.tensor([1]))
>>> probs.dtype, y.dtype
(torch.float64, torch.int64)
>>> classified(torch.tensor([[2.0, -1.0]]), torch.tensor([1]))
Traceback (most recent call last):
credent.errors.InputError: probs holds -1, and ... write `logits.softmax(1)` for logits ...
"""

from torch import Tensor

from credent.errors import InputError

# Wide enough for an average of float32 softmaxes, narrow enough to catch logits and unnormalised weights.
SUM_TOLERANCE = 1e-3


def ordered(name: str, value: Tensor) -> Tensor:
    """`value` in float64, not empty and without NaN; infinities pass, since they can be compared."""
    if not isinstance(value, Tensor):
        raise InputError(
            f"{name} is a {type(value).__name__}, and metrics take tensors; write `torch.as_tensor({name})`."
        )
    if value.numel() == 0:
        raise InputError(
            f"{name} is empty, of shape {tuple(value.shape)}, and a mean over nothing has no value; "
            "pass at least one data point."
        )
    value = value.detach().cpu().double()
    bad = int(value.isnan().sum())
    if bad:
        raise InputError(
            f"{name} holds {bad} NaN of {value.numel()} values, and a score that skipped them would hide a failure; "
            f"look for their cause, or choose what to drop: `{name}[~{name}.isnan()]`."
        )
    return value


def finite(name: str, value: Tensor) -> Tensor:
    """`value` in float64, not empty, without NaN or infinity."""
    value = ordered(name, value)
    bad = int(value.isinf().sum())
    if bad:
        raise InputError(
            f"{name} holds {bad} infinite of {value.numel()} values, and distances to infinity say nothing; "
            f"find where they come from: `{name}.isinf().nonzero()`."
        )
    return value


def same_shape(**tensors: Tensor) -> None:
    """Refuse to broadcast: (n, 1) against (n,) would silently score n * n pairs."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InputError(
            f"shapes differ: {listed}; they are compared entry by entry and never broadcast. "
            "Write `.squeeze(1)` to drop a last axis of one, or `.expand_as(...)` to repeat on purpose."
        )


def vector(name: str, value: Tensor) -> None:
    """Refuse anything but one number per data point."""
    if value.dim() != 1:
        raise InputError(
            f"{name} has shape {tuple(value.shape)}, and one number per data point is needed, shape (n,); "
            f"write `{name}.flatten()` if every entry is a data point."
        )


def classified(probs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Class probabilities (n, C) in float64 and their labels (n,) in int64."""
    probs = distributions(probs)
    return probs, _labels(y, *probs.shape)


def distributions(probs: Tensor) -> Tensor:
    """Class probabilities (n, C) in float64."""
    probs = ordered("probs", probs)
    if probs.dim() != 2 or probs.shape[1] < 2:
        raise InputError(
            f"probs has shape {tuple(probs.shape)}, and one column per class is needed, shape (n, C) with C >= 2; "
            "write `torch.stack([1 - p, p], dim=1)` for the probabilities p (n,) of a binary classifier."
        )
    if float(probs.min()) < 0:
        raise InputError(
            f"probs holds {float(probs.min()):g}, and a probability is never negative; "
            "write `logits.softmax(1)` for logits or `log_probs.exp()` for log-probabilities."
        )
    sums = probs.sum(1)
    worst = int((sums - 1).abs().argmax())
    if not abs(float(sums[worst]) - 1) <= SUM_TOLERANCE:
        raise InputError(
            f"row {worst} of probs sums to {float(sums[worst]):g}, and probabilities of all classes sum to 1 "
            f"(within {SUM_TOLERANCE:g}); write `logits.softmax(1)` for logits, "
            "and `logits.float().softmax(1)` if half precision lost the sum."
        )
    return probs


def _labels(y: Tensor, n: int, classes: int) -> Tensor:
    ordered("y", y)
    if tuple(y.shape) != (n,):
        raise InputError(
            f"y has shape {tuple(y.shape)}, and one label per row of probs is needed, shape ({n},); "
            "write `y.squeeze(1)` for labels of shape (n, 1) or `y.argmax(1)` for one-hot rows."
        )
    if y.is_floating_point():
        raise InputError(f"y is {y.dtype}, and a label is the index of a class; write `y.long()`.")
    y = y.detach().cpu().long()
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= classes:
        raise InputError(
            f"y runs from {low} to {high}, and probs has columns for the classes 0 to {classes - 1}; "
            "drop rows that carry an ignore index, `probs[y >= 0], y[y >= 0]`, or write `y - y.min()` "
            "if counting starts at 1."
        )
    return y
