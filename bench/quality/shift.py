"""Images that are worse than those of training, at one fixed strength each: turned, noisy, out of focus.

    rotation   by 20 degrees about the centre, bilinear, what comes in from outside is black
    noise      + 0.15 e, e ~ N(0, 1) for every pixel, cut to [0, 1]
    blur       a Gaussian of standard deviation 1 pixel, cut at 3; edges are mirrored

Shapes: x (n, channels, height, width), pixels in [0, 1].
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

_REACH = 3


def rotation(x: Tensor, degrees: float = 20.0) -> Tensor:
    """Turned counter-clockwise; the images are square."""
    angle = math.radians(degrees)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
    grid = functional.affine_grid(turn.expand(len(x), 2, 3).to(x), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def noise(x: Tensor, scale: float = 0.15, seed: int = 0) -> Tensor:
    """The same noise for everyone."""
    drawn = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    return (x + scale * drawn.to(x)).clamp(0, 1)


def blur(x: Tensor, scale: float = 1.0) -> Tensor:
    """Rows, then columns."""
    at = torch.arange(-_REACH, _REACH + 1, dtype=x.dtype)
    kernel = (-(at**2) / (2 * scale**2)).exp()
    kernel = (kernel / kernel.sum()).expand(x.shape[1], 1, 1, -1)
    padded = functional.pad(x, (_REACH, _REACH, _REACH, _REACH), mode="reflect")
    rows = functional.conv2d(padded, kernel, groups=x.shape[1])
    return functional.conv2d(rows, kernel.transpose(2, 3), groups=x.shape[1])


SHIFTS: dict[str, Callable[[Tensor], Tensor]] = {"rotation": rotation, "noise": noise, "blur": blur}
