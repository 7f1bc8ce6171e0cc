"""A stream of random numbers that belongs to one object and travels with its state.

Every object that draws owns a `Noise`. Unseeded, it takes its seed from torch's global generator when it is built, so
`torch.manual_seed(0)` before building makes a whole run reproducible; its position in the stream is part of the
`state_dict`, so a resumed run draws what the uninterrupted one would have drawn.

>>> a, b = Noise(seed=1), Noise(seed=2)
>>> b.load_state_dict(a.state_dict())
<All keys matched successfully>
>>> torch.equal(a.normal(torch.zeros(3)), b.normal(torch.zeros(3)))
True

Torch draws normal numbers on one core, which for a layer of some size takes as long as its products. So a long vector
has four generators, one for each quarter of it, and threads share them: the numbers do not depend on how many.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from credent.errors import CheckpointError

_STREAMS = 4
_LONG = 2**16  # numbers; for fewer, waking a thread takes longer than drawing them
_APART = 0x9E3779B9  # between the seeds of a vector's quarters: of a seed torch takes the lower 32 bits


class Noise(nn.Module):
    """An own `torch.Generator` whose state is saved with the module that holds it."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._generator = torch.Generator()
        self._beside = [torch.Generator() for _ in range(_STREAMS - 1)]  # of a long vector's other quarters
        self._first: Tensor | None = None
        self._before: list[Tensor] | None = None  # where the streams were before the pair that is half used
        self.seed(fresh_seed() if seed is None else seed)

    def seed(self, seed: int) -> None:
        """Start over from this seed."""
        self._generator.manual_seed(seed)
        for quarter, generator in enumerate(self._beside, 1):
            generator.manual_seed((seed + quarter * _APART) % 2**32)
        self._first = self._before = None

    def generator(self, device: torch.device) -> torch.Generator:
        """The generator for `device`; a stream that moves to another device goes on from a seed drawn from itself."""
        if self._generator.device.type != device.type:
            seed = torch.randint(2**62, (), generator=self._generator, device=self._generator.device)
            self._generator = torch.Generator(device).manual_seed(int(seed))
        return self._generator

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers of the shape, type and device of `like`."""
        return self.normal_(torch.empty_like(like))

    def normal_(self, out: Tensor) -> Tensor:
        """Standard normal numbers in the place of what `out` holds."""
        generator = self.generator(out.device)
        if out.device.type != "cpu" or out.numel() < _LONG or not out.is_contiguous():
            return out.normal_(generator=generator)
        _fill(out.detach().view(-1).chunk(_STREAMS), [generator, *self._beside])
        return out

    def paired(self, draw: Callable[["Noise", Tensor], Tensor], like: Tensor) -> tuple[Tensor, int]:
        """What `draw(self, like)` takes from this stream with sign 1, and at the next call the same with sign -1.

        Each of the two has the law of the draw, where that is symmetric; together they cancel what is odd in the noise.
        """
        if self._first is not None and (self._first.dtype, self._first.device) != (like.dtype, like.device):
            self._first = self._before = None  # the network was converted or moved between the halves
        if self._before is None:
            self.generator(like.device)
            self._before = self._position()
            self._first = draw(self, like)
            return self._first, 1
        if self._first is None:  # half used when it was saved: draw the first half again
            here = self._position()
            self._go_to(self._before)
            self._first = draw(self, like)
            self._go_to(here)
        second = self._first
        self._first = self._before = None
        return second, -1

    def get_extra_state(self) -> dict[str, Any]:
        """Device and position of the stream, part of `state_dict`."""
        return {"device": self._generator.device.type, "state": self._position(), "before": self._before}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue the stream that `get_extra_state` described."""
        if isinstance(state["state"], Tensor):
            raise CheckpointError("this was saved by an earlier version, whose noise had one stream: begin anew.")
        self._generator = torch.Generator(state["device"])
        self._go_to(state["state"])
        self._first, self._before = None, state["before"]

    def _position(self) -> list[Tensor]:
        return [generator.get_state() for generator in (self._generator, *self._beside)]

    def _go_to(self, position: list[Tensor]) -> None:
        for generator, state in zip((self._generator, *self._beside), position, strict=True):
            generator.set_state(state.cpu())


def fresh_seed() -> int:
    """A seed from torch's global generator: different at every call, reproducible under `torch.manual_seed`."""
    return int(torch.randint(2**62, ()))


def _fill(parts: Sequence[Tensor], generators: Sequence[torch.Generator]) -> None:
    """Standard normal numbers in each part from its own generator, in as many threads as torch computes with."""
    threads = min(torch.get_num_threads(), len(parts))
    shares = [list(zip(parts, generators, strict=True))[first::threads] for first in range(threads)]
    others = [_threads(os.getpid()).submit(_fill_share, share) for share in shares[1:]]
    _fill_share(shares[0])
    for other in others:
        other.result()


def _fill_share(share: Sequence[tuple[Tensor, torch.Generator]]) -> None:
    with torch.inference_mode(share[0][0].is_inference()):  # a thread has a mode of its own
        for part, generator in share:
            part.normal_(generator=generator)


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Those of this process: a fork has none of its parent's."""
    return ThreadPoolExecutor(_STREAMS - 1, f"credent-noise-{process}")
