import base64
import io
import math
import re
from xml.etree import ElementTree

import matplotlib
import matplotlib.image
import numpy as np
import pytest

from credent.errors import InputError
from credent.report import Estimate, plots

NAN = float("nan")
NS = "{http://www.w3.org/2000/svg}"


def part(root: ElementTree.Element, name: str) -> list[np.ndarray]:
    """The (n, 2) vertices of each element of that name: its path, or the places of its markers."""
    found = []
    for group in root.iter(f"{NS}g"):
        if group.get("data-part") == name:
            paths = [vertices(path.get("d")) for path in group.iter(f"{NS}path")]
            markers = all(np.ptp(path, axis=0).max() < 15 for path in paths)  # small shapes, placed by <use>
            uses = [(float(use.get("x")), float(use.get("y"))) for use in group.iter(f"{NS}use")]
            found.append(
                np.array(uses) if markers and uses else max(paths, key=lambda path: np.ptp(path, axis=0).max())
            )
    return found


def vertices(d: str) -> np.ndarray:
    return np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", d), dtype=float)


def texts(root: ElementTree.Element) -> list[tuple[str, float, float]]:
    return [(t.text or "", float(t.get("x")), float(t.get("y"))) for t in root.iter(f"{NS}text")]


def scale(root: ElementTree.Element, axis: str, low: str, high: str) -> float:
    """Drawing units between two tick labels: the same text offset cancels in the difference."""
    at = {text: (x if axis == "x" else y) for text, x, y in reversed(texts(root))}
    return at[high] - at[low]


def svgs(figure):
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", str(figure.drawing), flags=re.S)]


def svg_of(figure):
    return svgs(figure)[0]


def test_reliability_bars_are_as_tall_as_the_accuracy():
    accuracy = np.array([NAN, 0.25, 0.5, 0.8])
    edges = np.array([0, 0.25, 0.5, 0.75])
    figure = plots.reliability_diagram(edges, edges + 0.25, [NAN, 0.4, 0.6, 0.9], accuracy, [0, 10, 30, 60], ece=0.0712)
    root = svg_of(figure)
    unit = scale(root, "y", "20%", "80%") / 0.6
    heights = [np.ptp(bar[:, 1]) / -unit for bar in part(root, "accuracy")]
    assert heights == pytest.approx([0.25, 0.5, 0.8], abs=2e-3)
    gaps = [np.ptp(bar[:, 1]) / -unit for bar in part(root, "gap")]
    assert gaps == pytest.approx([0.15, 0.1, 0.1], abs=2e-3)
    counts = np.array([np.ptp(bar[:, 1]) for bar in part(root, "count")])
    assert counts / counts[-1] == pytest.approx([1 / 6, 1 / 2, 1], abs=5e-3)
    assert "7.1%" in figure.caption


def test_the_reliability_diagram_says_what_chance_makes_of_honest_confidences():
    figure = plots.reliability_diagram([0.0, 0.5], [0.5, 1.0], [0.4, 0.9], [0.5, 0.8], [10, 90], 0.1, (0.034, 0.012))
    assert (
        "10.0%. Honest confidences of this kind would have 3.4% on so many inputs, give or take 1.2%" in figure.caption
    )
    assert "below about 5.8%" in figure.caption


def test_reliability_gaps_are_opaque_and_say_which_way():
    """0.4 said and 0.6 right is underconfident, teal; 0.9 and 0.7 is overconfident, orange; nothing shines through."""
    drawing = plots.reliability_diagram([0.25, 0.75], [0.5, 1.0], [0.4, 0.9], [0.6, 0.7], [10, 20]).drawing
    root = ElementTree.fromstring(drawing)
    styles = [ElementTree.tostring(e, "unicode") for e in root.iter() if e.get("data-part") == "gap"]
    assert ["var(--teal," in styles[0], "var(--orange," in styles[1]] == [True, True]
    assert not any("opacity" in style for style in styles)
    for words in ("overconfident", "underconfident"):
        assert f">{words}<" in drawing


def test_training_curves_pass_through_the_history():
    history = [
        {"step": 10, "nll": 2.0, "val_nll": None},
        {"step": 20, "nll": 1.0, "val_nll": 1.5},
        {"step": 30, "nll": 0.5},
    ]
    root = svg_of(plots.training_curves(history))
    (train,) = part(root, "curve training")
    assert len(train) == 3
    unit = scale(root, "y", "0.5", "2.0") / 1.5
    assert np.diff(train[:, 1]) / unit == pytest.approx([-1.0, -0.5], abs=2e-3)
    assert np.diff(train[:, 0]) == pytest.approx([np.ptp(train[:, 0]) / 2] * 2, rel=1e-3)
    (validation,) = part(root, "curve validation")
    assert len(validation) == 1
    assert (train[1, 1] - validation[0, 1]) / unit == pytest.approx(-0.5, abs=2e-3)


def test_a_long_history_is_drawn_as_block_means():
    rows = [{"step": s, "kl": float(s % 2)} for s in range(30_000)]  # alternates 0 and 1: every block's mean is 1/2
    root = svg_of(plots.training_curves(rows))
    (curve,) = part(root, "curve KL")
    assert len(curve) <= 300
    zero_to_one = scale(root, "y", "0.0", "1.0")
    assert np.ptp(curve[:, 1]) < 0.02 * abs(zero_to_one)


def test_histograms_share_bins_and_sum_to_one():
    figure = plots.separation([0.0, 0.0, 0.0, 1.0], {"odd": [3.0, NAN]}, "Entropy (nats)", {"odd": 0.875})
    root = svg_of(figure)
    unit = scale(root, "y", "0%", "50%") / 0.5
    (inside,), (outside,) = part(root, "histogram familiar inputs"), part(root, "histogram odd")
    floor = inside[:, 1].max()
    assert (inside[:, 1].min() - floor) / unit == pytest.approx(0.75, abs=3e-3)
    assert (outside[:, 1].min() - floor) / unit == pytest.approx(1.0, abs=3e-3)
    assert any("AUROC 0.875" in text for text, _, _ in texts(root))
    assert figure.title.startswith("Entropy on")


def test_band_is_two_standard_deviations_either_side():
    root = svg_of(plots.predictive_band([20, 10], [0.0, 0.0], [0.25, 0.25], [0.5, 0.5], [15, NAN], [1.0, 0.0]))
    unit = scale(root, "y", "−1.0", "1.0") / 2
    for name, width in (("epistemic", 1.0), ("total", 2.0)):
        (band,) = part(root, name)
        assert np.ptp(band[:, 1]) / -unit == pytest.approx(width, abs=3e-3)
    (mean,), (train,) = part(root, "mean"), part(root, "train")
    assert mean[0, 0] < mean[-1, 0]
    assert train.shape == (1, 2)
    assert (train[0, 1] - mean[0, 1]) / unit == pytest.approx(1.0, abs=3e-3)
    assert train[0, 0] == pytest.approx(mean[:, 0].mean(), abs=0.01)


def test_many_training_points_are_thinned():
    root = svg_of(plots.predictive_band([0, 1], [0, 0], [1, 1], [1, 1], np.linspace(0, 1, 2_500), np.zeros(2_500)))
    (train,) = part(root, "train")
    assert 500 <= len(train) <= 1_000


def test_risk_coverage_is_drawn_in_percent():
    root = svg_of(plots.risk_coverage({"a": ([0.0, 0.5, 1.0], [0.0, 0.01, 0.04]), "empty": ([], [])}))
    (curve,) = part(root, "curve a")
    across, up = scale(root, "x", "0%", "100%"), scale(root, "y", "0.00%", "4.00%") / 0.04
    assert np.diff(curve[:, 0]) == pytest.approx([across / 2] * 2, abs=0.2)
    assert np.diff(curve[:, 1]) / up == pytest.approx([0.01, 0.03], abs=2e-4)


def test_dots_stand_at_their_values_with_their_errors():
    values = {"a": Estimate(0.02, 0.005), "b": 0.04, "c": None}
    figure = plots.dot_plot("Error", values, "%", "lower", {"a": 0.03, "c": NAN})
    root = svg_of(figure)
    unit = scale(root, "x", "2", "4") / 2
    at = [float(dot[0, 0]) for dot in part(root, "value")]
    assert (at[1] - at[0]) / unit == pytest.approx(2.0, abs=3e-3)
    (published,) = part(root, "published")
    assert (published[0, 0] - at[0]) / unit == pytest.approx(1.0, abs=3e-3)
    assert np.ptp(part(root, "error")[0][:, 0]) / unit == pytest.approx(1.0, abs=3e-3)
    written = [text for text, _, _ in texts(root)]
    assert {"2.00 ± 0.50", "4.00", "–"} <= set(written)  # all with the decimals that 4% alone would have
    assert all("nan" not in text for text in written)


def test_images_are_the_pixels_and_bars_the_probabilities():
    images = np.array([[[0.0, 1.0], [0.5, 0.0]], [[1.0, 1.0], [1.0, 1.0]]])
    drawing = str(plots.image_grid(images, [[0.2, 0.8], [0.6, 0.4]], [1, 1], ["cat", "dog"]).drawing)
    first, second = (base64.b64decode(text) for text in re.findall(r"base64,([^\"]+)", drawing))
    grey = matplotlib.image.imread(io.BytesIO(first), format="png")[..., 0]
    assert grey == pytest.approx(images[0], abs=1 / 255)
    assert matplotlib.image.imread(io.BytesIO(second), format="png")[..., 0] == pytest.approx(images[1])
    assert re.findall(r"width: ([\d.]+)%", drawing) == ["80.0", "20.0", "60.0", "40.0"]
    assert re.findall(r'<span class="(right|wrong)">', drawing) == ["right", "wrong"]


def test_images_off_scale_are_stretched_together():
    drawing = str(plots.image_grid(np.array([[[-1.0, 3.0]], [[1.0, 1.0]]]), [[1.0], [1.0]], [0, 0]).drawing)
    greys = [
        matplotlib.image.imread(io.BytesIO(base64.b64decode(t)), format="png")[0, :, 0]
        for t in re.findall(r"base64,([^\"]+)", drawing)
    ]
    assert greys[0] == pytest.approx([0, 1])
    assert greys[1] == pytest.approx([0.5, 0.5], abs=1 / 255)
    assert "base64," in plots.image_grid(np.full((1, 2, 2), 5.0), [[1.0]], [0]).drawing  # flat: nothing to stretch


EMPTY = [
    plots.training_curves([]),
    plots.training_curves([{"step": 1, "nll": NAN}, {"step": 2, "nll": None}]),
    plots.reliability_diagram([], [], [], [], []),
    plots.reliability_diagram([0.0], [1.0], [NAN], [NAN], [0], NAN),
    plots.separation([], {}),
    plots.separation([NAN], {"a": [math.inf]}),
    plots.predictive_band([], [], [], [], [], []),
    plots.predictive_band([0.0], [NAN], [NAN], [NAN], [0.0], [0.0]),
    plots.risk_coverage({}),
    plots.risk_coverage({"a": ([NAN], [1.0])}),
    plots.dot_plot("t", {}),
    plots.dot_plot("t", {"a": None, "b": NAN}),
    plots.image_grid(np.zeros((0, 2, 2)), np.zeros((0, 3)), []),
]


@pytest.mark.parametrize("figure", EMPTY)
def test_nothing_to_draw_says_so(figure):
    assert 'class="empty"' in figure.drawing
    assert "nan" not in figure.drawing + figure.caption


@pytest.mark.parametrize(
    "partly",
    [
        lambda: plots.training_curves(
            [{"epoch": 1, "nll": 1.0}, {"epoch": 2, "nll": NAN}, {"epoch": 3, "nll": math.inf}]
        ),
        lambda: plots.separation([0.5, 0.5], {"a": [NAN, 0.5]}, auroc={"a": NAN}),
        lambda: plots.predictive_band([0, 1, 2], [0, NAN, 1], [1, 1, 1], [1, NAN, 2], [], []),
        lambda: plots.risk_coverage({"a": ([0.5, 1.0], [NAN, 0.1])}),
        lambda: plots.dot_plot("t", {"a": 0.0, "b": Estimate(1.0, NAN)}),
    ],
)
def test_missing_numbers_leave_gaps(partly):
    figure = partly()
    assert "nan" not in figure.drawing.lower()
    for root in svgs(figure):
        assert root.get("aria-label")
        assert root.get("role") == "img"


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda: plots.predictive_band([0, 1], [0], [0], [0], [], []), "x 2, mean 1"),
        (lambda: plots.separation(np.zeros((3, 2)), {}), r"shape \(3, 2\)"),
        (lambda: plots.image_grid(np.zeros((2, 3, 8, 8)), np.zeros((2, 3)), [0, 1]), r"permute\(0, 2, 3, 1\)"),
        (lambda: plots.image_grid(np.zeros((2, 8, 8)), np.zeros((3, 3)), [0, 1]), "do not belong together"),
        (lambda: plots.image_grid(np.zeros((1, 8, 8)), np.zeros((1, 3)), [3]), "labels count from 0"),
        (lambda: plots.image_grid(np.zeros((1, 8, 8)), np.zeros((1, 3)), [0], ["a"]), "every class needs one name"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, advice):
    with pytest.raises(InputError, match=advice):
        call()


def test_a_name_is_shown_letter_by_letter():
    name = '名前 $x$ <b> & "q"'
    assert name in [text for text, _, _ in texts(svg_of(plots.dot_plot("t", {name: 1.0})))]


def test_drawings_are_deterministic_and_leave_settings_alone():
    first = plots.dot_plot("t", {"a": 1.0, "b": 2.0})
    with matplotlib.rc_context({"lines.linewidth": 9.0, "svg.hashsalt": "other"}):
        assert plots.dot_plot("t", {"a": 1.0, "b": 2.0}) == first
        assert matplotlib.rcParams["lines.linewidth"] == 9.0


def test_colours_are_variables_and_ids_belong_to_one_drawing():
    one, two = plots.risk_coverage({"a": ([0, 1], [0, 1])}), plots.risk_coverage({"b": ([0, 1], [0, 1])})
    assert set(re.findall(r' id="([^"]+)"', one.drawing)).isdisjoint(re.findall(r' id="([^"]+)"', two.drawing))
    assert "<style" not in one.drawing
    bare = re.sub(r"var\(--[a-z]+, #[0-9a-f]{6}\)|[\"(]#d[0-9a-f]{10}-", "", str(one.drawing))
    assert not re.search(r"#[0-9a-f]{6}", bare)


def test_a_range_curve_marks_the_rates_that_were_found():
    rates, smoothed = [1e-4, 1e-3, 1e-2, 1e-1], [2.0, 2.0, 1.0, 1e6]
    figure = plots.range_curve("scales", rates, smoothed, smoothed, suggestion=1e-3, limit=1e-2)
    root = svg_of(figure)
    (course,), (suggestion,), (limit,) = part(root, "smoothed"), part(root, "suggestion"), part(root, "limit")
    assert suggestion[:, 0] == pytest.approx([course[1, 0]] * 2, abs=0.01)
    assert limit[:, 0] == pytest.approx([course[2, 0]] * 2, abs=0.01)
    assert np.diff(course[:3, 0]) == pytest.approx([np.diff(course[:2, 0])[0]] * 2, rel=1e-3)  # decades are even
    assert (course[2, 1] - course[1, 1]) > 60  # an explosion does not flatten what went before
    assert len(part(root, "losses")[0]) in (3, 4)
    assert "scales" in figure.title
    none = plots.range_curve("means", rates, smoothed, smoothed, suggestion=None, limit=None)
    assert not part(svg_of(none), "suggestion")
    assert "No losses to draw" in plots.range_curve("means", [1.0], [NAN], [NAN], suggestion=None, limit=None).drawing


def test_robust_regions_lie_between_their_curves():
    momenta = np.array([0.0, 0.25, 0.81])
    low, high = (1 - momenta**0.5) ** 2, (1 + momenta**0.5) ** 2
    root = svg_of(plots.robust_regions({"h = 1": (momenta, low, high), "h = 10": (momenta, low / 10, high / 10)}))
    decade = scale(root, "y", "0.1", "1")
    edges = part(root, "edge h = 1")
    assert len(edges) == 2
    for edge, curve in zip(edges, (low, high), strict=True):
        assert np.diff(edge[:, 1]) / decade == pytest.approx(np.diff(np.log10(curve)), abs=5e-3)
    other = part(root, "edge h = 10")
    assert (edges[0][:, 1] - other[0][:, 1]) / decade == pytest.approx([1.0] * 3, abs=5e-3)
    assert len(part(root, "region h = 10")) == 1
    assert "No regions to draw" in plots.robust_regions({}).drawing
