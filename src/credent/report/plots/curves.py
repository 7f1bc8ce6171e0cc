"""Named curves over a common axis, and the risk-coverage curve: what refusing to answer buys.

    risk(c) = mean loss over the share c of inputs on which the network is most sure        (El-Yaniv & Wiener 2010)

>>> figure = risk_coverage({"VI": ([0.5, 1.0], [0.01, 0.08])})
>>> figure.drawing.count('data-part="curve VI"')
1
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike

from credent.report.canvas import draw, legend, legend_height, mark, nothing, plain_ticks
from credent.report.palette import LINE_STYLES, SERIES, light
from credent.report.parts import Figure
from credent.report.plots.vectors import vectors


def curves(
    title: str,
    named: Mapping[str, tuple[ArrayLike, ArrayLike]],
    x_label: str,
    y_label: str,
    caption: str,
    *,
    topic: str = "Results",
    percent: bool = False,
    errors: Mapping[str, ArrayLike] | None = None,
) -> Figure:
    """One line per name through its (x, y); with `percent`, both are fractions and the axes say percent.

    `errors` are standard errors of y by name, drawn as a band of one to either side.
    """
    known = {name: np.stack(vectors(f"curves: {name}", x=x, y=y)) for name, (x, y) in named.items()}
    known = {name: pair for name, pair in known.items() if np.isfinite(pair).all(0).any()}
    if not known:
        return Figure(title, nothing("curves"), caption, topic)

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        for number, (name, (x, y)) in enumerate(known.items()):
            style = LINE_STYLES[(number + number // len(SERIES)) % len(LINE_STYLES)]  # no pair repeats before 16
            (line,) = axes.plot(x, y, color=light(SERIES[number % len(SERIES)]), linestyle=style, label=name)
            mark(line, f"curve {name}", name)
            if errors is not None and name in errors:
                error = vectors(f"curves: {name}", x=x, error=errors[name])[1]
                colour = light(SERIES[number % len(SERIES)])
                band = axes.fill_between(x, y - error, y + error, color=colour, alpha=0.18, linewidth=0)
                mark(band, f"band {name}")
        axes.set(title=y_label, xlabel=x_label)
        plain_ticks(axes)
        if percent:
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.set(ylim=(0, None))
        axes.locator_params(nbins=6)
        legend(figure, axes)

    ends = "; ".join(f"{name} ends at {y[np.isfinite(y)][-1]:.3g}" for name, (_, y) in known.items())
    return Figure(
        title, draw(paint, f"{y_label} by {x_label}: {ends}", 232 + legend_height(list(known))), caption, topic
    )


def risk_coverage(named: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Figure:
    """The error rate among answered inputs against the share answered, per name: (coverage, risk), both fractions."""
    return curves(
        "What refusing to answer buys",
        named,
        "Share of inputs it answers, surest first",
        "Errors among its answers",
        "If the network answers only the inputs it is surest about, how many of its answers are wrong? Read from right "
        "(answers everything) to left (answers few). The curve should fall quickly towards 0 on the left: its doubt "
        "then points at its mistakes. A flat curve means its doubt is of no use.",
        topic="Can its confidence be trusted?",
        percent=True,
    )
