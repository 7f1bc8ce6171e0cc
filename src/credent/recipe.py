"""Everything that defines a run, as plain values: what `credent fit` takes and a run's config.json holds.

A recipe builds the same network, objective, optimiser and data order every time, on every machine that has the data.
What it leaves at None follows from the data. The default beta is below 1, chosen on validation data: under the full KL
small networks and small data sets underfit (docs/training.md has the numbers).

>>> recipe = Recipe(data="digits", method="vi", epochs=1)
>>> recipe.beta, recipe == Recipe.from_json(recipe.to_json())
(0.01, True)
"""

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader

from credent import families, likelihoods, models, priors
from credent.data import Data, batches, load, names
from credent.errors import CheckpointError, InputError
from credent.objectives import MAP, VI, VL, Objective
from credent.objectives.vi import Family
from credent.training import Result, fit

T = TypeVar("T")

MODELS = {
    "mlp": "fully connected: 400-400 for images, 100-100 for digits, 50-50 for curves and tables",
    "lenet5": "LeNet-5 for 28x28 or 32x32 images",
    "resnet20": "ResNet-20 for 32x32 images, with BatchNorm",
    "preact_resnet18": "PreActResNet-18 for 32x32 images, with BatchNorm",
}
METHODS = {
    "map": "one setting of the weights, the most probable one",
    "vi": "variational inference: a distribution over the weights",
    "vl": "Variational Laplace: the same without drawing weights in training",
}
PRIORS = {"gaussian": priors.Gaussian, "laplace": priors.Laplace, "scale_mixture": priors.ScaleMixture}
FAMILIES: dict[str, Callable[[], Family]] = {"gaussian": families.Gaussian, "radial": families.Radial}
_IMAGE_SETS = ("mnist", "fashion_mnist", "cifar10", "cifar100", "svhn")
_VAL_SHARE = 0.05
_REGRESSION: dict[str, Any] = {"epochs": 2000, "lr": 1e-2, "scale_lr": 1e-2, "beta": 0.03, "weight_samples": 4}
_IMAGES: dict[str, Any] = {"epochs": 20, "lr": 4e-3, "scale_lr": 2e-2, "beta": 0.2, "weight_samples": 2}
_DEFAULTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(_IMAGE_SETS, _IMAGES),
    "digits": _IMAGES | {"epochs": 60, "batch_size": 64, "beta": 0.01, "weight_samples": 1},
}


@dataclass(frozen=True)
class Recipe:
    """A run. The optimiser is Adam; learning rates fall to zero along a cosine. None takes the data's default."""

    data: str = "digits"
    model: str = "mlp"
    method: str = "vi"
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    """Learning rate of the means."""
    scale_lr: float | None = None
    """Learning rate of the scales."""
    beta: float | None = None
    """Weight of the penalty: 1 is Bayes' rule."""
    weight_samples: int | None = None
    """Draws of the weights per training step."""
    prior: str = "gaussian"
    prior_scale: str = "kaiming"
    """A rule, "fan_in", "kaiming" or "glorot", or a number."""
    family: str = "gaussian"
    noise: str = "learnt"
    """Regression: "learnt", "heteroscedastic" or a number, in units of the standardised target."""
    random: str = "*"
    """Which parameters are random: a name pattern."""
    split: int = 0
    """UCI sets: which of the standard splits."""
    seed: int = 0

    def __post_init__(self) -> None:
        _check("data", self.data, [each.name for each in names()])
        for field, known in (("model", MODELS), ("method", METHODS), ("prior", PRIORS), ("family", FAMILIES)):
            _check(field, getattr(self, field), known)
        for field, value in {"batch_size": 128, **_DEFAULTS.get(self.data, _REGRESSION)}.items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, value)
        for field in ("epochs", "batch_size", "lr", "scale_lr", "weight_samples"):
            if not getattr(self, field) > 0:
                raise InputError(f"{field}={getattr(self, field)}: must be positive.")

    def to_json(self) -> str:
        """As config.json has it."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        """From config.json."""
        try:
            return cls(**json.loads(text))
        except (json.JSONDecodeError, TypeError) as error:
            raise CheckpointError(f"config.json is not a recipe of this version of credent: {error}.") from error

    def build(self, data_dir: str | Path | None = None) -> "Built":
        """Data, network and objective, freshly initialised from the seed."""
        options: dict[str, Any] = {"split": self.split} if self.data.startswith("uci/") else {}
        if self.data in _IMAGE_SETS:
            options["val_share"] = _VAL_SHARE
        loaded = load(self.data, data_dir, self.seed, **options)
        torch.manual_seed(self.seed)
        objective = self._objective(loaded)
        return Built(self, loaded, objective)

    def _objective(self, loaded: Data) -> Objective:
        likelihood: likelihoods.Likelihood = likelihoods.Categorical()
        outputs = loaded.num_classes or 1
        if loaded.num_classes is None:
            known = self.noise in ("learnt", "heteroscedastic")
            likelihood = likelihoods.Gaussian(self.noise if known else _number("noise", self.noise), initial=0.1)
            outputs = 2 if self.noise == "heteroscedastic" else 1
        net = _network(self.model, loaded, outputs)
        named = self.prior_scale in ("fan_in", "kaiming", "glorot")
        prior = PRIORS[self.prior](scale=self.prior_scale if named else _number("prior_scale", self.prior_scale))
        shared: dict[str, Any] = {"num_data": len(loaded.train), "beta": _set(self.beta), "random": self.random}
        if self.method == "map":
            return MAP(net, likelihood, prior, **shared)
        if self.method == "vl":
            return VL(net, likelihood, prior, **shared)
        return VI(net, likelihood, prior, family=FAMILIES[self.family](), samples=_set(self.weight_samples), **shared)


@dataclass(frozen=True)
class Built:
    """A recipe with everything it names in memory."""

    recipe: Recipe
    data: Data
    objective: Objective

    def loader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Training batches, shuffled anew each epoch by the recipe's seed."""
        return batches(self.data.train, _set(self.recipe.batch_size), shuffle=True, seed=self.recipe.seed)

    def train(self, run_dir: str | Path | None = None, resume: bool = False, **options: Any) -> Result:
        """Run the recipe; options are those of `fit`."""
        recipe, loader = self.recipe, self.loader()
        epochs = _set(recipe.epochs)
        optimizer = torch.optim.Adam(self.objective.param_groups(_set(recipe.lr), _set(recipe.scale_lr)), fused=True)
        scheduler = CosineAnnealingLR(optimizer, epochs * len(loader))
        return fit(
            self.objective,
            optimizer,
            loader,
            epochs=epochs,
            val=batches(self.data.val, 1024) if len(self.data.val) else None,
            val_every=max(1, epochs // 60),
            run_dir=run_dir,
            resume=resume,
            scheduler=scheduler,
            schedule="step",
            **options,
        )


def _network(model: str, loaded: Data, outputs: int) -> nn.Module:
    size = math.prod(loaded.shape)
    image = len(loaded.shape) == 3
    if model == "mlp":
        width = 50 if not image else 100 if size < 784 else 400
        return models.MLP(size, outputs, (width, width))
    if not image or min(loaded.shape[1:]) < 28:
        raise InputError(
            f"{model} is for images of 28x28 and more, and {loaded.name} has shape {loaded.shape}: --model mlp."
        )
    if model == "lenet5":
        return models.LeNet5(outputs, loaded.shape[0])
    if model == "resnet20":
        return models.ResNet20(outputs, in_channels=loaded.shape[0])
    return models.PreActResNet18(outputs, in_channels=loaded.shape[0])


def _set(value: T | None) -> T:
    """A field that the data's defaults have filled."""
    assert value is not None
    return value


def _check(field: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        close = difflib.get_close_matches(value, list(known), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"{field}={value!r}: there is no such {field}.{hint} There are {', '.join(known)}.")


def _number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"{field}={text!r}: neither a number nor one of the words that `credent fit --help` lists."
        ) from None
