"""Accuracy under attack against the attack's radius, a line a method.

>>> figure = robustness_curve({"VI": ([0.0, 0.004, 0.03], [0.91, 0.83, 0.12])})
>>> figure.drawing.count('data-part="curve VI"')
1
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from credent.report.parts import Figure
from credent.report.plots.curves import curves
from credent.report.plots.vectors import vectors


def robustness_curve(named: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Figure:
    """The share of right answers, per name: (radii, accuracies as fractions)."""
    percent = {}
    for name, (radii, accuracies) in named.items():
        x, y = vectors(f"robustness_curve: {name}", radii=radii, accuracies=accuracies)
        percent[name] = (x, 100 * np.asarray(y))
    return curves(
        "What survives an attack",
        percent,
        "Radius of the attack (epsilon)",
        "Right answers under attack, %",
        "Inputs are changed on purpose, within the radius, to make the network wrong. At radius 0 nothing is changed. "
        "A line that falls slowly is a network that is hard to fool. A grey level of an image is 1/255 = 0.0039.",
        topic="Can it be fooled?",
    )
