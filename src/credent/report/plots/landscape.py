"""A value over two settings, by colour: where runs were good, where they were bad, and where they broke.

Where the points fill a grid each is a cell of it, elsewhere a dot at its place. Several values at one place are shown
by their mean; a place without a finite one is a cross. `clip` holds two quantiles of the values between which the
colours are spread: (0.05, 0.9) keeps a few diverged runs from making all others look the same, and what lies beyond
has the colour of the end.

Shapes: x, y and values (n,); each line in `lines` is (label, xs, ys), drawn over the landscape and not widening it.

>>> figure = landscape("Two rates", [1, 1, 2, 2], [1, 2, 1, 2], [0.1, 0.2, 0.3, float("nan")], "a", "b", "NLL")
>>> [figure.drawing.count(f'data-part="{part}"') for part in ("value", "broken")]
[3, 1]
"""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from credent.errors import InputError
from credent.report.canvas import draw, legend, legend_height, log_ticks, mark, nothing, plain_ticks
from credent.report.palette import LINE_STYLES, light
from credent.report.parts import Better, Figure
from credent.report.plots.vectors import Vector, vectors

Line = tuple[str, ArrayLike, ArrayLike]
STEPS = 10
_COLOURS = ListedColormap(colormaps["viridis"](np.linspace(0, 1, STEPS)))
_BAR_HEIGHT = 52.0


def landscape(
    title: str,
    x: ArrayLike,
    y: ArrayLike,
    values: ArrayLike,
    x_label: str,
    y_label: str,
    value_label: str,
    caption: str = "",
    *,
    log_x: bool = False,
    log_y: bool = False,
    lines: Sequence[Line] = (),
    clip: tuple[float, float] = (0.0, 1.0),
    better: Better = "",
    topic: str = "Results",
) -> Figure:
    """The values at their places; with `better`, the best place is ringed."""
    if not 0 <= clip[0] < clip[1] <= 1:
        raise InputError(f"landscape: clip={clip} are two quantiles, the lower first; clip=(0.05, 0.95) is usual.")
    at_x, at_y, given = vectors("landscape", x=x, y=y, values=values)
    places, means = _means(at_x, at_y, given, log_x, log_y)
    known = np.isfinite(means)
    if not known.any():
        return Figure(title, nothing("values"), caption, topic)
    low, high = np.quantile(means[known], clip)
    edges = np.linspace(low, high, STEPS + 1) if low < high else low + np.linspace(-0.5, 0.5, STEPS + 1)
    norm = BoundaryNorm(edges, STEPS, clip=True)

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        _scales(axes, places, log_x, log_y)
        cells = _cells(places, log_x, log_y)
        for number, ((px, py), value) in enumerate(zip(places, means, strict=True)):
            tip = f"{x_label} {px:.4g}, {y_label} {py:.4g}: {value_label} "
            if not np.isfinite(value):
                (cross,) = axes.plot(px, py, "x", ms=8, mew=1.6, color=light("muted"), zorder=3)
                mark(cross, "broken", tip + "none")
                continue
            colour = _COLOURS(norm(value))
            if cells is None:
                (dot,) = axes.plot(px, py, "o", ms=11, mfc=colour, mec=light("muted"), mew=0.8, zorder=2)
                mark(dot, "value", f"{tip}{value:.4g}")
            else:
                left, right, bottom, top = cells[number]
                cell = Rectangle((left, bottom), right - left, top - bottom, facecolor=colour)
                mark(axes.add_patch(cell), "value", f"{tip}{value:.4g}")
        if cells is not None:
            axes.set(xlim=(cells[:, 0].min(), cells[:, 1].max()), ylim=(cells[:, 2].min(), cells[:, 3].max()))
            axes.grid(visible=False)
        if better:
            best = places[np.nanargmin(means if better == "lower" else -means)]
            (ring,) = axes.plot(*best, "o", ms=17, mfc="none", mec=light("orange"), mew=2.4, zorder=4, label="best")
            mark(ring, "best", "best")
        _lines(axes, lines)
        axes.set(xlabel=x_label, ylabel=y_label)
        _bar(figure, axes, norm, value_label, bool((means < low).any()), bool((means > high).any()))
        legend(figure, axes)

    labels = [*(["best"] if better else []), *(label for label, _, _ in lines)]
    told = f"{value_label} over {x_label} and {y_label}: from {np.nanmin(means):.3g} to {np.nanmax(means):.3g}"
    height = 262 + _BAR_HEIGHT + (legend_height(labels) if labels else 0)
    return Figure(title, draw(paint, told, height), caption, topic)


def _means(x: Vector, y: Vector, values: Vector, log_x: bool, log_y: bool) -> tuple[Vector, Vector]:
    """The places (m, 2), each once and in order, and the mean of the finite values at each, NaN where there is none."""
    there = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not log_x)) & ((y > 0) | (not log_y))
    places, which = np.unique(np.stack([x, y], 1)[there], axis=0, return_inverse=True)
    finite = np.isfinite(values[there])
    total = np.bincount(which.ravel(), np.where(finite, values[there], 0.0), minlength=len(places))
    count = np.bincount(which.ravel(), finite, minlength=len(places))
    return places, np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _cells(places: Vector, log_x: bool, log_y: bool) -> Vector | None:
    """Left, right, bottom and top of each place's cell (m, 4), halfway to its neighbours; None where no grid is full.

    On a logarithmic axis halfway is the geometric mean.
    """
    columns, rows = (np.unique(places[:, axis]) for axis in (0, 1))
    if min(len(columns), len(rows)) < 2 or len(places) != len(columns) * len(rows):
        return None
    sides = []
    for axis, (ticks, log) in enumerate(((columns, log_x), (rows, log_y))):
        at = np.log(ticks) if log else ticks
        middle = (at[1:] + at[:-1]) / 2
        edges = np.concatenate([[2 * at[0] - middle[0]], middle, [2 * at[-1] - middle[-1]]])
        which = np.searchsorted(ticks, places[:, axis])
        sides += [edges[which], edges[which + 1]]
        sides[-2:] = [np.exp(side) if log else side for side in sides[-2:]]
    return np.stack(sides, 1)


def _scales(axes: Axes, places: Vector, log_x: bool, log_y: bool) -> None:
    """Logarithmic axes where asked for, wide enough for whole dots, with ticks as people write numbers."""
    axes.margins(0.08)
    axes.set(xscale="log" if log_x else "linear", yscale="log" if log_y else "linear")
    plain_ticks(axes)
    for axis, log, at in ((axes.xaxis, log_x, places[:, 0]), (axes.yaxis, log_y, places[:, 1])):
        if log:
            log_ticks(axis, at.min(), at.max())
        else:
            axis.set_major_locator(MaxNLocator(5))


def _lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Each line in ink on a light seam, so that it shows on every colour, inside the limits that the points set."""
    limits = axes.get_xlim(), axes.get_ylim()
    for number, (label, xs, ys) in enumerate(lines):
        at = vectors(f"landscape: {label}", xs=xs, ys=ys)
        axes.plot(*at, color=light("card"), linewidth=4.5, zorder=5)
        style = LINE_STYLES[number % len(LINE_STYLES)]
        (line,) = axes.plot(*at, color=light("ink"), linestyle=style, label=label, zorder=6)
        mark(line, f"line {label}", label)
    axes.set(xlim=limits[0], ylim=limits[1])


def _bar(figure: Drawing, axes: Axes, norm: BoundaryNorm, label: str, below: bool, above: bool) -> None:
    """The key to the colours, above the axes; pointed where values lie beyond it."""
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    bar = figure.colorbar(
        ScalarMappable(norm, _COLOURS), ax=axes, location="top", aspect=30, extend=extend[below, above], label=label
    )
    ends = norm.boundaries[:: STEPS // 2].tolist()
    bar.set_ticks(ends, labels=[f"{end:.3g}" for end in ends])
    bar.outline.set_visible(False)
