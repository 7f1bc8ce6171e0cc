"""The reliability diagram: how often the network is right, against how sure it said it was.

    ECE = sum_b (n_b / n) |accuracy_b - confidence_b|        (Naeini et al. 2015; Guo et al. 2017)

The numbers come from `credent.metrics`; nothing is computed here. Vectors have one entry per bin; an empty bin has
count 0 and may hold NaN.

>>> figure = reliability_diagram([0.0, 0.5], [0.5, 1.0], [0.4, 0.9], [0.5, 0.8], [10, 90], ece=0.1)
>>> "said 90.0%, was right 80.0%" in figure.drawing
True
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike

from credent.report.canvas import draw, legend, mark, nothing
from credent.report.numbers import DASH
from credent.report.palette import light
from credent.report.parts import Figure
from credent.report.plots.vectors import share, vectors

TITLE, TOPIC = "Stated confidence against how often it is right", "Can its confidence be trusted?"


def reliability_diagram(
    lower: ArrayLike,
    upper: ArrayLike,
    confidence: ArrayLike,
    accuracy: ArrayLike,
    count: ArrayLike,
    ece: float | None = None,
    chance: tuple[float, float] | None = None,
) -> Figure:
    """Bars of accuracy per bin of confidence, their gap to the diagonal, and how many inputs fell in each bin.

    chance: mean and standard deviation of the ECE that these confidences would have if they were all honest.
    """
    bins = np.stack(
        vectors("reliability_diagram", lower=lower, upper=upper, confidence=confidence, accuracy=accuracy, count=count)
    )
    bins = bins[:, np.isfinite(bins).all(0) & (bins[4] > 0)]
    error = DASH if ece is None or not np.isfinite(ece) else share(ece)
    caption = (
        "Inputs are grouped by how sure the network said it was. Each bar shows how often it was then right, and the "
        "coloured part how far that is from what it said on average: overconfident where it said more, underconfident "
        "where it said less. The strip shows where the inputs are: a gap in a bin with few inputs matters little. "
        f"The gaps, weighted by inputs, average to the calibration error (ECE): {error}. {_best(chance)}"
    )
    if not bins.size:
        return Figure(TITLE, nothing("reliability bins"), caption, TOPIC)

    def paint(figure: Drawing) -> None:
        top, strip = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1))
        for low, high, said, right, n in bins.T:
            place = {"x": (low + high) / 2, "width": 0.88 * (high - low)}
            tip = f"said {share(said)}, was right {share(right)}, {n:,.0f} inputs"
            (bar,) = top.bar(height=right, color=light("blue"), label=_once(top, "was right"), **place)
            mark(bar, "accuracy", tip)
            missing, role = ("overconfident", "orange") if said > right else ("underconfident", "teal")
            (gap,) = top.bar(  # opaque: a tint of one colour over another is a third that means nothing
                height=said - right, bottom=right, color=light(role), label=_once(top, missing), **place
            )
            mark(gap, "gap", tip)
            (inputs,) = strip.bar(height=n / bins[4].sum(), color=light("muted"), **place)
            mark(inputs, "count", tip)
        top.plot([0, 1], [0, 1], color=light("ink"), linewidth=1.2, linestyle=(0, (4, 3)), label="honest")
        top.set(xlim=(0, 1), ylim=(0, 1), title="Was right")
        strip.set(xlabel="Stated confidence", ylim=(0, None))
        strip.set_title("Share of inputs")
        for axis in (top.xaxis, top.yaxis, strip.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        strip.locator_params(axis="y", nbins=2)
        legend(figure, top)

    tops = ", ".join(f"said {share(said)} was right {share(right)}" for _, _, said, right, _ in bins.T)
    return Figure(TITLE, draw(paint, f"Reliability diagram, calibration error {error}: {tops}", 350), caption, TOPIC)


def _best(chance: tuple[float, float] | None) -> str:
    if chance is None:
        return "0% would be perfect."
    mean, spread = chance
    return (
        f"Honest confidences of this kind would have {share(mean)} on so many inputs, give or take {share(spread)}, by"
        f" chance alone: below about {share(mean + 2 * spread)} there is nothing to see."
    )


def _once(axes: Axes, label: str) -> str | None:
    """The label, unless a bar has it already."""
    return None if label in axes.get_legend_handles_labels()[1] else label
