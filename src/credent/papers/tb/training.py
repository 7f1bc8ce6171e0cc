"""One network of the thesis: LeNet-5, Bayesian by variational inference or a plain one, watched as it trains.

The thesis's setting, which the fields default to: q(w) = N(mu, sigma^2) with sigma = ln(1 + e^rho) at first, the same
for all weights; prior N(0, s^2) with s^2 = 2 / fan_in for the weights and the bias of a layer (Kaiming for ReLU); first
means uniform with standard deviation s; one draw of the weights a step; the KL estimated from that draw by its path
derivative; the loss divided by the number of training images; logistic outputs. sigma is exp of a parameter here: where
it is small, that is the same as the thesis's parameterisation.

Curves have the state at the end of every epoch: `nlls` is the NLL of the first training images, `kls` the KL in closed
form, `losses` their sum nll + kl / N whatever the KL was weighted by, `accuracies` and `val_nlls` are of held-out
images; all with one draw. A run whose numbers cease to be finite ends as one that knows nothing: `diverged`, accuracy
1/10, NLL ln 10.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from credent import models, priors
from credent.cells import Cell
from credent.data import batches
from credent.errors import ConvergenceWarning, InputError, NonFiniteError
from credent.families.gaussian import GaussianPosterior
from credent.layout import Layout
from credent.likelihoods import Categorical
from credent.objectives import MAP, VI, Objective
from credent.objectives.weights import PerBatch
from credent.optim import Alternating, Plateau, YellowFin
from credent.papers.images import Size, images
from credent.predictive import ClassPredictive
from credent.training import fit

CLASSES = 10
NOISE = 200  # images of pure noise
_PROBE = 500  # training images on which the NLL is followed
_CURVES = ("nlls", "kls", "losses", "accuracies", "val_nlls")
_CHANCE = {"accuracies": 1 / CLASSES, "val_nlls": math.log(CLASSES)}


@dataclass(frozen=True)
class Training(Cell):
    """One run."""

    data: str
    size: Size
    seed: int
    method: Literal["vi", "map"] = "vi"
    """`"map"` is the frequentist network: maximum likelihood, no penalty."""
    optimizer: Literal["adam", "amsgrad", "adabound", "amsbound", "radam", "sgd", "yellowfin"] = "adam"
    lr: float = 1e-3
    scale_lr: float | None = None
    """Rate of the scales; None is that of the means."""
    final_lr: float = 0.1
    """The rate on which the bounds of AdaBound and AMSBound close."""
    momentum: float = 0.0
    """Of SGD, and of YellowFin's first step."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Of Adam and its kin."""
    estimator: Literal["path", "total"] = "path"
    kl_ratio: float = 1.0
    """lambda: batch i of an epoch pays lambda^i / sum_k lambda^k of the KL; 0 is no KL at all."""
    rho: float = -10.0
    """The first scales are ln(1 + e^rho)."""
    link: Literal["logistic", "softmax"] = "logistic"
    turns: tuple[int, int] | None = None
    """Epochs for the means, then for the scales, and so on; None trains both at once."""
    plateau: tuple[int, float] | None = None
    """Patience in epochs and factor of a schedule by group: means follow the NLL, scales the KL, both of training."""
    draws: int = 10
    """Draws of the weights for the numbers at the end."""

    def run(self) -> dict[str, Any]:
        """Curves by epoch and numbers at the end, on held-out images and on images of pure noise."""
        train, held_out = self.images()
        objective = self.objective(train[0].shape[1], len(train[0]))
        loader = batches(torch.utils.data.TensorDataset(*train), self.size.batch, shuffle=True, seed=self.seed)
        optimizer = self.optimiser(objective, len(loader))
        schedule = None
        if self.plateau is not None:
            patience, factor = self.plateau
            schedule = Plateau(optimizer, {"means": "nll", "scales": "kl"}, factor, patience)
        curves: dict[str, list[float]] = {name: [] for name in _CURVES}
        diverged = False
        try:
            for epoch in range(self.size.epochs):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)  # how far the scales come is what is asked
                    fit(
                        objective,
                        optimizer,
                        loader,
                        epochs=1,
                        scheduler=schedule,
                        log_every=10**9,
                        seed=None if epoch else self.seed,
                        progress=False,
                    )
                nll = _scores(self._ask(objective, train[0][:_PROBE], 1), train[1][:_PROBE])["val_nlls"]
                kl = _kl(objective)
                scores = _scores(self._ask(objective, held_out[0], 1), held_out[1])
                for name, value in {"nlls": nll, "kls": kl, "losses": nll + kl / len(train[0]), **scores}.items():
                    curves[name].append(value)
            scores = _scores(self._ask(objective, held_out[0], self.draws), held_out[1])
            confidences = self._ask(objective, _noise(train[0]), self.draws).probs.amax(-1).tolist()
        except NonFiniteError:
            for name, values in curves.items():
                values.extend([_CHANCE.get(name, math.nan)] * (self.size.epochs - len(values)))
            scores, confidences, diverged = _CHANCE, [], True
        rates = {f"{group['name']}_lr": float(group["lr"]) for group in optimizer.param_groups}
        scale = math.nan if diverged else _scale(objective)
        found = {"confidences": confidences, "scale": scale, "diverged": diverged}
        return {**curves, **_last(curves, scores), **rates, **found}

    def images(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Images and labels to train on, and those of the official test set, which the thesis calls validation data."""
        parts = images(self.data, self.size)
        (x, y), (held_out, labels) = parts.train[:], parts.test[:]
        if self.data == "digits":  # as large as LeNet-5 takes them
            x, held_out = (functional.interpolate(each, size=(28, 28)) for each in (x, held_out))
        return (x, y), (held_out, labels)

    def objective(self, channels: int, num_data: int) -> Objective:
        """The network, its prior and its posterior as they begin."""
        torch.manual_seed(self.seed)
        net = models.LeNet5(CLASSES, channels)
        scales = kaiming_uniform_(net)
        likelihood = Categorical(link=self.link)
        if self.method == "map":
            return MAP(net, likelihood, num_data=num_data, beta=0.0)
        ratio, count = self.kl_ratio, math.ceil(num_data / self.size.batch)
        return VI(
            net,
            likelihood,
            priors.Gaussian(scale=scales),
            num_data=num_data,
            beta=ratio if ratio in (0.0, 1.0) else PerBatch.geometric(count, ratio),
            family=_Even(math.log1p(math.exp(self.rho))),
            estimator=self.estimator,
        )

    def optimiser(self, objective: Objective, steps: int) -> Optimizer:
        """Moves means and scales at their rates; `steps` are those of an epoch."""
        groups, lr, betas = objective.param_groups(self.lr, self.scale_lr), self.lr, self.betas
        chosen: Optimizer
        if self.optimizer in ("adam", "amsgrad"):
            chosen = torch.optim.Adam(groups, lr, betas, amsgrad=self.optimizer == "amsgrad", fused=True)
        elif self.optimizer == "radam":
            chosen = torch.optim.RAdam(groups, lr, betas, foreach=True)
        elif self.optimizer == "sgd":
            chosen = torch.optim.SGD(groups, lr, self.momentum, fused=True)
        elif self.optimizer == "yellowfin":
            chosen = YellowFin(groups, lr, self.momentum)
        else:
            chosen = _bounded(groups, lr, self.final_lr, betas, self.optimizer == "amsbound")
        if self.turns is None:
            return chosen
        means, scales = self.turns
        return Alternating(chosen, {"means": means * steps, "scales": scales * steps})

    def _ask(self, objective: Objective, x: Tensor, draws: int) -> ClassPredictive:
        pred = objective.predict(x, samples=draws, how="mean" if self.method == "map" else "sampled", seed=self.seed)
        assert isinstance(pred, ClassPredictive)
        return pred


@dataclass(frozen=True)
class _Even:
    """Gaussians that all begin with the same scale."""

    scale: float

    def bind(self, layout: Layout) -> GaussianPosterior:
        """q on this network's parameters."""
        return GaussianPosterior(layout, dict.fromkeys(layout.names, self.scale))


def kaiming_uniform_(net: nn.Module) -> dict[str, float]:
    """Draw weights and biases from U(-s sqrt 3, s sqrt 3), s^2 = 2 / fan_in of their layer; returns s by name."""
    scales = {}
    for name, layer in net.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            for part, p in layer.named_parameters():
                scales[f"{name}.{part}"] = scale = math.sqrt(2 / layer.weight[0].numel())
                nn.init.uniform_(p, -scale * math.sqrt(3), scale * math.sqrt(3))
    return scales


def _bounded(
    groups: list[dict[str, Any]], lr: float, final_lr: float, betas: tuple[float, float], largest: bool
) -> Optimizer:
    try:
        from pytorch_optimizer import AdaBound  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise InputError(
            "AdaBound and AMSBound are those of pytorch_optimizer, which is not installed: `pip install"
            " pytorch-optimizer`, or `pip install 'credent[papers]'`."
        ) from None
    chosen: Optimizer = AdaBound(groups, lr=lr, final_lr=final_lr, betas=betas, ams_bound=largest)
    return chosen


def _scores(pred: ClassPredictive, y: Tensor) -> dict[str, float]:
    """Accuracy and NLL."""
    nll = -pred.log_prob(y).double().mean().item()
    if not math.isfinite(nll):
        raise NonFiniteError("these images have no finite likelihood.")
    return {"accuracies": pred.score(y)[1], "val_nlls": nll}


def _last(curves: dict[str, list[float]], scores: dict[str, float]) -> dict[str, float]:
    """The numbers at the end, by the names of one."""
    ends = {name: values[-1] for name, values in curves.items()} | scores
    singular = {"accuracies": "accuracy", "losses": "loss"}
    return {singular.get(name, name.removesuffix("s")): value for name, value in ends.items()}


def _noise(like: Tensor) -> Tensor:
    """Images of independent standard Gaussian pixels, the same in all runs; so the training images are standardised."""
    return torch.randn(NOISE, *like.shape[1:], generator=torch.Generator().manual_seed(0))


def _kl(objective: Objective) -> float:
    """KL(q || p) in nats, which a point does not have."""
    if not isinstance(objective, VI):
        return 0.0
    assert isinstance(objective.penalty, priors.Prior)
    kl = objective.q.kl(objective.penalty)
    assert kl is not None
    return kl.item()


def _scale(objective: Objective) -> float:
    """Geometric mean of the scales; a point has none."""
    found = [s.log().flatten() for s in objective.posterior.stddev().values()] if objective.pays_kl else []
    return float(torch.cat(found).mean().exp()) if found else 0.0
