"""A run of a sweep as a cell: training a recipe, or calling a function.

`Train` returns scores on the validation data, `val_*`, and only if asked on the test data, `test_*`; and what the last
row of the history had, `train_nll` and `train_kl`.
`Call` is told apart by the function's name and the values, so a function that is changed wants another directory. The
function itself travels to the worker with the cell, which is how one of a script or a notebook gets there.
"""

import dataclasses
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from credent.cells import Cell
from credent.data import Data
from credent.errors import ConvergenceWarning, InputError
from credent.evaluation import evaluate
from credent.families import Posterior
from credent.recipe import Built, Recipe
from credent.report.parts import Better
from credent.sweeps.vary import Plain

Function = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class Train(Cell):
    """Train the recipe and score it with `samples` draws of the weights."""

    recipe: Recipe
    samples: int = 32
    test: bool = False

    def run(self) -> dict[str, Any]:
        """Scores by name."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a sweep is there to try such settings too
            built = self.recipe.build()
            result = built.train(progress=False)
        last = result.history[-1]
        found = {f"val_{name}": value for name, value in self._scores(built, result.posterior, validation(built))}
        if self.test:
            found |= {f"test_{name}": value for name, value in self._scores(built, result.posterior, built.data)}
        ends = {f"train_{name}": last[name] for name in ("nll", "kl") if name in last}
        return found | {name: math.nan if value is None else value for name, value in ends.items()}

    def _scores(self, built: Built, posterior: Posterior, data: Data) -> Any:
        return evaluate(built.objective, posterior, data, self.samples).scores.items()


def validation(built: Built) -> Data:
    """The data with the validation part in the place of the test part."""
    if not len(built.data.val):
        raise InputError(
            f"{built.data.name} has no validation part, and runs are never ranked on test data: sweep a function of"
            " your own, which splits the data as you say."
        )
    return dataclasses.replace(built.data, test=built.data.val)


def scores(built: Built) -> dict[str, Better]:
    """The scores of a run by which runs can be ranked, known before it is run, and which way each is better."""
    if built.data.num_classes is None:
        lower, higher = ["nll", "rmse", "crps", "interval_width"], []
    else:
        lower = ["nll", "brier", "ece", "mce", "ece_10_bins", "mce_10_bins"]
        higher = ["accuracy", "auroc_shuffled", "auroc_noise"]
        if built.recipe.method != "map" or built.recipe.members != 1:  # several weights, which can disagree
            higher += ["auroc_shuffled_mutual_information", "auroc_noise_mutual_information"]
    found: dict[str, Better] = {f"val_{name}": "lower" for name in lower}
    return found | {f"val_{name}": "higher" for name in higher}


@dataclass(frozen=True)
class Call(Cell):
    """Call a function with keyword values; it returns numbers by name."""

    function: str
    values: tuple[tuple[str, Plain], ...]
    call: Function = field(compare=False)

    def __str__(self) -> str:
        return f"{self.function}({', '.join(f'{name}={value!r}' for name, value in self.values)})"

    def run(self) -> dict[str, Any]:
        """What the function returned."""
        found = self.call(**dict(self.values))
        if not isinstance(found, Mapping) or not all(isinstance(v, int | float | str) for v in found.values()):
            raise InputError(
                f"{self.function} returned {found!r}: a run returns numbers by name, such as {{'nll': 0.1}};"
                " of a tensor or an array write .item()."
            )
        return dict(found)


def name_of(function: Function) -> str:
    """MODULE:NAME of a function that a worker can find; of a script, the name of its file."""
    name = getattr(function, "__qualname__", "<nameless>")
    if "<" in name:
        raise InputError(
            f"{function!r} has no name by which its runs could be found again: write it as `def train(lr, ...)` at the"
            " top of a module or script."
        )
    module = function.__module__
    if module == "__main__":
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
    return f"{module}:{name}"
