"""The numbers of credent/quick_normal.py, made slowly: numpy's SFC64, scipy's quantiles, float64."""

import math

import numpy as np
import torch
from scipy import special


def naive(n, words):
    """Block by block from numpy's SFC64, in float64."""
    q = special.ndtri((np.arange(65536) + 0.5) / 65536)
    q = q / q.std()
    expected = []
    for block, start in enumerate(range(0, n, 16384)):
        a, b, c = words
        bits = np.random.SFC64(0)
        bits.state = {
            "bit_generator": "SFC64",
            "state": {"state": np.array([a, b, (c + block) % 2**64, 1], dtype=np.uint64)},
            "has_uint32": 0,
            "uinteger": 0,
        }
        bits.random_raw(12)  # as its author starts it
        size = min(16384, n - start)
        half = (size + 1) // 2
        raw = [int(word) for word in bits.random_raw((half + 1) // 2)]
        sixteen = [word >> shift & 65535 for word in raw for shift in (0, 16, 32, 48)]
        pairs = [(q[i], q[j]) for i, j in zip(sixteen[:half], sixteen[half : 2 * half], strict=True)]
        both = [(i + j) / math.sqrt(2) for i, j in pairs] + [(i - j) / math.sqrt(2) for i, j in pairs]
        expected += both[:size]
    return torch.tensor(expected, dtype=torch.float64)
