"""Who is on the front: nobody is both cheaper and better.

    on the front   no other has cost and score both as low, and one of them lower

>>> front({"map": (1.0, 0.30), "vi": (1.1, 0.25), "slow": (3.0, 0.26), "ensemble": (5.0, 0.24)})
['map', 'vi', 'ensemble']
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from credent.report import Figure
from credent.report.canvas import WIDTH, draw, legend, mark, nothing, plain_ticks
from credent.report.palette import light

Point = tuple[float, float]


def front(points: Mapping[str, Point]) -> list[str]:
    """Names from the cheapest on."""
    kept: list[str] = []
    least = float("inf")
    for name in sorted(points, key=lambda each: points[each]):
        if points[name][1] < least:
            kept.append(name)
            least = points[name][1]
    return kept


def picture(title: str, points: Mapping[str, Point], own: frozenset[str], x_label: str, y_label: str) -> Figure:
    """Cost against score, both better when lower; ours blue, the others orange, the front joined and named."""
    known = {name: at for name, at in points.items() if np.isfinite(at).all()}
    if not known:
        return Figure(title, nothing("runs"), "")
    leading = front(known)
    top = 1.5 * float(np.median([y for _, y in known.values()]))  # who has not learnt would flatten all the others

    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        axes.margins(0.1)
        steps = np.array([known[name] for name in leading])
        axes.step(*steps.T, where="post", color=light("muted"), lw=1.2, zorder=1)
        for ours, colour, label in ((True, "blue", "credent"), (False, "orange", "others")):
            for name, (x, y) in known.items():
                if (name in own) is not ours or y > top:
                    continue
                (dot,) = axes.plot(x, y, "o", ms=8, mew=0, color=light(colour), alpha=0.85, label=label, zorder=2)
                label = "_"
                mark(dot, "value", f"{name}: {x_label} {x:.2f}, {y_label} {y:.4g}")
                if name in leading:
                    below, last = leading.index(name) % 2, name == leading[-1]  # neighbours do not meet
                    place = {"xytext": (-5 if last else 5, -14 if below else 6), "ha": "right" if last else "left"}
                    axes.annotate(name, (x, y), textcoords="offset points", fontsize=10, **place)
        axes.set(title=y_label, xlabel=x_label, xscale="log")
        plain_ticks(axes)
        axes.xaxis.set_major_locator(FixedLocator([0.5, 1, 1.5, 2, 3, 5, 10, 20, 50]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
        legend(figure, axes)

    hidden = [name for name, (_, y) in known.items() if y > top]
    beyond = f" Above the picture: {', '.join(hidden)}." if hidden else ""
    caption = f"Cheaper is left, better is down. On the front: {', '.join(leading)}.{beyond}"
    drawing = draw(paint, f"{y_label} against {x_label} of {len(known)} methods", 340, 2 * WIDTH)
    return Figure(title, drawing, caption, wide=True)
