"""Everything that defines a run, as plain values: what `credent fit` takes and a run's config.json holds.

A recipe builds the same network, objective, optimiser and data order every time, on every machine that has the data.
What it leaves at None follows from the data and the method. The default beta of VI and VL is below 1, chosen on
validation data: under the full KL small networks and small data sets underfit (docs/training.md has the numbers).

beta means the same in all methods: the posterior is p(D | w)^(1/beta) p(w). MAP finds its mode, VI and VL approximate
it, and a sampler draws from it, since its temperature is beta unless it is given.

A recipe of several `members` trains as many posteriors, from first weights and data orders of their own, on the same
data; what they predict is averaged (`families.Mixture`). In the run's directory each has one of its own, `members/0`
and so on, and a run that is gone on with does not repeat those that are finished.

>>> recipe = Recipe(data="digits", method="vi", epochs=1)
>>> recipe.beta, recipe == Recipe.from_json(recipe.to_json())
(0.01, True)
"""

import dataclasses
import difflib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from credent import likelihoods
from credent.data import Data, load, names
from credent.errors import CheckpointError, InputError
from credent.objectives import MAP, VI, VL, Objective
from credent.recipe import chain, defaults
from credent.recipe.built import Built, given
from credent.recipe.choices import (
    FAMILIES,
    FOLLOWING,
    METHODS,
    MODELS,
    OPTIMISERS,
    PRIORS,
    SAMPLERS,
    SCHEDULES,
    network,
    number,
    prior,
)

_VAL_SHARE = 0.05


@dataclass(frozen=True)
class Recipe:
    """A run. A sampler is its own optimiser, and its step is constant.

    None takes the default of the data and the method.
    """

    data: str = "digits"
    model: str = "mlp"
    method: str = "vi"
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    """Learning rate of the means; of a sampler the step size eps."""
    scale_lr: float | None = None
    """Learning rate of the scales, which VI and VL learn."""
    optimiser: str | None = None
    """What moves the means: "adam", or "muon" for matrices with Adam for all else."""
    schedule: str | None = None
    """What becomes of the rates: "cosine" lets them fall to zero, "average" takes `optim.Average` of the weights."""
    beta: float | None = None
    """Weight of the penalty: 1 is Bayes' rule."""
    temperature: float | None = None
    """Of a sampler: 1 is the posterior, less is colder. None is beta."""
    weight_samples: int | None = None
    """Draws of the weights per training step."""
    members: int | None = None
    """Posteriors that are trained one after the other and averaged; of MAP, a deep ensemble."""
    prior: str = "gaussian"
    prior_scale: str | None = None
    """A rule, "fan_in", "kaiming" or "glorot", or a number; None is "kaiming". Priors that follow q have none."""
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
        if self.method != "vi" and self.family != "gaussian":
            raise InputError(f"family={self.family!r}: method={self.method!r} has no family to choose; leave it out.")
        if self.method not in ("vi", "vl") and self.scale_lr is not None:
            raise InputError(f"scale_lr={self.scale_lr:g}: method={self.method!r} learns no scales; leave it out.")
        for field, known in (("optimiser", OPTIMISERS), ("schedule", SCHEDULES)):
            value = getattr(self, field)
            if value is None:
                continue
            _check(field, value, known)
            if self.samples:
                raise InputError(
                    f"{field}={value!r}: the steps of {self.method} are its own and constant, and its weights are"
                    " draws; leave it out."
                )
        self._check_prior()
        if self.members is None:
            object.__setattr__(self, "members", defaults.members(self.data, self.method) if self.random == "*" else 1)
        for field, value in defaults.of(self.data, self.method, given(self.members)).items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, value)
        self._check_sampler()
        if self.prior_scale is None and self.prior not in FOLLOWING:
            object.__setattr__(self, "prior_scale", "kaiming")
        if self.temperature is None and self.samples:
            object.__setattr__(self, "temperature", self.beta)
        for field in ("epochs", "batch_size", "lr", "scale_lr", "weight_samples", "members"):
            value = getattr(self, field)
            if value is not None and not value > 0:
                raise InputError(f"{field}={value}: must be positive.")
            if value is not None and not field.endswith("lr") and (not isinstance(value, int) or value is True):
                raise InputError(f"{field}={value!r}: a whole number, such as 4.")
        self._check_members()

    @property
    def samples(self) -> bool:
        """Whether the method is a sampler, whose posterior are draws."""
        return self.method in SAMPLERS

    def _check_prior(self) -> None:
        if self.prior not in FOLLOWING:
            return
        if self.prior_scale is not None:
            raise InputError(
                f"prior_scale={self.prior_scale!r}: the {self.prior} prior is as wide as q makes it, so there is no"
                " scale to choose; leave prior_scale out."
            )
        if self.method not in ("vi", "vl"):
            raise InputError(
                f"prior={self.prior!r} follows a distribution over the weights, and method={self.method!r} learns none:"
                " take --method vi or vl, or another prior."
            )

    def _check_sampler(self) -> None:
        if not self.samples:
            if self.temperature is not None:
                raise InputError(
                    f"temperature={self.temperature}: samplers have one ({', '.join(SAMPLERS)}), and {self.method} has"
                    " not; beta weighs its penalty."
                )
            return
        if self.lr is None:
            raise InputError(
                f"{self.method} has no default step size for {self.data}: it depends on the number of data and on their"
                " noise. Give one, such as --lr 1e-5, and a smaller one if the chain diverges."
            )
        if self.temperature is not None and not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise InputError(f"temperature={self.temperature}: 1 samples the posterior, 0 adds no noise; not negative.")
        if self.random != "*":
            raise InputError(
                f"random={self.random!r}: {self.method} moves the random parameters, and nothing would train the"
                " others; leave random out, or take --method vi."
            )

    def _check_members(self) -> None:
        """What a mixture of posteriors over the weights of one network cannot hold is refused."""
        if self.members == 1:
            return
        if self.method not in ("map", "vi"):
            why = "vl predicts from the mean of one q" if self.method == "vl" else "credent.chains runs several chains"
            raise InputError(f"members={self.members}: {why}; take --method vi or map, or one member.")
        if self.random != "*":
            raise InputError(
                f"members={self.members}, random={self.random!r}: members share one network, and the parameters that"
                " are not random would be each one's own; leave one of the two out."
            )

    def to_json(self) -> str:
        """As config.json has it."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        """From config.json; one from before there were members has one, and Adam's rate fell along a cosine."""
        try:
            fields = json.loads(text)
            before: dict[str, Any] = {"members": 1}
            if fields.get("method") not in SAMPLERS:
                before |= {"optimiser": "adam", "schedule": "cosine"}
            return cls(**before | fields)
        except (json.JSONDecodeError, TypeError, AttributeError) as error:
            raise CheckpointError(f"config.json is not a recipe of this version of credent: {error}.") from error

    def build(self, data_dir: str | Path | None = None) -> "Built":
        """Data, network and objective, freshly initialised from the seed."""
        options: dict[str, Any] = {"split": self.split} if self.data.startswith("uci/") else {}
        if self.data in defaults.IMAGE_SETS:
            options["val_share"] = _VAL_SHARE
        loaded = load(self.data, data_dir, self.seed, **options)
        torch.manual_seed(self.seed)
        built = Built(self, loaded, tuple(self._objective(loaded) for _ in range(given(self.members))))
        if self.samples:
            chain.check(built.objective, built.steps)
        return built

    def _objective(self, loaded: Data) -> Objective:
        likelihood: likelihoods.Likelihood = likelihoods.Categorical()
        outputs = loaded.num_classes or 1
        if loaded.num_classes is None:
            known = self.noise in ("learnt", "heteroscedastic")
            if self.samples and self.noise == "learnt":
                raise InputError(
                    f"noise='learnt' is optimised, and {self.method} moves the weights alone: --noise heteroscedastic"
                    " makes it an output of the network, and a number fixes it, such as --noise 0.1."
                )
            if self.members != 1 and self.noise == "learnt":
                raise InputError(
                    f"members={self.members}, noise='learnt': each member would have a noise of its own, and one"
                    " prediction has one: --noise heteroscedastic makes it an output, and a number fixes it."
                )
            likelihood = likelihoods.Gaussian(self.noise if known else number("noise", self.noise), initial=0.1)
            outputs = 2 if self.noise == "heteroscedastic" else 1
        net = network(self.model, loaded, outputs)
        parts = (net, likelihood, prior(self.prior, self.prior_scale))
        shared: dict[str, Any] = {"num_data": len(loaded.train), "beta": given(self.beta), "random": self.random}
        if self.method == "vi":
            return VI(*parts, family=FAMILIES[self.family](), samples=given(self.weight_samples), **shared)
        return VL(*parts, **shared) if self.method == "vl" else MAP(*parts, **shared)


def _check(field: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        close = difflib.get_close_matches(value, list(known), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"{field}={value!r}: there is no such {field}.{hint} There are {', '.join(known)}.")
