"""Training curves: how the fit, the complexity and the validation scores went, one small panel each.

A long history is drawn as means of `BLOCKS` consecutive blocks, with each block's range as a pale band behind.

>>> figure = training_curves([{"step": 1, "nll": 2.3}, {"step": 2, "nll": 1.9}])
>>> figure.title, figure.drawing.count("<svg")
('Training', 1)
"""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from credent.report.canvas import draw, legend, mark, nothing, plain_ticks
from credent.report.palette import LINE_STYLES, SERIES, light
from credent.report.parts import Figure
from credent.report.plots.vectors import Vector, vectors

BLOCKS = 300
PANEL_WIDTH = 330  # three fit beside each other on a desktop
PANELS: tuple[tuple[str, float, dict[str, str]], ...] = (  # title, factor, {key of a history row: its name}
    ("Surprise per example, NLL (nats)", 1.0, {"nll": "training", "val_nll": "validation"}),
    ("Distance from the prior, KL (nats)", 1.0, {"kl": "KL"}),
    ("Penalty on the weights (nats)", 1.0, {"penalty": "penalty"}),
    ("Validation accuracy (%)", 100.0, {"val_accuracy": "accuracy"}),
    ("Validation error, RMSE", 1.0, {"val_rmse": "RMSE"}),
)


def training_curves(history: Sequence[Mapping[str, float | None]]) -> Figure:
    """Rows with `step` (or `epoch`) and any of `nll`, `val_nll`, `kl`, `val_accuracy`, `val_rmse`, gaps allowed."""
    axis = next((name for name in ("step", "epoch") if any(name in row for row in history)), "row")
    at = [row.get(axis) if axis in row else index for index, row in enumerate(history)]
    columns = {
        key: vectors("training_curves", **{axis: _floats(at), key: _floats([row.get(key) for row in history])})
        for _, _, keys in PANELS
        for key in keys
    }
    drawn = [
        _panel(title, factor, axis, {name: columns[key] for key, name in keys.items() if _known(columns[key])})
        for title, factor, keys in PANELS
        if any(_known(columns[key]) for key in keys)
    ]
    return Figure(
        "Training",
        Markup('<div class="panels">{}</div>').format(Markup().join(drawn)) if drawn else nothing("training history"),
        "How the network learned. NLL is how surprised it is by an answer, averaged over examples: it should fall and "
        "then level off, and the validation curve (examples it does not train on) should stay close to the training "
        "curve; a validation curve that turns upwards means it has begun to learn by heart. KL is how far its weights "
        "have moved from the prior belief: it should settle. A penalty that is no KL, such as minus the log of a "
        "prior, may be negative; only its change says something.",
        topic="How it learned",
        wide=True,
    )


def _panel(title: str, factor: float, axis: str, curves: Mapping[str, list[Vector]]) -> Markup:
    def paint(figure: Drawing) -> None:
        axes = figure.subplots()
        for (name, (x, y)), role, style in zip(curves.items(), SERIES, LINE_STYLES, strict=False):
            known = np.isfinite(x) & np.isfinite(y)
            middle, mean, low, high = _blocks(x[known], factor * y[known])
            if len(mean) < known.sum():
                axes.fill_between(middle, low, high, color=light(role), alpha=0.16, linewidth=0)
            lone = "o" if len(mean) < 12 else ""
            (line,) = axes.plot(middle, mean, color=light(role), linestyle=style, marker=lone, ms=5, label=name)
            mark(line, f"curve {name}", f"{name}: last {mean[-1]:.4g}")
        axes.set_title(title)
        axes.set_xlabel(axis)
        plain_ticks(axes)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 5, 10]))
        axes.locator_params(axis="y", nbins=6)
        if len(curves) > 1:
            legend(figure, axes)

    ends = "; ".join(f"{name} ends at {factor * y[np.isfinite(y)][-1]:.4g}" for name, (_, y) in curves.items())
    return draw(paint, f"{title} by {axis}: {ends}", height=220, width=PANEL_WIDTH)


def _blocks(x: Vector, y: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """Mean x, and mean, least and greatest y of at most BLOCKS runs of neighbours."""
    starts = np.unique(np.linspace(0, len(x), BLOCKS, endpoint=False).astype(int))
    sizes = np.diff([*starts, len(x)])
    means = [np.add.reduceat(values, starts) / sizes for values in (x, y)]
    return means[0], means[1], np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)


def _floats(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else float(value) for value in values]


def _known(curve: list[Vector]) -> bool:
    return bool((np.isfinite(curve[0]) & np.isfinite(curve[1])).any())
