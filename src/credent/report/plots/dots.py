"""A dot plot that compares methods on one measure: a row a method, with its standard error and a published value.

>>> from credent.report.numbers import Estimate
>>> figure = dot_plot("Test error", {"VI": Estimate(0.021, 0.001), "MAP": 0.024}, "%", "lower", {"VI": 0.0191})
>>> [figure.drawing.count(f'data-part="{part}"') for part in ("value", "published")]
[2, 1]
"""

from collections.abc import Mapping

from matplotlib.figure import Figure as Drawing

from credent.report.canvas import draw, legend, mark, nothing, plain_ticks
from credent.report.numbers import Value, centre, decimals, figures, spread, written
from credent.report.palette import light
from credent.report.parts import Better, Figure

DIRECTION: dict[Better, str] = {"lower": "further left is better", "higher": "further right is better", "": ""}


def shorten(name: str, longest: int = 36) -> str:
    """A row's name so that the value beside it has room; the tooltip and the table have it in full."""
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def dot_plot(
    title: str,
    values: Mapping[str, Value],
    unit: str = "",
    better: Better = "",
    published: Mapping[str, float] | None = None,
    caption: str = "",
) -> Figure:
    """One dot per name, bars of +-1 standard error for an `Estimate`, a hollow diamond for the published value."""
    known = {name: number for name, value in values.items() if (number := centre(value)) is not None}
    if not known:
        return Figure(title, nothing("values"), caption, "Side by side")
    scale = 100.0 if unit == "%" else 1.0
    claims = {name: number for name, claim in (published or {}).items() if (number := centre(claim)) is not None}
    places = decimals(values.values(), unit)
    rows = len(values)

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        for row, (name, value) in enumerate(values.items()):
            y = rows - 1 - row
            axes.axhline(y, color=light("grid"), linewidth=1)
            axes.annotate(
                shorten(name), (0, y), (0, 10), xycoords=("axes fraction", "data"), textcoords="offset points"
            )
            axes.annotate(
                figures(value, unit, places),
                (1, y),
                (0, 10),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                color=light("muted"),
            )
            if name in claims:
                (diamond,) = axes.plot(scale * claims[name], y, "D", ms=8, mfc="none", mec=light("orange"), mew=1.6)
                diamond.set_label("published" if name == next(iter(claims)) else "")
                mark(diamond, "published", f"{name}, published: {written(claims[name], unit)}")
            if name in known:
                bars = axes.errorbar(scale * known[name], y, xerr=scale * spread(value), color=light("blue"))
                mark(bars[2][0], "error")
                (dot,) = axes.plot(scale * known[name], y, "o", ms=9, mew=0, color=light("blue"))
                dot.set_label("measured here" if name == next(iter(known)) else "")
                mark(dot, "value", f"{name}: {written(value, unit)}")
        axes.set(ylim=(-0.4, rows - 0.25), yticks=[])
        axes.margins(x=0.08)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(", ".join(filter(None, (unit, DIRECTION[better]))))
        plain_ticks(axes)
        axes.locator_params(axis="x", nbins=5)
        if claims:
            legend(figure, axes)

    label = f"{title}: " + ", ".join(f"{name} {written(value, unit)}" for name, value in values.items())
    return Figure(title, draw(paint, label, 58 + 42 * rows + 22 * bool(claims)), caption, "Side by side")
