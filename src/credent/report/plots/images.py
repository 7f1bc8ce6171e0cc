"""A grid of small images with what the network thinks of each: usually those it is least sure about.

Shapes: `images` (n, height, width) or (n, height, width, 3), bytes or floats; `probs` (n, classes); `labels` (n,).
Floats outside [0, 1] are stretched together so that the least is black and the greatest white.

>>> import numpy as np
>>> figure = image_grid(np.zeros((1, 2, 2)), [[0.3, 0.7]], [0])
>>> "truth: 0" in figure.drawing, figure.drawing.count("data:image/png;base64,")
(True, 1)
"""

import base64
import io
from collections.abc import Sequence
from typing import Any

import matplotlib.image
import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from credent.errors import InputError
from credent.report.canvas import nothing
from credent.report.parts import Figure
from credent.report.plots.vectors import share

SHOWN = 3
_BAR = Markup(
    '<li{kind}><span class="name">{name}</span><span class="track"><span style="width: {width:.1f}%"></span></span>'
    '<span class="number">{text}</span></li>'
)
_TILE = Markup(
    '<li class="tile"><img alt="{alt}" src="data:image/png;base64,{png}" width="{width}" height="{height}">'
    '<p class="truth">truth: {truth} <span class="{verdict}">{verdict}</span></p><ol class="bars">{bars}</ol></li>'
)


def image_grid(
    images: ArrayLike, probs: ArrayLike, labels: ArrayLike, class_names: Sequence[str] | None = None
) -> Figure:
    """Each image with its likeliest `SHOWN` classes as bars, its true label, and whether the guess was right."""
    pixels, chances, truths = _pixels(images), np.asarray(probs, dtype=np.float64), np.asarray(labels)
    if chances.ndim != 2 or not len(pixels) == len(chances) == len(truths):
        raise InputError(
            f"image_grid: {len(pixels)} images, probs of shape {chances.shape} and {truths.size} labels do not belong "
            "together; pass images[k], probs[k], labels[k] for the same choice k, with one row of probs an image."
        )
    names = list(class_names) if class_names is not None else [str(c) for c in range(chances.shape[1])]
    if len(names) != chances.shape[1] or not all(0 <= truth < len(names) for truth in truths.tolist()):
        raise InputError(
            f"image_grid: {chances.shape[1]} probabilities an image, {len(names)} class names and labels "
            f"{sorted(set(truths.tolist()))} do not agree; labels count from 0, and every class needs one name."
        )
    tiles = [_tile(*each, names) for each in zip(pixels, chances, truths.tolist(), strict=True)]
    return Figure(
        "The inputs it is least sure about",
        Markup('<ul class="tiles">{}</ul>').format(Markup().join(tiles)) if tiles else nothing("images"),
        "Each image with the answers the network finds likeliest, and the truth. Good doubt is doubt a person would "
        "share: smudged, cut-off or ambiguous inputs. A clear image here, or a wrong answer given with a long bar, is "
        "worth a closer look.",
        "Does it know what it does not know?",
        wide=True,
    )


def _tile(image: NDArray[Any], chances: NDArray[np.float64], truth: int, names: list[str]) -> Markup:
    order = [int(c) for c in np.argsort(-chances, kind="stable")[:SHOWN] if np.isfinite(chances[c])]
    kinds = {True: Markup(' class="true"'), False: ""}
    bars = Markup().join(
        _BAR.format(kind=kinds[c == truth], name=names[c], width=100 * chances[c], text=share(chances[c]))
        for c in order
    )
    verdict = "unknown" if not order else "right" if order[0] == truth else "wrong"
    guess = f"{names[order[0]]} ({share(chances[order[0]])})" if order else "nothing"
    height, width = image.shape[:2]
    alt = f"An input of class {names[truth]}; the network guesses {guess}"
    png = _png(image)
    return _TILE.format(alt=alt, png=png, width=width, height=height, truth=names[truth], verdict=verdict, bars=bars)


def _pixels(images: ArrayLike) -> NDArray[Any]:
    """Images as bytes, or floats in [0, 1], with the colours last."""
    array = np.asarray(images)
    array = array[..., 0] if array.ndim == 4 and array.shape[3] == 1 else array
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] != 3):
        raise InputError(
            f"image_grid: images of shape {array.shape} are neither (n, height, width) nor (n, height, width, 3); for "
            "PyTorch's (n, channels, height, width) write images.permute(0, 2, 3, 1)."
        )
    if array.dtype == np.uint8 or not array.size:
        return array
    array = np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = array.min(), array.max()
    if low >= 0 and high <= 1:
        return array
    return np.asarray((array - low) / (high - low or 1.0))


def _png(image: NDArray[Any]) -> str:
    buffer = io.BytesIO()
    top = 255 if image.dtype == np.uint8 else 1.0
    matplotlib.image.imsave(buffer, image, vmin=0, vmax=top, cmap="gray", format="png", metadata={"Software": ""})
    return base64.b64encode(buffer.getvalue()).decode("ascii")
