"""How wide a prior is on each parameter, from a number, a rule, or one of these per layer.

    "fan_in"   variance 1 / fan_in             keeps a linear layer's outputs of order one (the default)
    "kaiming"  variance 2 / fan_in             the same behind a ReLU
    "glorot"   variance 2 / (fan_in + fan_out) a compromise between outputs and gradients
    0.1        the density's own scale parameter

Rules speak of weights; biases and the parameters of norm layers have no fan-in and get standard deviation 1. A mapping
from name patterns to these sets layers apart; the first pattern that matches counts.

>>> net = Layout(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1)))
>>> scales(net, {"0.*": 0.1, "*": "fan_in"}, standard_deviation=1.0)
{'0.weight': 0.1, '0.bias': 0.1, '1.weight': 0.577..., '1.bias': 1.0}
"""

import fnmatch
import math
from collections.abc import Mapping
from typing import Literal

import torch  # noqa: F401  (the doctest's)

from credent.errors import InputError
from credent.layout import Layout, Role

Rule = Literal["fan_in", "kaiming", "glorot"]
Scale = float | Rule | Mapping[str, "float | Rule"]

_GAIN = {"fan_in": 1.0, "kaiming": 2.0}


def scales(layout: Layout, scale: Scale, standard_deviation: float) -> dict[str, float]:
    """The density's scale for every random parameter; rules divide by the standard deviation at scale one."""
    rules = scale if isinstance(scale, Mapping) else {"*": scale}
    for pattern in rules:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in layout.names):
            raise InputError(f"scale[{pattern!r}] matches no random parameter; they are {', '.join(layout.names)}.")
    found = {}
    for name, role in layout.roles.items():
        rule = next((r for pattern, r in rules.items() if fnmatch.fnmatchcase(name, pattern)), None)
        if rule is None:
            raise InputError(f"no pattern of the prior's scale matches {name!r}: add a last one, as in '*': 'fan_in'.")
        found[name] = _scale(role, rule, standard_deviation)
    return found


def _scale(role: Role, rule: float | Rule, standard_deviation: float) -> float:
    if not isinstance(rule, str):
        if not (rule > 0 and math.isfinite(rule)):
            raise InputError(f"scale={rule}: a prior's scale is a positive number; no prior at all is beta=0.")
        return float(rule)
    if rule not in ("fan_in", "kaiming", "glorot"):
        raise InputError(f"scale={rule!r}: write a number, 'fan_in', 'kaiming' or 'glorot'.")
    if role.kind != "weight":
        return 1 / standard_deviation
    variance = 2 / (role.fan_in + role.fan_out) if rule == "glorot" else _GAIN[rule] / role.fan_in
    return math.sqrt(variance) / standard_deviation
