"""A stream of random numbers that belongs to one object and travels with its state.

Every object that draws owns a `Noise`. Unseeded, it takes its seed from torch's global generator when it is built, so
`torch.manual_seed(0)` before building makes a whole run reproducible; its position in the stream is part of the
`state_dict`, so a resumed run draws what the uninterrupted one would have drawn.

>>> a, b = Noise(seed=1), Noise(seed=2)
>>> b.load_state_dict(a.state_dict())
<All keys matched successfully>
>>> torch.equal(a.normal(torch.zeros(3)), b.normal(torch.zeros(3)))
True
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from credent.quick_normal import quick_normal_, suits

_ENOUGH = 1 << 12  # numbers; fewer are drawn as they are asked for
_POOL = 1 << 18  # numbers


@dataclass(frozen=True)
class Position:
    """Where a stream is.

    Its generator, and that as it was before it filled the pool that is in use; how many numbers of the pool are taken;
    and how many such numbers it drew before it had one.
    """

    state: Tensor
    before: Tensor | None
    taken: int
    drawn: int


class Noise(nn.Module):
    """An own `torch.Generator` whose state is saved with the module that holds it.

    Where many numbers are made faster than a few (`quick_normal`), draws of some thousands are taken from a pool, once
    as many have been drawn as it holds: most streams do not live so long.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(fresh_seed() if seed is None else seed)
        self._pool: Tensor | None = None
        self._before: Tensor | None = None
        self._taken = self._drawn = 0
        self._first: Tensor | None = None
        self._pair: Position | None = None  # where the stream was before the pair that is half used

    def __getstate__(self) -> dict[str, Any]:
        """Copies and files have no use for the pool, which can be filled again."""
        return {**self.__dict__, "_pool": None}

    def seed(self, seed: int) -> None:
        """Start over from this seed."""
        self._generator.manual_seed(seed)
        self._pool = self._before = self._first = self._pair = None
        self._drawn = 0

    def generator(self, device: torch.device) -> torch.Generator:
        """The generator for `device`; a stream that moves to another device goes on from a seed drawn from itself."""
        if self._generator.device.type != device.type:
            seed = torch.randint(2**62, (), generator=self._generator, device=self._generator.device)
            self._generator = torch.Generator(device).manual_seed(int(seed))
            self._pool = self._before = None
        return self._generator

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers of the shape, type and device of `like`."""
        return self.normal_(torch.empty_like(like))

    def normal_(self, out: Tensor) -> Tensor:
        """Standard normal numbers in the place of what `out` holds."""
        generator = self.generator(out.device)
        if not suits(out) or out.numel() < _ENOUGH:
            return out.normal_(generator=generator)
        if 2 * out.numel() > _POOL:
            return quick_normal_(out, generator)
        if self._drawn < _POOL:
            self._drawn += out.numel()
            return out.normal_(generator=generator)
        if self._before is None or self._taken + out.numel() > _POOL:
            self._before, self._pool, self._taken = generator.get_state(), None, 0
        if self._pool is None:
            self._pool = self._filled(self._before)
        begin, self._taken = self._taken, self._taken + out.numel()
        return out.copy_(self._pool[begin : self._taken].view(out.shape))

    def _filled(self, before: Tensor) -> Tensor:
        """The pool that a generator in this state fills; ours goes on from there, unless it is further already."""
        with torch.inference_mode(False):  # it outlives the mode in which it is asked for first
            generator = torch.Generator("cpu")
            generator.set_state(before)
            pool = quick_normal_(torch.empty(_POOL, device="cpu"), generator)
            if torch.equal(self._generator.get_state(), before):
                self._generator.set_state(generator.get_state())
        return pool

    def paired(self, draw: Callable[["Noise", Tensor], Tensor], like: Tensor) -> tuple[Tensor, int]:
        """What `draw(self, like)` takes from this stream with sign 1, and at the next call the same with sign -1.

        Each of the two has the law of the draw, where that is symmetric; together they cancel what is odd in the noise.
        """
        if self._first is not None and (self._first.dtype, self._first.device) != (like.dtype, like.device):
            self._first = self._pair = None  # the network was converted or moved between the halves
        if self._pair is None:
            self.generator(like.device)
            self._pair = self._position()
            self._first = draw(self, like)
            return self._first, 1
        if self._first is None:  # half used when it was saved: draw the first half again
            here = self._position()
            self._go(self._pair)
            self._first = draw(self, like)
            self._go(here)
        second = self._first
        self._first = self._pair = None
        return second, -1

    def _position(self) -> Position:
        return Position(self._generator.get_state(), self._before, self._taken, self._drawn)

    def _go(self, there: Position) -> None:
        self._generator.set_state(there.state.cpu())
        self._pool, self._before = None, None if there.before is None else there.before.cpu()
        self._taken, self._drawn = there.taken, there.drawn

    def get_extra_state(self) -> dict[str, Any]:
        """Device and position of the stream, part of `state_dict`."""
        pair = None if self._pair is None else vars(self._pair)
        return {"device": self._generator.device.type, **vars(self._position()), "pair": pair}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue the stream that `get_extra_state` described."""
        self._generator = torch.Generator(state["device"])
        self._go(Position(**{f.name: state[f.name] for f in fields(Position)}))
        self._first, self._pair = None, None if state["pair"] is None else Position(**state["pair"])


def fresh_seed() -> int:
    """A seed from torch's global generator: different at every call, reproducible under `torch.manual_seed`."""
    return int(torch.randint(2**62, ()))
