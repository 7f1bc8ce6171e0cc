"""A recipe with everything it names in memory, and how it is trained.

Members are trained one after the other, each as a run of its own: from first weights and a data order of its own, in
the directory `members/0` and so on of the run's. One that is finished is not repeated when a run is gone on with.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from rich.console import Console
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader

from credent.calibrate import calibrate
from credent.data import Data, batches
from credent.errors import InputError
from credent.evaluation import statistics_for
from credent.families import Draws, Mixture, Posterior
from credent.objectives import Objective
from credent.optim import Average, Muon
from credent.predict import predict
from credent.recipe import chain
from credent.training import Result, ScaleRatio, fit, load, save
from credent.training.fit import validated
from credent.training.history import Row, read

if TYPE_CHECKING:
    from credent.recipe.recipe import Recipe

T = TypeVar("T")

_LOOKS = 100  # at the scales of q, over a run
_APART = 2**20  # between the seeds of two members
_DRAWS = 10  # of each member, on validation data
_console = Console(stderr=True)


@dataclass(frozen=True)
class Built:
    """A recipe with everything it names in memory."""

    recipe: "Recipe"
    data: Data
    members: tuple[Objective, ...]

    @property
    def objective(self) -> Objective:
        """The only member, or the first of several, whose network and likelihood serve all of them."""
        return self.members[0]

    @property
    def steps(self) -> int:
        """Optimiser steps of a member."""
        return given(self.recipe.epochs) * len(self.loader())

    def loader(self, member: int = 0) -> DataLoader[tuple[Tensor, ...]]:
        """Training batches, shuffled anew each epoch by the recipe's seed."""
        seed = self.recipe.seed + member * _APART
        return batches(self.data.train, given(self.recipe.batch_size), shuffle=True, seed=seed)

    def train(self, run_dir: str | Path | None = None, resume: bool = False, **options: Any) -> Result:
        """Run the recipe; options are those of `fit`.

        Of several members the history has the rows of all, each with its `member`, and a last one: the means of what
        they ended with, and the scores of their average on the validation data.
        """
        count = len(self.members)
        if count == 1:
            return self._train(0, run_dir, resume, **options)
        if options.get("monitors"):
            raise InputError("monitors= watch one objective, and each member is one: train with members=1 to watch it.")
        show = options.get("progress", True) is True
        results = []
        for k in range(count):
            if show:
                _console.print(f"member {k + 1} of {count}", highlight=False)
            place = None if run_dir is None else self._place(run_dir, k)
            own = {} if options.get("seed") is None else {"seed": options["seed"] + k * _APART}
            results.append(self._train(k, place, resume, **options | own))
        posterior = Mixture([result.posterior for result in results])
        scores = self._validate(posterior)
        if show and scores:
            told = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
            _console.print(f"average of {count} members: {told}", highlight=False)
        rows = [{"member": k, **row} for k, result in enumerate(results) for row in result.history]
        steps = sum(result.steps for result in results)
        last = {"step": steps, **_means([result.history[-1] for result in results]), **scores}
        return Result(posterior, [*rows, last], steps, None if run_dir is None else Path(run_dir))

    def load(self, run_dir: str | Path) -> Posterior:
        """Fill the members with what `train` wrote there, and return their posterior."""
        parts = [load(each, self._place(run_dir, k) / "posterior.safetensors") for k, each in enumerate(self.members)]
        return parts[0] if len(parts) == 1 else Mixture(parts)

    def history(self, run_dir: str | Path) -> list[Row]:
        """How training went, as `train` wrote it there; of several members, that of the first."""
        return read(self._place(run_dir, 0) / "history.jsonl")

    def _place(self, run_dir: str | Path, member: int) -> Path:
        """Where a member's run is: the only one's is the run's own directory."""
        return Path(run_dir) if len(self.members) == 1 else Path(run_dir) / "members" / str(member)

    def calibrate(self, run_dir: str | Path) -> tuple[Row, Row, float]:
        """Set the temperature of a finished run's predictions by its validation data, and save the run with it.

        Returns the scores of the validation data before and after, and the temperature.
        """
        if self.data.num_classes is None or not len(self.data.val):
            what = "classes" if self.data.num_classes is None else "validation data"
            raise InputError(f"{self.data.name} has no {what} to choose a temperature by.")
        posterior = self.load(run_dir)
        first, (x, y) = self.objective, self._val()
        first.likelihood.get_buffer("temperature").fill_(1.0)
        before = self._validate(posterior)
        temperature = calibrate(first.net, posterior, first.likelihood, x, y, **self._averaging(posterior))
        drawn = posterior if isinstance(posterior, Draws) else None
        save(first, self._place(run_dir, 0) / "posterior.safetensors", drawn)
        return before, self._validate(posterior), temperature

    def _validate(self, posterior: Posterior) -> Row:
        """Scores of the average on the validation data."""
        if not len(self.data.val):
            return {}
        first, (x, y) = self.objective, self._val()
        return validated(predict(first.net, posterior, first.likelihood, x, **self._averaging(posterior)), y)

    def _val(self) -> tuple[Tensor, Tensor]:
        """The validation data, where the network is."""
        x, y = (each.to(self.objective.layout.first().device) for each in self.data.val[:])
        return x, y

    def _averaging(self, posterior: Posterior) -> dict[str, Any]:
        """Options of predictions of validation data by all members."""
        statistics = statistics_for(self.objective, posterior, self.data)
        return {"samples": _DRAWS * len(self.members), "statistics": statistics, "how": self.objective.how}

    def _train(self, member: int, run_dir: str | Path | None, resume: bool, **options: Any) -> Result:
        recipe, objective = self.recipe, self.members[member]
        epochs = given(recipe.epochs)
        settings: dict[str, Any] = {
            "epochs": epochs,
            "val": batches(self.data.val, 1024) if len(self.data.val) else None,
            "val_every": max(1, epochs // 60),
            "run_dir": run_dir,
            "resume": resume,
        }
        optimizer: torch.optim.Optimizer
        if recipe.samples:
            steps = (given(recipe.lr), given(recipe.temperature), self.steps, recipe.seed)
            optimizer = chain.sampler(recipe.method, objective, *steps)
            settings["keep"] = chain.thin(self.steps)
        else:
            rates = given(recipe.lr), recipe.scale_lr
            if recipe.optimiser == "muon":
                optimizer = Muon.beside_adam(objective, *rates)
            else:
                optimizer = torch.optim.Adam(objective.param_groups(*rates), fused=True)
            if recipe.schedule == "average":
                settings["average"] = Average(objective)
            else:
                settings |= {"scheduler": CosineAnnealingLR(optimizer, self.steps), "schedule": "step"}
        if recipe.prior == "inverse_reference":  # the one prior that may let go of the scales
            settings["monitors"] = [ScaleRatio(objective, every=max(1, self.steps // _LOOKS))]
        return fit(objective, optimizer, self.loader(member), **settings | options)


def _means(rows: list[Row]) -> Row:
    """What the members' last rows have of the training data, averaged."""
    shared = [name for name in ("nll", "kl") if all(row.get(name) is not None for row in rows)]
    return {name: fmean(row[name] for row in rows) for name in shared}


def given(value: T | None) -> T:
    """A field that the defaults have filled."""
    assert value is not None
    return value
