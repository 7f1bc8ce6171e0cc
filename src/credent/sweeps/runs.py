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
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any

from credent.cells import Cell
from credent.data import Data
from credent.errors import ConvergenceWarning, InputError
from credent.evaluation import evaluate
from credent.families import Posterior
from credent.recipe import Built, Recipe
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


@dataclass(frozen=True)
class Call(Cell):
    """Call a function with keyword values; it returns numbers by name."""

    function: str
    values: tuple[tuple[str, Plain], ...]
    call: InitVar[Function]

    def __post_init__(self, call: Function) -> None:
        object.__setattr__(self, "_call", call)  # no field: it does not tell cells apart

    def run(self) -> dict[str, Any]:
        """What the function returned."""
        call: Function = vars(self)["_call"]
        found = call(**dict(self.values))
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
