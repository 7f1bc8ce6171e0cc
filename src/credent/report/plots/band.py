"""A one-dimensional regression: the mean, what more data would settle, and all that is uncertain.

    total^2 = epistemic^2 + noise^2,        bands at mean +- 2 standard deviations (95% if Gaussian)

>>> figure = predictive_band([0, 1], [0, 0], [0.1, 0.4], [0.3, 0.5], [0.2], [0.1])
>>> figure.drawing.count('data-part="mean"')
1
"""

import numpy as np
from matplotlib.figure import Figure as Drawing
from numpy.typing import ArrayLike

from credent.report.canvas import draw, legend, mark, nothing, plain_ticks
from credent.report.palette import light
from credent.report.parts import Figure
from credent.report.plots.vectors import vectors

POINTS = 1_000
TITLE, TOPIC = "Prediction and its uncertainty", "What it predicts"


def predictive_band(
    x: ArrayLike, mean: ArrayLike, epistemic: ArrayLike, total: ArrayLike, x_train: ArrayLike, y_train: ArrayLike
) -> Figure:
    """Mean line with +-2 `epistemic` and +-2 `total` (both standard deviations), over the training points."""
    grid = np.stack(vectors("predictive_band", x=x, mean=mean, epistemic=epistemic, total=total))
    grid = grid[:, np.argsort(grid[0], kind="stable")]
    points = np.stack(vectors("predictive_band", x_train=x_train, y_train=y_train))
    points = points[:, np.isfinite(points).all(0)]
    points = points[:, :: max(1, -(-points.shape[1] // POINTS))]
    caption = (
        "The line is the network's best guess, the dots are examples it learned from. The inner band is doubt that "
        "more data would remove: it should be narrow among the dots and open up away from them. The outer band adds "
        "the noise that no data removes; about 95 of 100 new points should fall inside it."
    )
    if not np.isfinite(grid).all(0).any():
        return Figure(TITLE, nothing("predictions"), caption, TOPIC)

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        at, middle, narrow, broad = grid
        blue = light("blue")
        outer = axes.fill_between(
            at, middle - 2 * broad, middle + 2 * broad, color=blue, alpha=0.14, linewidth=0, label="all doubt"
        )
        inner = axes.fill_between(
            at, middle - 2 * narrow, middle + 2 * narrow, color=blue, alpha=0.3, linewidth=0, label="curable doubt"
        )
        (line,) = axes.plot(at, middle, color=blue, label="best guess")
        (dots,) = axes.plot(*points, "o", ms=3.6, color=light("orange"), markeredgewidth=0, label="training data")
        for artist, part in ((outer, "total"), (inner, "epistemic"), (line, "mean"), (dots, "train")):
            mark(artist, part)
        axes.set_xlabel("input")
        axes.set_title("Output")
        plain_ticks(axes)
        legend(figure, axes)

    doubt = f"doubt (2 sd) between {2 * np.nanmin(grid[2]):.3g} and {2 * np.nanmax(grid[2]):.3g}"
    label = f"Predicted mean over inputs from {np.nanmin(grid[0]):.3g} to {np.nanmax(grid[0]):.3g}, {doubt}"
    return Figure(TITLE, draw(paint, label, 300), caption, TOPIC)
