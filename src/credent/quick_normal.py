"""Many standard normal numbers on a CPU, in a fifth of torch's time, which several threads share.

    e = (q_a + q_b) / sqrt 2,     e' = (q_a - q_b) / sqrt 2

q_0, ..., q_65535 are the quantiles of N(0, 1) at the middles of as many equal parts, scaled to variance one; a and b
are 16 random bits each. q_a alone has 65,536 values, up to 4.3, and kurtosis 2.9992; the sum of two has 2^31 values,
up to 6.1, and kurtosis 2.9996. Beyond 4, 4.5 and 5 it has 0.98, 0.94 and 0.83 of a normal law's numbers. Twenty
million are not told from that law by their moments, their tails or a Kolmogorov-Smirnov test.

The bits come from SFC64 [Doty-Humphrey 2010], which for every block of numbers starts anew, from three words of 64 bits
of which the last counts the blocks and the second the calls: so threads share the blocks, and numbers do not depend on
how many do.

Shapes: any; pairs are half a block apart.

>>> round(quantiles().square().sum().item())                       # 65536 / 2: a sum of two has variance one
32768
"""

from functools import cache

import torch
from torch import Tensor

from credent import native

BLOCK = 1 << 14  # numbers of one stream of bits at most: NORMALS of native/share.h


Words = tuple[int, int, int]


class Stream:
    """Three words of 64 bits, of which the second counts the calls."""

    def __init__(self, words: Words) -> None:
        self.words = words

    @classmethod
    def of(cls, generator: torch.Generator) -> "Stream":
        """192 bits of the generator, which cost more than a few thousand numbers."""
        drawn = torch.randint(-(2**63), 2**63 - 1, (3,), generator=generator, device=generator.device).tolist()
        a, b, c = (word % 2**64 for word in drawn)
        return cls((a, b, c))

    def call(self) -> tuple[int, int, int, int]:
        """What a compiled loop takes to draw normal numbers, others at every call."""
        a, b, c = self.words
        self.words = a, (b + 1) % 2**64, c
        return a, b, c, quantiles().data_ptr()


def suits(out: Tensor) -> bool:
    """Whether `out` can be filled this way."""
    return native.suits(out) and out.is_contiguous()


def quick_normal_(out: Tensor, stream: Stream) -> Tensor:
    """Standard normal numbers in the place of what `out`, which `suits`, holds."""
    assert native.kernels is not None
    native.kernels.normal(torch.get_num_threads(), out.data_ptr(), out.numel(), *stream.call())
    if not out.is_inference():
        torch.autograd.graph.increment_version(out)
    return out


@cache
def quantiles() -> Tensor:
    """q / sqrt 2, (65536,)."""
    with torch.inference_mode(False):  # it outlives the mode in which it is asked for first
        middles = torch.arange(1 << 16, dtype=torch.float64, device="cpu").add_(0.5).div_(1 << 16)
        q: Tensor = torch.special.ndtri(middles)
        return (q / (2 * q.square().mean()).sqrt()).float()
