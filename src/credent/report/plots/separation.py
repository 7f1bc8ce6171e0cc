"""Histograms of an uncertainty inside and outside the training distribution: how well strangers are noticed.

Each histogram sums to 1 over common bins. AUROC, if given, is the chance that a strange input is more uncertain than
a familiar one: 0.5 is a coin, 1 is perfect.

>>> figure = separation([0.1, 0.2], {"noise": [1.9, 2.1]}, "Entropy (nats)", {"noise": 1.0})
>>> "noise (AUROC 1.000)" in figure.drawing
True
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike

from credent.report.canvas import draw, legend, legend_height, mark, nothing
from credent.report.palette import LINE_STYLES, SERIES, light
from credent.report.parts import Figure
from credent.report.plots.vectors import vectors

BINS = 30
TOPIC = "Does it know what it does not know?"


def separation(
    inside: ArrayLike,
    outside: Mapping[str, ArrayLike],
    label: str = "Entropy (nats)",
    auroc: Mapping[str, float] | None = None,
) -> Figure:
    """Shares of inputs per bin of uncertainty, for the test inputs and for each named set of strange ones."""
    groups = {"familiar inputs": inside, **outside}
    known = {
        name: v[np.isfinite(v)] for name, values in groups.items() for v in vectors("separation", **{name: values})
    }
    known = {name: values for name, values in known.items() if values.size}
    title = f"{label.split(' (')[0]} on familiar and on strange inputs"
    caption = (
        "How uncertain the network is on inputs like those it learned from, and on inputs it should find strange. The "
        "further apart the shapes, the better it can say “I do not know”: familiar inputs should pile up at the left, "
        "strange ones sit to the right. AUROC sums this up as the chance that a strange input is the more uncertain of "
        "a pair: 0.5 is a coin flip, 1 is perfect."
    )
    if not known:
        return Figure(title, nothing("uncertainties"), caption, TOPIC)
    edges = np.histogram_bin_edges(np.concatenate(list(known.values())), BINS)

    scores = {name: value for name, value in (auroc or {}).items() if name in known and np.isfinite(value)}
    labels = {name: f"{name} (AUROC {scores[name]:.3f})" if name in scores else name for name in known}

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        for number, (name, values) in enumerate(known.items()):
            shares = np.histogram(values, edges)[0] / values.size
            colour = light(SERIES[number % len(SERIES)])
            style = LINE_STYLES[number % len(LINE_STYLES)]
            axes.stairs(shares, edges, fill=True, color=colour, alpha=0.22)
            outline = axes.stairs(shares, edges, color=colour, linewidth=1.8, linestyle=style, label=labels[name])
            mark(outline, f"histogram {name}", f"{name}: median {np.median(values):.3g}, {values.size:,} inputs")
        axes.set(title="Share of inputs", xlabel=label, ylim=(0, None))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.locator_params(axis="y", nbins=5)
        legend(figure, axes)

    medians = ", ".join(f"{labels[name]} median {np.median(values):.3g}" for name, values in known.items())
    return Figure(
        title,
        draw(paint, f"Histograms of {label}: {medians}", 232 + legend_height(list(labels.values()))),
        caption,
        TOPIC,
    )
