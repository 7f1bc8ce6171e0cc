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

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from credent.errors import CheckpointError
from credent.quick_normal import Stream, Words, quick_normal_, suits

_ENOUGH = 1 << 11  # numbers; of fewer torch's own are as quick


_Position = tuple[Tensor, Words | None]
"""Of the generator, and of the stream of quick numbers that was begun."""


class Noise(nn.Module):
    """An own `torch.Generator` and the stream of quick numbers that it began, saved with the module that holds them."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(fresh_seed() if seed is None else seed)
        self._stream: Stream | None = None
        self._first: Tensor | None = None
        self._pair: _Position | None = None  # before the pair that is half used

    def seed(self, seed: int) -> None:
        """Start over from this seed."""
        self._generator.manual_seed(seed)
        self._stream = self._first = self._pair = None

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
        if out.numel() >= _ENOUGH and suits(out):
            return quick_normal_(out, self.stream())
        return out.normal_(generator=self.generator(out.device))

    def stream(self) -> Stream:
        """The stream of quick numbers, which begins with 192 bits of the generator and goes on by itself."""
        if self._stream is None:
            self._stream = Stream.of(self.generator(torch.device("cpu")))
        return self._stream

    def paired(self, draw: Callable[["Noise", Tensor], Tensor], like: Tensor) -> tuple[Tensor, int]:
        """What `draw(self, like)` takes from this stream with sign 1, and at the next call the same with sign -1.

        Each of the two has the law of the draw, where that is symmetric; together they cancel what is odd in the noise.
        """
        if self._first is not None and (self._first.dtype, self._first.device) != (like.dtype, like.device):
            self._first = self._pair = None  # the network was converted or moved between the halves
        if self._pair is None:
            self.generator(like.device)  # may move to that device, from where the pair begins
            self._pair = self._position()
            self._first = draw(self, like)
            return self._first, 1
        if self._first is None:  # half used when it was saved: draw the first half again
            here = self._position()
            self._go_to(self._pair)
            self._first = draw(self, like)
            self._go_to(here)
        second = self._first
        self._first = self._pair = None
        return second, -1

    def get_extra_state(self) -> dict[str, Any]:
        """Device and position of the stream, part of `state_dict`."""
        pair = None if self._pair is None else _saved(self._pair)
        return {"device": self._generator.device.type, **_saved(self._position()), "pair": pair}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue the stream that `get_extra_state` described."""
        if state.keys() != {"device", "state", "words", "pair"}:
            raise CheckpointError(
                f"this stream of noise was saved by another version of credent (it holds {', '.join(sorted(state))}),"
                " which drew other numbers: it cannot be gone on with. Train anew, or load the posterior alone with"
                " credent.load."
            )
        self._generator = torch.Generator(state["device"])
        self._go_to(_loaded(state))
        self._first, self._pair = None, None if state["pair"] is None else _loaded(state["pair"])

    def _position(self) -> _Position:
        return self._generator.get_state(), None if self._stream is None else self._stream.words

    def _go_to(self, position: _Position) -> None:
        state, words = position
        self._generator.set_state(state)
        self._stream = None if words is None else Stream(words)


def _saved(position: _Position) -> dict[str, Any]:
    state, words = position
    return {"state": state, "words": words}


def _loaded(saved: Mapping[str, Any]) -> _Position:
    words = saved["words"]
    return saved["state"].cpu(), None if words is None else (words[0], words[1], words[2])  # JSON knows lists alone


def fresh_seed() -> int:
    """A seed from torch's global generator: different at every call, reproducible under `torch.manual_seed`."""
    return int(torch.randint(2**62, ()))
