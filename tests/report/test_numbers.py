import numpy as np
import pytest

from credent.errors import InputError
from credent.report import Column, Estimate, Figure, Table
from credent.report.numbers import decimals, figures, written
from credent.report.palette import COLOURS, SERIES, contrast


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "nats", "–"),
        (float("nan"), "%", "–"),
        (np.float32("nan"), "", "–"),
        (Estimate(float("nan"), 0.1), "%", "–"),
        (float("inf"), "nats", "∞ nats"),
        (float("-inf"), "", "−∞"),
        (0.5, "%", "50.00%"),
        (1.0, "%", "100.00%"),
        (-0.351, "nats", "−0.351 nats"),
        (1.23456, "", "1.235"),
        (312.44, "s", "312.4 s"),
        (12345.6, "", "12,346"),
        (0.0, "", "0.000"),
        (0.00123456, "", "0.00123"),
        (1.2e-7, "", "1.2 × 10^−7"),
        (2.5e12, "", "2.5 × 10^12"),
        (478_410, "", "478,410"),
        (np.int64(7), "", "7"),
        ("Gaussian", "nats", "Gaussian"),
        (Estimate(0.9783, 0.0006), "%", "97.83 ± 0.06%"),
        (Estimate(0.07418, 0.0015), "", "0.0742 ± 0.0015"),
        (Estimate(123.4, 25.0), "", "123 ± 25"),
        (Estimate(0.5, float("nan")), "", "0.500"),
    ],
)
def test_numbers_are_written_for_people(value, unit, text):
    assert written(value, unit) == text


def test_a_column_shares_its_decimals_but_counts_stay_whole():
    table = Table(
        "t", (Column("m"), Column("nll"), Column("n")), (("a", 0.0812, 10), ("b", 1.5, 2_000), ("c", None, None))
    )
    assert table.texts() == [["a", "0.0812", "10"], ["b", "1.5000", "2,000"], ["c", "–", "–"]]
    assert decimals([]) == 0
    assert figures(0.98, "%") == "98.00"


def test_best_includes_what_two_standard_errors_cannot_tell_apart():
    rows = (("a", Estimate(1.00, 0.03), 5.0), ("b", Estimate(1.09, 0.04), 7.0), ("c", Estimate(1.11, 0.04), None))
    table = Table("t", (Column("m"), Column("loss", "", "lower"), Column("gain", "", "higher")), rows)
    assert table.best() == {(0, 1), (1, 1), (1, 2)}  # 0.09 <= 2 hypot(0.03, 0.04) = 0.10 < 0.11
    assert Table("t", (Column("m"), Column("x")), (("a", 1.0), ("b", 2.0))).best() == set()
    assert Table("t", (Column("m"), Column("x", "", "lower")), (("a", 1.0), ("b", None))).best() == set()


def test_what_cannot_be_shown_is_refused_with_advice():
    with pytest.raises(InputError, match="write None where a value is missing"):
        Table("t", (Column("a"), Column("b")), (("x",),))
    with pytest.raises(InputError, match=r"Markup\(svg\)"):
        Figure("t", "<svg onload=alert(1)>", "c")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [0, 1])
def test_colours_keep_contrast(mode):
    colour = {role: values[mode] for role, values in COLOURS.items()}
    for ground in ("page", "card"):
        for role in ("ink", "muted", "blue", "teal", "orange"):  # all are used for text
            assert contrast(colour[role], colour[ground]) >= 4.5, (role, ground)
        for role in SERIES:
            assert contrast(colour[role], colour[ground]) >= 3, (role, ground)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the textbook near miss
    assert len({values[0] for values in COLOURS.values()}) == len(COLOURS)  # placeholders must not collide
