"""Short runs at many settings: what the optimiser study and the landscapes share.

Settings are drawn by `sweeps.plan`, so that more runs keep the ones there were. A run has succeeded if it was above
15 % of accuracy on held-out images after some epoch, the thesis's threshold; chance is 10 %.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from credent.papers.experiment import Results, Scale
from credent.papers.images import Size
from credent.papers.tb.settings import ESTIMATORS, NAMES, SIZES
from credent.papers.tb.training import Training
from credent.report import Figure, plots

THRESHOLD = 0.15
_IMAGES = {"mnist": 6000, "cifar10": 5000}  # at the cpu scale
_EPOCHS = {1: 1, 10: 2, 50: 3}  # at the cpu scale, by those of the thesis

Row = tuple[Training, Mapping[str, Any]]


def size(scale: Scale, data: str, epochs: int) -> Size:
    """Images and batches; `epochs` are those of the thesis, and fewer at the smaller scales."""
    whole = SIZES[scale][data]
    if scale is Scale.PAPER:
        return replace(whole, epochs=epochs)
    if scale is Scale.SMOKE:
        return replace(whole, epochs=1)
    return replace(whole, train=_IMAGES[data], test=1000, batch=100, epochs=_EPOCHS[epochs])


def run(scale: Scale, data: str, epochs: int, seed: int, fields: Mapping[str, Any]) -> Training:
    """A run of these fields, scored by one draw of the weights."""
    return Training(data, size(scale, data, epochs), seed, **{"estimator": ESTIMATORS[scale], "draws": 1, **fields})


def known(cells: Sequence[Training], results: Results) -> list[Row]:
    """The runs that ended with numbers, diverged ones among them."""
    return [(cell, results[cell]) for cell in cells if results[cell]]


def succeeded(result: Mapping[str, Any]) -> bool:
    """Whether it was ever better than the threshold."""
    return bool(max(result["accuracies"]) > THRESHOLD)


def finite(rows: Sequence[Row]) -> list[Row]:
    """The runs that did not diverge."""
    return [(cell, result) for cell, result in rows if not result["diverged"]]


def landscape(
    title: str,
    rows: Sequence[Row],
    at: Callable[[Training], tuple[float, float]],
    value: str,
    labels: tuple[str, str, str],
    caption: str,
    **options: Any,
) -> Figure:
    """One result over two fields; a diverged run is a cross."""
    x, y = zip(*(at(cell) for cell, _ in rows), strict=True) if rows else ((), ())
    values = [math.nan if result["diverged"] else result[value] for _, result in rows]
    return plots.landscape(title, x, y, values, *labels, caption, **options)


def described(scale: Scale, data: str, epochs: int) -> str:
    """How long a run is, and how long the thesis's."""
    held_out = "Accuracies and NLLs are of one draw of the weights on held-out images"
    if scale is Scale.PAPER:
        return f"LeNet-5 on {NAMES[data]} as in the thesis, {epochs} epochs. {held_out}."
    mine = size(scale, data, epochs)
    return (
        f"LeNet-5 on {mine.train:,} images of {NAMES[data]}, {mine.epochs} epoch{'s' if mine.epochs > 1 else ''} in"
        f" batches of {mine.batch}, the KL by its total derivative; the thesis has all images, {epochs}"
        f" epoch{'s' if epochs > 1 else ''} and the path derivative, which learns nothing in so few steps. With so much"
        f" less data the KL weighs the more. {held_out}, the latter {mine.test:,}."
    )
