"""What is run at each scale, and the words for it.

At the first scales sigma = 4.5e-5 of the thesis, the path derivative of the KL has noise of standard deviation
1 / (sigma N) in the gradient of every mean: far more than the likelihood's gradient, until the scales have grown by e^5
or so, which takes Adam at 1e-3 five thousand steps. The thesis trained that long; where less is run the total
derivative is taken, which has none of that noise, unless the estimator itself is the question.
"""

import dataclasses
from typing import Any

from credent.papers.experiment import Scale
from credent.papers.images import Size
from credent.papers.tb.training import Training

NAMES = {"digits": "digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}
SIZES = {
    Scale.SMOKE: {"digits": Size(width=6, train=200, val=50, test=100, pool=1, epochs=2, batch=100, lr=1e-3)},
    Scale.CPU: {
        "mnist": Size(width=6, train=5000, val=1, test=1500, pool=1, epochs=6, batch=20, lr=1e-3),
        "cifar10": Size(width=6, train=10_000, val=1, test=1500, pool=1, epochs=6, batch=20, lr=1e-3),
    },
    Scale.PAPER: {
        "mnist": Size(width=6, train=0, val=0, test=0, pool=1, epochs=50, batch=100, lr=1e-3),
        "cifar10": Size(width=6, train=0, val=0, test=0, pool=1, epochs=50, batch=100, lr=1e-3),
    },
}
"""By data set. LeNet-5 has one width, six channels at first; `lr` is Adam's usual rate in the thesis."""
SEEDS = {Scale.SMOKE: (0,), Scale.CPU: (0, 1, 2), Scale.PAPER: (0, 1, 2, 3)}
ESTIMATORS = {Scale.SMOKE: "total", Scale.CPU: "total", Scale.PAPER: "path"}


def datasets(scale: Scale) -> tuple[str, ...]:
    """The thesis's two, the easier one first, or the built-in digits for a smoke run."""
    return tuple(SIZES[scale])


def needs(data: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these data sets that are read from files."""
    return tuple(name for name in data if name != "digits")


def cell(scale: Scale, data: str, seed: int, **fields: Any) -> Training:
    """One run; what is not said is as in the thesis, but for the estimator at smaller scales."""
    usual = {"size": SIZES[scale][data], "estimator": ESTIMATORS[scale]}
    return Training(data=data, seed=seed, **{**usual, **fields})


def longer(scale: Scale, data: str) -> Size:
    """As many steps in four times the epochs, of a quarter of the images; the thesis's own epochs are many enough."""
    size = SIZES[scale][data]
    return dataclasses.replace(size, train=size.train // 4, epochs=4 * size.epochs) if size.train else size


def described(scale: Scale) -> str:
    """The setting in words."""
    thesis = (
        "batches of 100 of all images, 50 epochs where it says how many, Adam at 0.001, first scales ln(1 + e^-10), one"
        " draw a step, logistic outputs"
    )
    held_out = "Held-out images are the official test images, which the thesis calls validation data."
    if scale is Scale.PAPER:
        return f"The thesis's: LeNet-5, {thesis}; but a tenth of the training images is left aside. {held_out}"
    sizes = "; ".join(
        f"{NAMES[data]}: {size.train:,} images, {size.epochs} epochs in batches of {size.batch}, {size.test:,} held out"
        for data, size in SIZES[scale].items()
    )
    most = max(-(-size.train // size.batch) * size.epochs for size in SIZES[scale].values())
    return (
        f"LeNet-5 at the thesis's full width, prior N(0, 2 / fan_in). {sizes}. Else as in the thesis, which has"
        f" {thesis}; only that the KL is differentiated in total, not by its path: with the {most:,} steps that there"
        " are here, a network that begins so narrow learns next to nothing by the path derivative (see figure 5.1)."
        f" Scales move by at most 0.001 a step in their logarithm, so by {most / 1000:.1f} here, against 25 in 50"
        f" epochs of the thesis: what its scales do late is not seen. {held_out}"
    )
