"""Networks that are easily got wrong, each with inputs, and for some a law that their outputs obey at any weights.

A law is what must vanish, whatever the weights are: it shows in the outputs of a draw whether a tie or a padding is
still there.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

CLASSES = 7


@dataclass(frozen=True)
class Case:
    """A network, its inputs, and its law with the words for breaking it."""

    build: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    law: Callable[[Tensor], Tensor] | None = None
    broken: str = ""


class TiedWeights(nn.Module):
    """One matrix E embeds the symbols and scores them: outputs for all symbols are E E', which is symmetric."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.decoder = nn.Embedding(CLASSES, 4), nn.Linear(4, CLASSES, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """(n,) to (n, classes)."""
        return self.decoder(self.embedding(x))


class TiedModules(nn.Module):
    """One layer under two names: both halves of the outputs are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, CLASSES)
        self.second = self.first

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3) to (n, 2 classes)."""
        return torch.cat([self.first(x), self.second(x)], 1)


class Circular(nn.Module):
    """A convolution around a ring, averaged over pixels: shifting the image changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.Tanh())
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 2, 4, 4) to (n, classes)."""
        return self.head(self.body(x).mean((2, 3)))


class Attention(nn.Module):
    """Self-attention, averaged over the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 4, 8) to (n, classes)."""
        return self.head(self.attention(x, x, x)[0].mean(1))


class Symbols(nn.Module):
    """An embedding, LayerNorm, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(9, 6), nn.LayerNorm(6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3) to (n, classes)."""
        return self.head(self.norm(self.embedding(x)).mean(1))


class Recurrent(nn.Module):
    """An LSTM, read at its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 6, 3) to (n, classes)."""
        return self.head(self.lstm(x)[0][:, -1])


def _conv(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, CLASSES))


def _normal(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(CLASSES, *shape)


def _shifted() -> Tensor:
    x = torch.randn(4, 2, 4, 4)
    return torch.cat([x, x.roll((1, 2), (2, 3))])


CASES = {
    "tied weights": Case(TiedWeights, lambda: torch.arange(CLASSES), lambda f: f - f.T, "the tied matrix became two"),
    "tied modules": Case(
        TiedModules, _normal(3), lambda f: f[:, :CLASSES] - f[:, CLASSES:], "the layer became two, or was drawn twice"
    ),
    "BatchNorm": Case(
        lambda: _conv(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), width=4 * 4 * 4), _normal(2, 6, 6)
    ),
    "grouped convolution": Case(
        lambda: _conv(nn.Conv2d(4, 6, 3, groups=2), nn.Tanh(), width=6 * 3 * 3), _normal(4, 5, 5)
    ),
    "circular padding": Case(Circular, _shifted, lambda f: f[:4] - f[4:], "the padding is no longer circular"),
    "reflecting padding": Case(
        lambda: _conv(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Tanh(), width=3 * 16), _normal(2, 4, 4)
    ),
    "transposed convolution": Case(
        lambda: _conv(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), nn.Tanh(), width=6 * 6 * 6),
        _normal(4, 3, 3),
    ),
    "attention": Case(Attention, _normal(4, 8)),
    "embedding and LayerNorm": Case(Symbols, lambda: torch.randint(9, (CLASSES, 3))),
    "LSTM": Case(Recurrent, _normal(6, 3)),
    "dropout": Case(
        lambda: nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES)), _normal(3)
    ),
}
