"""How a number is written for a reader: enough digits to compare, its unit, and a dash when there is none.

Shares are kept as fractions and written in percent; an estimate's digits follow its standard error:
two of them if it begins with 1 or 2, else one.

>>> written(0.98317, "%"), written(0.0812345, "nats"), written(60_000), written(float("nan"), "nats")
('98.32%', '0.0812 nats', '60,000', '–')
>>> written(Estimate(0.23124, 0.0041), "nats")
'0.231 ± 0.004 nats'
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from statistics import median_high

DASH = "–"


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error, over seeds or folds."""

    value: float
    error: float


Value = str | float | int | Estimate | None


def centre(value: Value) -> float | None:
    """The finite number behind a value, or None where there is none."""
    number = value.value if isinstance(value, Estimate) else value
    return None if number is None or isinstance(number, str) or not math.isfinite(number) else float(number)


def spread(value: Value) -> float:
    """The standard error of an estimate; 0 for a value that came alone."""
    return value.error if isinstance(value, Estimate) and math.isfinite(value.error) else 0.0


def decimals(values: Iterable[Value], unit: str = "") -> int:
    """Digits after the point that serve a column: those of its longest value, of estimates of the middle one.

    >>> decimals([Estimate(0.2058, 0.0004), Estimate(0.2196, 0.0008), Estimate(2.3025851, 0.0000004)])
    4
    """
    values = list(values)
    alone = [_decimals(value, unit) for value in values if not spread(value)]
    errors = [_decimals(value, unit) for value in values if spread(value)]
    # one error may be small by chance, or for nothing
    return max([*alone, *([median_high(errors)] if errors else [])], default=0)


def written(value: Value, unit: str = "", places: int | None = None) -> str:
    """The value with its unit; None and NaN are a dash. `places` fixes the digits after the point."""
    number = figures(value, unit, places)
    if not unit or number == DASH or isinstance(value, str):
        return number
    return f"{number}%" if unit == "%" else f"{number} {unit}"


def figures(value: Value, unit: str = "", places: int | None = None) -> str:
    """The digits alone, as in a table whose header carries the unit."""
    if isinstance(value, str):
        return value
    number = value.value if isinstance(value, Estimate) else value
    if number is None or math.isnan(number):
        return DASH
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    places = _decimals(value, unit) if places is None else places
    text = _digits(float(number) * _factor(unit), places)
    if isinstance(value, Estimate) and math.isfinite(value.error):
        return f"{text} ± {_digits(value.error * _factor(unit), places)}"
    return text


def _factor(unit: str) -> float:
    return 100.0 if unit == "%" else 1.0


def _digits(number: float, places: int) -> str:
    if 0 < abs(number) < 0.5 * 10.0**-places or abs(number) >= 1e9:  # fixed point would say 0, or be unreadable
        mantissa, exponent = f"{number:.1e}".split("e")
        return f"{mantissa} × 10^{int(exponent)}".replace("-", "−")
    return f"{number:,.{places}f}".replace("-", "−")


def _decimals(value: Value, unit: str) -> int:
    number = centre(value)
    if number is None or isinstance(value, Integral):
        return 0
    if spread(value):
        error = spread(value) * _factor(unit)
        return min(max((error < 3 * 10.0 ** _exponent(error)) - _exponent(error), 0), 6)
    if unit == "%":
        return 2
    return min(max(2 - _exponent(number), 0), 5) if 0 < abs(number) < 0.1 else max(3 - max(_exponent(number), 0), 0)


def _exponent(number: float) -> int:
    return math.floor(math.log10(abs(number))) if number else 0
