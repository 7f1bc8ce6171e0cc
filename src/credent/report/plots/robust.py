"""The robust regions of momentum: at each momentum, the rates at which a curvature contracts as fast as momentum lets.

Shapes: each region is (momenta, lowest, highest), (m,) each.

>>> figure = robust_regions({"h = 1": ([0.0, 0.25], [1.0, 0.25], [1.0, 2.25])})
>>> figure.drawing.count('data-part="region h = 1"')
1
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from credent.report.canvas import draw, legend, legend_height, mark, nothing, plain_ticks
from credent.report.palette import LINE_STYLES, SERIES, light
from credent.report.parts import Figure
from credent.report.plots.vectors import vectors

_CAPTION = (
    "Between the two curves of a curvature h a step of momentum shrinks the error by the root of the momentum, however "
    "large h is. A problem with several curvatures is trained at that speed only where their regions overlap: the "
    "further apart they are, the more momentum it takes."
)


def robust_regions(regions: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]]) -> Figure:
    """The plane of momentum and rate, with the region of every name between its two curves."""
    title, topic = "Which rate goes with which momentum?", "How it was trained"
    known = {
        name: vectors(f"robust_regions: {name}", momenta=momenta, lowest=lowest, highest=highest)
        for name, (momenta, lowest, highest) in regions.items()
    }
    if not known:
        return Figure(title, nothing("regions"), _CAPTION, topic)

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        for number, (name, (momenta, lowest, highest)) in enumerate(known.items()):
            colour = light(SERIES[number % len(SERIES)])
            style = LINE_STYLES[number % len(LINE_STYLES)]
            band = axes.fill_between(momenta, lowest, highest, color=colour, alpha=0.16, linewidth=0)
            mark(band, f"region {name}", name)
            for label, curve in ((name, lowest), ("", highest)):
                (line,) = axes.plot(momenta, curve, color=colour, linestyle=style, label=label or "_")
                mark(line, f"edge {name}", name)
        axes.set(yscale="log", xlabel="Momentum", title="Learning rate", xlim=(0, 1))
        plain_ticks(axes)
        axes.yaxis.set_major_locator(LogLocator(10, numticks=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        legend(figure, axes)

    widest = "; ".join(f"{name} up to {np.nanmax(highest):.2g}" for name, (_, _, highest) in known.items())
    return Figure(
        title, draw(paint, f"Robust rates by momentum: {widest}", 250 + legend_height([*known])), _CAPTION, topic
    )
