"""A learning-rate range test: the loss along a rate that climbs, and the rates that were read from it.

Shapes: rates, losses and smoothed (t,).

>>> figure = range_curve("means", [1e-3, 1e-2, 1e-1], [2.0, 1.0, 9.0], [2.0, 1.5, 2.0], suggestion=1e-2, limit=None)
>>> [figure.drawing.count(f'data-part="{part}"') for part in ("losses", "smoothed", "suggestion", "limit")]
[1, 1, 1, 0]
"""

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from credent.report.canvas import draw, legend, legend_height, mark, nothing, plain_ticks
from credent.report.palette import light
from credent.report.parts import Figure
from credent.report.plots.vectors import vectors

_CAPTION = (
    "One short run in which the learning rate climbs with every step. Too small a rate does nothing, a good one lowers "
    "the loss, too large a one undoes it. The suggested rate is where the loss falls most steeply; from the limit on "
    "it climbs. Losses far above the first are beyond the drawing."
)


def range_curve(
    group: str,
    rates: ArrayLike,
    losses: ArrayLike,
    smoothed: ArrayLike,
    *,
    suggestion: float | None,
    limit: float | None,
) -> Figure:
    """Dots for the losses, a line for their smoothed course, and an upright line at each rate that was found."""
    title, topic = f"Which learning rate for the {group}?", "How it was trained"
    at, raw, course = vectors("range_curve", rates=rates, losses=losses, smoothed=smoothed)
    if not np.isfinite(course).any():
        return Figure(title, nothing("losses"), _CAPTION, topic)
    lowest = float(np.nanmin(course))
    first = float(course[np.isfinite(course)][0])
    room = 0.4 * max(first - lowest, 0.05 * abs(first), 1e-12)  # what explodes would flatten all the rest
    found = {
        f"{name} {rate:.2g}": (name, rate, style)
        for name, rate, style in (("suggestion", suggestion, "-"), ("limit", limit, (0, (5, 2))))
        if rate is not None
    }

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        (dots,) = axes.plot(at, raw, "o", ms=3, color=light("muted"), alpha=0.55, mew=0)
        mark(dots, "losses")
        (line,) = axes.plot(at, course, color=light("blue"), label="smoothed loss")
        mark(line, "smoothed")
        for label, (name, rate, style) in found.items():
            colour = light("teal" if name == "suggestion" else "orange")
            upright = axes.axvline(rate, color=colour, linestyle=style, label=label)
            mark(upright, name, label)
        axes.set(xscale="log", xlabel="Learning rate", title="Loss, nats per datum")
        axes.set(ylim=(lowest - 0.5 * room, first + room))
        plain_ticks(axes)
        axes.xaxis.set_major_locator(LogLocator(10, numticks=8))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        legend(figure, axes)

    told = f"Loss along a rate from {at[0]:.2g} to {at[-1]:.2g}: " + (", ".join(found) or "nothing to be read from it")
    return Figure(title, draw(paint, told, 250 + legend_height(["smoothed loss", *found])), _CAPTION, topic)
