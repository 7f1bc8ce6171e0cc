"""A matplotlib drawing as inline SVG that follows the page: its colours are CSS variables, its letters real text.

The same numbers give the same bytes: no date, ids from a fixed salt, the user's matplotlib settings put aside while
drawing, and no pyplot, so no global figure is left behind. A drawing is `WIDTH` units wide, little more than a phone,
so that 12-unit letters stay readable there; wider pages put drawings side by side.

>>> svg = draw(lambda figure: mark(figure.subplots().plot([0, 1], [2, 3])[0], "line", "from 2 to 3"), "A rising line")
>>> svg.startswith("<svg "), 'aria-label="A rising line"' in svg, "<title>from 2 to 3</title>" in svg
(True, True, True)
"""

import hashlib
import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree

import matplotlib.style
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, FuncFormatter, LogLocator, NullFormatter

from credent.report.palette import COLOURS, light

WIDTH = 380
STYLE: dict[str, Any] = {
    "svg.hashsalt": "credent",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.family": "DejaVu Sans",  # ships with matplotlib and is wide: what fits in it fits in the page's font
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.titlecolor": light("muted"),
    "axes.titlepad": 9,
    "axes.labelcolor": light("muted"),
    "axes.edgecolor": light("muted"),
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.02,
    "grid.color": light("grid"),
    "grid.linewidth": 1,
    "text.color": light("ink"),
    "xtick.color": light("muted"),
    "ytick.color": light("muted"),
    "xtick.major.pad": 6,
    "ytick.major.pad": 6,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.4,
    "lines.linewidth": 2,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "patch.linewidth": 0,
}
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"


def draw(paint: Callable[[Figure], object], label: str, height: float = 250, width: float = WIDTH) -> Markup:
    """Let `paint` draw on a fresh figure and return it as SVG that a screen reader announces as `label`."""
    buffer = io.StringIO()
    with matplotlib.style.context(["default", STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # measured in DejaVu, but shown in the page's own font
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        paint(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Markup(_inline(buffer.getvalue(), label))


def nothing(what: str) -> Markup:
    """What stands in for a drawing when no finite number was given."""
    return Markup('<p class="empty">No {} to draw.</p>').format(what)


def mark(artist: Artist, part: str, tip: str = "") -> None:
    """Name an artist's element (`data-part`) and give it a tooltip that works without a script."""
    artist.set_gid(f"{part}|{tip}")


def legend(figure: Figure, axes: Axes) -> None:
    """The legend above the axes, where it covers no data, in as few rows as its labels allow."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns = legend_columns(labels)
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, borderpad=0, borderaxespad=0.2)


def legend_columns(labels: Sequence[str]) -> int:
    """How many labels fit beside each other in a drawing's width."""
    return max(1, min(len(labels), 44 // (max(map(len, labels)) + 5)))


def legend_height(labels: Sequence[str]) -> float:
    """How much taller a drawing must be for its legend not to eat the axes."""
    return 18.0 * math.ceil(len(labels) / legend_columns(labels))


def plain_ticks(axes: Axes) -> None:
    """Tick labels as people write numbers, 60,000 and not 6e4, with as many decimals on a whole axis."""
    axes.xaxis.set_major_formatter(_Plain())
    axes.yaxis.set_major_formatter(_Plain())


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Ticks of a logarithmic axis for data from `low` to `high`: powers of ten, with 2 and 5 where those are few."""
    steps = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axis.set_major_locator(LogLocator(10, subs=steps, numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    axis.set_minor_formatter(NullFormatter())


class _Plain(Formatter):
    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}"

    def format_ticks(self, values: list[float]) -> list[str]:
        texts = [f"{value:.6g}" for value in values]
        if not any("e" in text for text in texts):  # too great or too small for fixed point
            places = max((len(text.partition(".")[2]) for text in texts), default=0)
            texts = [f"{value:,.{places}f}" for value in values]
        return [text.replace("-", "−") for text in texts]


def _inline(text: str, label: str) -> str:
    """Strip what clashes with a page (global style, ids, fixed size, fonts) and turn colours into CSS variables."""
    root = ElementTree.fromstring(text[text.index("<svg") :])
    prefix = "d" + hashlib.sha256((label + text).encode()).hexdigest()[:10] + "-"  # ids stay unique on a page
    for node in list(root.iter()):
        for child in list(node):
            if child.tag in (_SVG + "metadata", _SVG + "style"):
                node.remove(child)
        node.tag = node.tag.removeprefix(_SVG)
        if (target := node.attrib.pop(_XLINK + "href", None)) is not None:
            node.set("href", f"#{prefix}{target[1:]}")
        if "clip-path" in node.attrib:
            node.set("clip-path", node.attrib["clip-path"].replace("url(#", f"url(#{prefix}"))
        _rename(node, prefix, text)
        if "d" in node.attrib:
            node.set("d", " ".join(node.attrib["d"].split()))
        if node.tag != "text":
            node.text = None if node.text is None else node.text.strip()
        node.tail = None
        if "style" in node.attrib:
            node.set("style", _themed(node.attrib["style"]))
    del root.attrib["width"], root.attrib["height"]
    root.attrib.update(
        {"xmlns": _SVG[1:-1], "class": "plot", "role": "img", "aria-label": label}
        | {"style": "font-family: var(--font, system-ui, sans-serif); stroke-linejoin: round"}
    )
    return ElementTree.tostring(root, encoding="unicode")


def _rename(node: ElementTree.Element, prefix: str, text: str) -> None:
    name = node.attrib.pop("id", "")
    if "|" in name:
        part, tip = name.split("|", 1)
        node.set("data-part", part)
        if tip:
            title = ElementTree.Element("title")
            title.text = tip
            node.insert(0, title)
    elif name and f"#{name}" in text:
        node.set("id", prefix + name)


def _themed(style: str) -> str:
    style = re.sub(r"font: ?([^;]*?)([\d.]+px) [^;]*", r"font-size: \2", style)
    style = re.sub(r"font-family: ?[^;]*;?", "", style)
    for role, (value, _) in COLOURS.items():
        style = style.replace(value, f"var(--{role}, {value})")
    return style
