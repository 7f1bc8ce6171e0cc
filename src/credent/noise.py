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
from typing import Any

import torch
from torch import Tensor, nn

from credent.errors import CheckpointError
from credent.quick_normal import quick_normal_, suits

_ENOUGH = 1 << 11  # numbers; of fewer torch's own are as quick


class Noise(nn.Module):
    """An own `torch.Generator` whose state is saved with the module that holds it."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(fresh_seed() if seed is None else seed)
        self._first: Tensor | None = None
        self._pair: Tensor | None = None  # the generator's state before the pair that is half used

    def seed(self, seed: int) -> None:
        """Start over from this seed."""
        self._generator.manual_seed(seed)
        self._first = self._pair = None

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
        if out.numel() >= _ENOUGH and suits(out):
            return quick_normal_(out, generator)
        return out.normal_(generator=generator)

    def paired(self, draw: Callable[["Noise", Tensor], Tensor], like: Tensor) -> tuple[Tensor, int]:
        """What `draw(self, like)` takes from this stream with sign 1, and at the next call the same with sign -1.

        Each of the two has the law of the draw, where that is symmetric; together they cancel what is odd in the noise.
        """
        if self._first is not None and (self._first.dtype, self._first.device) != (like.dtype, like.device):
            self._first = self._pair = None  # the network was converted or moved between the halves
        if self._pair is None:
            self._pair = self.generator(like.device).get_state()
            self._first = draw(self, like)
            return self._first, 1
        if self._first is None:  # half used when it was saved: draw the first half again
            here = self._generator.get_state()
            self._generator.set_state(self._pair)
            self._first = draw(self, like)
            self._generator.set_state(here)
        second = self._first
        self._first = self._pair = None
        return second, -1

    def get_extra_state(self) -> dict[str, Any]:
        """Device and position of the stream, part of `state_dict`."""
        return {"device": self._generator.device.type, "state": self._generator.get_state(), "pair": self._pair}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue the stream that `get_extra_state` described."""
        if state.keys() != {"device", "state", "pair"}:
            raise CheckpointError(
                f"this stream of noise was saved by another version of credent (it holds {', '.join(sorted(state))}),"
                " which drew other numbers: it cannot be gone on with. Train anew, or load the posterior alone with"
                " credent.load."
            )
        self._generator = torch.Generator(state["device"])
        self._generator.set_state(state["state"].cpu())
        self._first, self._pair = None, None if state["pair"] is None else state["pair"].cpu()


def fresh_seed() -> int:
    """A seed from torch's global generator: different at every call, reproducible under `torch.manual_seed`."""
    return int(torch.randint(2**62, ()))
