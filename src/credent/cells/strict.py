"""JSON that every reader understands: numbers that JSON does not have are the words "nan", "inf" and "-inf".

>>> dumps({"nll": float("inf"), "draws": (1, 2.5)})
'{"nll": "inf", "draws": [1, 2.5]}'
>>> loads(dumps({"nll": float("inf")}))
{'nll': inf}
"""

import dataclasses
import json
import math
from typing import Any, NoReturn

from credent.errors import InputError

_WORDS = ("nan", "inf", "-inf")


def dumps(value: Any, indent: int | None = None) -> str:
    """The value as strict JSON; tuples become lists."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def loads(text: str) -> Any:
    """What `dumps` was given; a `ValueError` if the text is not strict JSON."""
    return _numbers(json.loads(text, parse_constant=_refuse))


def plain(value: Any, where: str = "the value") -> Any:
    """The value as JSON has it, or an `InputError` that names the part which has no place there.

    Of a dataclass these are the fields by which it is compared.
    """
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, bool | int) or (isinstance(value, str) and value not in _WORDS):
        return value
    if isinstance(value, list | tuple):
        return [plain(each, f"{where}[{number}]") for number, each in enumerate(value)]
    if dataclasses.is_dataclass(value):
        told = (each.name for each in dataclasses.fields(value) if each.compare)
        return {name: plain(getattr(value, name), f"{where}[{name!r}]") for name in told}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    raise InputError(
        f"{where} is {value!r}, a {type(value).__name__}, which has no place in a JSON file: give numbers, words other"
        f" than {', '.join(_WORDS)}, lists, and dicts with words as keys. Of a tensor or an array write .item() or"
        " .tolist()."
    )


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    return float(value) if isinstance(value, str) and value in _WORDS else value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
