"""Landscapes: cells and dots at their places, colours by value, lines over them."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_hex

from credent.errors import InputError
from credent.report import plots
from credent.report.plots.landscape import STEPS

NAN = float("nan")
NS = "{http://www.w3.org/2000/svg}"
RAMP = [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0, 1, STEPS))]


def drawn(figure, part):
    """Tooltip, colour and vertices of every element of that name."""
    root = ElementTree.fromstring(str(figure.drawing))
    found = []
    for group in root.iter(f"{NS}g"):
        if group.get("data-part") == part:
            tip = group.findtext(f"{NS}title")
            path = " ".join(each.get("d") for each in group.iter(f"{NS}path"))  # none, if an earlier marker is used
            styles = " ".join(each.get("style", "") for each in group.iter())
            colour = re.search(r"fill: (#\w+)", styles)
            uses = [(float(use.get("x")), float(use.get("y"))) for use in group.iter(f"{NS}use")]
            corners = np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", path), dtype=float)
            found.append((tip, colour and colour.group(1), np.array(uses) if uses else corners))
    return found


def test_a_full_grid_is_cells_that_meet_halfway_and_are_coloured_by_value():
    x, y = np.meshgrid([1e-3, 1e-2, 1e-1], [0.0, 0.5])
    values = np.arange(6.0).reshape(2, 3)
    figure = plots.landscape("t", x.ravel(), y.ravel(), values.ravel(), "lr", "mu", "NLL", log_x=True)
    cells = drawn(figure, "value")
    assert len(cells) == 6
    by_tip = {tip: (colour, corners) for tip, colour, corners in cells}
    assert by_tip["lr 0.001, mu 0: NLL 0"][0] == RAMP[0]
    assert by_tip["lr 0.1, mu 0.5: NLL 5"][0] == RAMP[-1]
    assert by_tip["lr 0.01, mu 0: NLL 1"][0] == RAMP[2]  # 1 of 5 is the third of ten steps
    widths = [np.ptp(corners[:, 0]) for _, _, corners in cells]
    assert np.allclose(widths, widths[0], atol=0.1)  # equal on a logarithmic axis
    left, right = (by_tip[f"lr {lr}, mu 0: NLL {n}"][1] for lr, n in (("0.001", 0), ("0.01", 1)))
    assert left[:, 0].max() == pytest.approx(right[:, 0].min(), abs=0.1)


def test_loose_points_are_dots_means_and_crosses():
    figure = plots.landscape(
        "t", [1, 1, 2, 3, 3], [1, 1, 3, 2, 2], [2.0, 4.0, 0.0, NAN, math.inf], "a", "b", "NLL", better="lower"
    )
    dots = {tip: at for tip, _, at in drawn(figure, "value")}
    assert set(dots) == {"a 1, b 1: NLL 3", "a 2, b 3: NLL 0"}  # the mean of 2 and 4
    assert [tip for tip, _, _ in drawn(figure, "broken")] == ["a 3, b 2: NLL none"]
    ((_, _, ring),) = drawn(figure, "best")
    assert ring == pytest.approx(dots["a 2, b 3: NLL 0"])
    higher = plots.landscape("t", [1, 2, 3], [1, 3, 2], [3.0, 0.0, 1.0], "a", "b", "NLL", better="higher")
    ((_, _, ring),) = drawn(higher, "best")
    assert ring == pytest.approx({tip: at for tip, _, at in drawn(higher, "value")}["a 1, b 1: NLL 3"])


def test_clipped_values_have_the_colour_of_the_end():
    values = [*range(10), 1000.0]
    colours = [c for _, c, _ in drawn(plots.landscape("t", values, values, values, "a", "b", "v"), "value")]
    assert colours[:10] == [RAMP[0]] * 10
    clipped = drawn(plots.landscape("t", values, values, values, "a", "b", "v", clip=(0, 0.9)), "value")
    colours = [colour for _, colour, _ in clipped]
    assert colours[9:] == [RAMP[-1]] * 2
    assert len(set(colours)) == 10


def test_lines_lie_over_the_landscape_and_do_not_widen_it():
    points = ([1, 2, 3, 4], [1, 3, 2, 4], [1.0, 2.0, 3.0, 4.0], "a", "b", "v")
    plain = {tip: at for tip, _, at in drawn(plots.landscape("t", *points, lines=[("one", [1], [1])]), "value")}
    figure = plots.landscape("t", *points, lines=[("far", [1, 4, 100], [1, 4, 100])])
    ((tip, _, line),) = drawn(figure, "line far")
    dots = {tip: at for tip, _, at in drawn(figure, "value")}
    assert tip == "far"
    assert all(dots[name] == pytest.approx(at, abs=0.01) for name, at in plain.items())
    assert line[0] == pytest.approx(dots["a 1, b 1: v 1"][0], abs=0.1)


def test_scatter_dots_and_its_axis():
    figure = plots.scatter("t", [1, 10, 100, -1], [1.0, 2.0, 3.0, 4.0], "lr", "NLL", log_x=True)
    (a, b, c) = (at[0] for _, _, at in drawn(figure, "value"))
    assert b[0] - a[0] == pytest.approx(c[0] - b[0], abs=0.01)
    clipped = plots.scatter("t", [1, 2, 3, 4], [1.0, 2.0, 3.0, 99.0], "lr", "NLL", "Said.", clip=(0.0, 0.9))
    assert len(drawn(clipped, "value")) == 3
    assert clipped.caption == "Said. 1 of 4 values lie beyond the axis."


def test_nothing_to_draw_says_so_and_bad_clips_are_refused():
    assert "No values to draw" in plots.landscape("t", [1], [1], [NAN], "a", "b", "v").drawing
    assert "No values to draw" in plots.landscape("t", [-1], [1], [1.0], "a", "b", "v", log_x=True).drawing
    assert "No values to draw" in plots.scatter("t", [NAN], [1.0], "a", "v").drawing
    with pytest.raises(InputError, match="quantiles"):
        plots.landscape("t", [1], [1], [1.0], "a", "b", "v", clip=(0.9, 0.1))
