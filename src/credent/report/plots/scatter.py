"""One dot a run: a score against one setting.

>>> scatter("Rates", [0.1, 0.2], [1.0, float("nan")], "lr", "NLL").drawing.count('data-part="value"')
1
"""

import numpy as np
from matplotlib.figure import Figure as Drawing
from numpy.typing import ArrayLike

from credent.report.canvas import draw, log_ticks, mark, nothing, plain_ticks
from credent.report.palette import light
from credent.report.parts import Figure
from credent.report.plots.vectors import vectors


def scatter(
    title: str,
    x: ArrayLike,
    y: ArrayLike,
    x_label: str,
    y_label: str,
    caption: str = "",
    *,
    log_x: bool = False,
    clip: tuple[float, float] = (0.0, 1.0),
    topic: str = "Results",
) -> Figure:
    """Dots at (x, y), each (n,); `clip` holds two quantiles of y between which the axis runs, with some room."""
    at_x, at_y = vectors("scatter", x=x, y=y)
    there = np.isfinite(at_x) & np.isfinite(at_y) & ((at_x > 0) | (not log_x))
    at_x, at_y = at_x[there], at_y[there]
    if not at_x.size:
        return Figure(title, nothing("values"), caption, topic)
    low, high = np.quantile(at_y, clip)
    seen = (at_y >= low) & (at_y <= high)

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        axes.margins(0.06)
        for each_x, each_y in zip(at_x[seen], at_y[seen], strict=True):
            (dot,) = axes.plot(each_x, each_y, "o", ms=7, mew=0, color=light("blue"), alpha=0.7)
            mark(dot, "value", f"{x_label} {each_x:.4g}: {y_label} {each_y:.4g}")
        axes.set(title=y_label, xlabel=x_label, xscale="log" if log_x else "linear")
        plain_ticks(axes)
        if log_x:
            log_ticks(axes.xaxis, at_x.min(), at_x.max())

    hidden = int((~seen).sum())
    told = f" {hidden} of {seen.size} values lie beyond the axis." if hidden else ""
    label = f"{y_label} against {x_label}, {int(seen.sum())} dots"
    return Figure(title, draw(paint, label), caption + told, topic)
