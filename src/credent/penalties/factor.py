"""The factor of a penalty without a grid search: the lambda at which it stands for the layer's initialisation.

With a point mass for q, r is -log p for the prior p proportional to exp(-r); its variance is the layer's at

    penalty                       variance v              v = 1 / P, P = fan_in
    lambda ||w||_2^2              1 / (2 v)               P / 2                   (with Gaussian q of fixed scale, too)
    lambda ||w||_1                sqrt(2 / v)             sqrt(2 P)
    lambda sum_g ||w_g||_2        sqrt((n + 1) / v)       sqrt((n + 1) P)         n = P for rows, fan_out for columns

The words for v mean what they mean for priors:

    "fan_in"         1 / fan_in                      what the paper calls Glorot's
    "kaiming"        2 / fan_in
    "glorot"         2 / (fan_in + fan_out)          the same as "fan_in" where the fans are equal
    "edge_of_chaos"  sigma_w^2 / fan_in              `penalties.mean_field`, for the layer's activation

The overall weight in a mean loss is 1 / num_data; objectives put it there. [Wolinski, Charpiat, Ollivier 2022]

>>> layer = nn.Linear(50, 128)
>>> round(factor(L2, layer), 4), round(factor(L1, layer), 4)
(25.0, 10.0)
>>> round(factor(GroupLasso(over="rows"), layer), 3), round(factor(GroupLasso(over="columns"), layer), 2)
(50.498, 80.31)
>>> round(factor(L2, layer, "edge_of_chaos", activation=torch.tanh), 4)
25.0
"""

from typing import Literal

import torch
from torch import nn

from credent.errors import InputError
from credent.layout import Layout
from credent.neurons import neurons
from credent.penalties.group_lasso import GroupLasso  # noqa: F401  (the doctest's)
from credent.penalties.l1 import L1  # noqa: F401  (the doctest's)
from credent.penalties.l2 import L2  # noqa: F401  (the doctest's)
from credent.penalties.mean_field import Activation, critical_variance
from credent.penalties.weights import RULES, OnWeights, finite
from credent.priors.scales import Rule, scales


def factor(
    penalty: OnWeights | type[OnWeights],
    layer: nn.Module,
    variance: float | Rule | Literal["edge_of_chaos"] = "fan_in",
    *,
    activation: Activation = torch.relu,
    bias_variance: float = 0.0,
) -> float:
    """lambda for the weight of this layer; the last two arguments are the edge of chaos's."""
    if isinstance(penalty, type) and issubclass(penalty, OnWeights):
        penalty = penalty()
    if not isinstance(penalty, OnWeights):
        raise InputError(
            f"factor({penalty!r}, ...): write L2, L1, GroupLasso(over='rows') or GroupLasso(over='columns')."
        )
    if not isinstance(layer, nn.Module):
        raise InputError(f"factor(..., {layer!r}): the layer is a module, such as net[0].")
    layout = Layout(layer)
    weights = neurons(layout)
    if "weight" not in weights:
        raise InputError(
            f"factor(..., {type(layer).__name__}): one linear or convolutional layer, such as net[0]; for all layers of"
            " a network write the rule into the penalty, as in L1(factor='fan_in')."
        )
    if variance == "edge_of_chaos":
        value = critical_variance(activation, bias_variance) / layout.roles["weight"].fan_in
    elif isinstance(variance, str):
        if variance not in RULES:
            raise InputError(
                f"factor(variance={variance!r}): write 'fan_in', 'kaiming', 'glorot', 'edge_of_chaos' or a number."
            )
        value = scales(layout, variance, 1.0)["weight"] ** 2
    elif finite(variance) and variance > 0:
        value = float(variance)
    else:
        raise InputError(f"factor(variance={variance!r}): the prior's variance is a positive number.")
    return penalty.factor_for(value, weights["weight"])
