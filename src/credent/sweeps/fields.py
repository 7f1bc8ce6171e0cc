"""Fields of a recipe by name: whether there is such a field, and a value as the field has it.

>>> typed("lr", "1e-3"), typed("epochs", 5.0), typed("prior_scale", 0.5), whole("batch_size")
(0.001, 5, '0.5', True)
"""

import dataclasses
import difflib
from functools import cache
from typing import Any, get_args, get_type_hints

from credent.errors import InputError
from credent.recipe import Recipe
from credent.sweeps.vary import Plain

NAMES = tuple(field.name for field in dataclasses.fields(Recipe))


def check(name: str) -> None:
    """Refuse a name that is no field."""
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"{name!r} is no field of a run.{hint} There are {', '.join(NAMES)}.")


def whole(name: str) -> bool:
    """Whether the field counts something."""
    check(name)
    return int in _kinds(name)


def typed(name: str, value: Any) -> Plain:
    """A number or a word, as the field has it: words of a number are read, and a field of words has a number's."""
    check(name)
    kinds = _kinds(name)
    if value is None and type(None) in kinds:
        return None
    try:
        if str in kinds:
            return value if isinstance(value, str) else repr(float(value))
        if isinstance(value, bool):
            raise ValueError("true and false are no numbers")
        number = float(value)
        if int not in kinds:
            return number
        if number != int(number):
            raise ValueError("not a whole number")
        return int(number)
    except (ValueError, TypeError, OverflowError) as error:
        kind = "a word" if str in kinds else "a whole number" if int in kinds else "a number"
        raise InputError(f"{name}={value!r}: {name} is {kind} ({error}).") from None


@cache
def _kinds(name: str) -> tuple[type, ...]:
    hint = get_type_hints(Recipe)[name]
    return get_args(hint) or (hint,)
