"""What the race runs at each scale, and the pairs of settings that everyone tries.

    trials   (rate_1, knob_2), (rate_2, knob_4), (rate_3, knob_1), (rate_4, knob_3)

Every rate once and every knob once, in the same order for everyone: a Latin square's diagonal and not a grid of 16.

>>> trials((1, 2, 3, 4), ("a", "b", "c", "d"))
((1, 'b'), (2, 'd'), (3, 'a'), (4, 'c'))
"""

from dataclasses import dataclass, field
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

_PAIRING = (1, 3, 0, 2)
TRIALS = len(_PAIRING)
TRIAL_SEED = 0


@dataclass(frozen=True)
class Size:
    """How much of a data set is used, for how long, and what predictions are made of."""

    train: int
    """Training images, 0 for all."""
    val: int
    """Validation images, on which settings are chosen."""
    test: int
    """Test images, 0 for all."""
    strange: int
    """Images of each other data set and of each shift."""
    epochs: int
    batch: int
    draws: int
    """Draws of the weights in a prediction."""


@dataclass(frozen=True)
class Scale:
    """Sizes and methods by data set; None is every method. Seeds are those of the chosen settings' runs."""

    sizes: dict[str, Size]
    methods: dict[str, tuple[str, ...] | None]
    seeds: tuple[int, ...]
    close: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Methods whose order these seeds leave open, by data set."""
    more: tuple[int, ...] = ()
    """Further seeds, for these."""
    turns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Methods that are tested on every image, by data set."""
    parts: int = 6
    """Of all images, for them: each about as large as the test set."""

    def seeds_of(self, data: str, method: str) -> tuple[int, ...]:
        """Of a method's runs on a data set."""
        return self.seeds + (self.more if method in self.close.get(data, ()) else ())


_FEW = (
    *("map", "vi", "vi_default", "vl", "psgld", "ir"),
    *("ensemble", "dropout", "ivon", "laplace_last", "laplace_grid", "bayesian_torch_mended"),
)
_TURNS = (
    *("map", "vi", "vi_default", "map_calibrated"),
    *("map_muon", "map_muon_calibrated", "map_muon_two", "map_muon_two_calibrated"),
    *("dropout_muon", "ensemble", "dropout", "ivon", "laplace_last", "laplace_grid", "pyro", "posteriors_sghmc"),
    *("bayesian_torch", "bayesian_torch_mended", "blitz_mended", "torchbnn_mended"),
    *("torch_uncertainty", "torch_uncertainty_mended"),
)

SCALES = {
    "smoke": Scale(
        {"fashion_mnist": Size(train=300, val=200, test=200, strange=100, epochs=2, batch=50, draws=2)},
        {"fashion_mnist": None},
        seeds=(1, 2),
        turns={"fashion_mnist": ("map_muon_two_calibrated", "dropout")},
        parts=2,
    ),
    "cpu": Scale(
        {
            "fashion_mnist": Size(train=0, val=5000, test=0, strange=1000, epochs=10, batch=128, draws=10),
            "mnist": Size(train=5000, val=3000, test=0, strange=1000, epochs=10, batch=100, draws=10),
            "cifar10": Size(train=5000, val=3000, test=0, strange=1000, epochs=10, batch=100, draws=10),
        },
        {"fashion_mnist": None, "mnist": _FEW, "cifar10": _FEW},
        seeds=(1, 2, 3),
        close={
            "fashion_mnist": (
                *("map_muon", "map_muon_calibrated", "map_muon_two"),
                *("map_muon_two_calibrated", "vi_default", "dropout_averaged", "dropout_muon", "ensemble", "dropout"),
                *("laplace_last", "laplace_grid", "bayesian_torch"),
            )
        },
        more=(4, 5, 6, 7, 8, 9, 10),
        turns={"fashion_mnist": _TURNS},
    ),
    "full": Scale(
        {
            name: Size(train=0, val=5000, test=0, strange=10_000, epochs=20, batch=128, draws=32)
            for name in ("fashion_mnist", "mnist", "cifar10")
        },
        dict.fromkeys(("fashion_mnist", "mnist", "cifar10")),
        seeds=(1, 2, 3, 4, 5),
    ),
}

NAMES = {"fashion_mnist": "Fashion-MNIST", "mnist": "MNIST", "cifar10": "CIFAR-10"}
STRANGERS = {"fashion_mnist": "mnist", "mnist": "fashion_mnist", "cifar10": "svhn"}
"""The other data set whose images should be met with doubt."""


def trials(rates: tuple[A, ...], knobs: tuple[B, ...]) -> tuple[tuple[A, B], ...]:
    """The pairs that are tried."""
    return tuple((rate, knobs[place]) for rate, place in zip(rates, _PAIRING, strict=True))
