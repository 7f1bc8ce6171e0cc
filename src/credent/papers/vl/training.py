"""One network of the paper: trained by MAP, VI or VL at one beta, and scored with every predictive that it has.

The paper's setting is a PreActResNet-18 with softplus, Adam at 1e-4 that falls by 10 after half and three quarters of
200 epochs, batches of 128, log sigma at ten times the rate and started at log s - 3, prior variance 2 / fan_in (not
printed in the paper). Here it is fields, and beta is chosen on validation images, never on test images.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from credent import metrics, models, priors
from credent.cells import Cell
from credent.data import batches, load
from credent.families import Gaussian
from credent.likelihoods import Categorical
from credent.objectives import MAP, VI, VL, Objective
from credent.objectives.vl import Curvature, Labels
from credent.papers.images import Size, images
from credent.papers.images import train as trained
from credent.predict import How, predict
from credent.predictive import ClassPredictive
from credent.training import fit
from credent.training.convergence import convergence

STRANGERS = {
    "digits": "digits",
    "fashion_mnist": "mnist",
    "cifar10": "svhn",
    "cifar100": "svhn",
    "svhn": "cifar10",
}
"""What each data set's networks have never seen, for the AUROC of telling it apart; digits get shuffled pixels."""
HOWS: dict[str, tuple[How, ...]] = {
    "map": ("mean",),
    "vi": ("mean", "sampled"),
    "vl": ("mean", "sampled", "linearised"),
}
DRAWS = 10
_STRANGERS = 250
_FAMILY = Gaussian(initial_scale=math.sqrt(2) * math.exp(-3))  # log s - 3 for weights, as VL starts


@dataclass(frozen=True)
class Training(Cell):
    """One run."""

    data: str
    method: Literal["map", "vi", "vl"]
    beta: float
    size: Size
    seed: int
    multiplier: float = 10.0
    """Rate of log sigma in units of the means' rate."""
    curvature: Curvature = "finite_difference"
    fraction: float = 0.125
    labels: ClassVar[Labels] = "model"

    def run(self) -> dict[str, Any]:
        """Scores on test and validation images by predictive, the ELBO over epochs and the scales' convergence."""
        train, val, test, strange = self._images()
        torch.manual_seed(self.seed)
        objective = self._objective(train)
        done, loader = trained(objective, train, self.size, self.seed, self.multiplier)
        statistics = [x for x, _ in batches(train, 256)][:4]

        def ask(x: Tensor, how: How) -> ClassPredictive:
            renewed = statistics if how == "sampled" and self.method != "map" else None
            pred = predict(
                objective.net, objective.posterior, objective.likelihood, x, samples=DRAWS, how=how, statistics=renewed
            )
            assert isinstance(pred, ClassPredictive)
            return pred

        hows = HOWS[self.method]
        elbos = [-float(row["loss"]) for row in done.history]
        found: dict[str, Any] = {"elbos": elbos, "elbo": elbos[-1], "images": len(train)}
        for how in hows:
            familiar = ask(val.tensors[0], how)
            found |= _scores(f"val_{how}", familiar, val.tensors[1])
            found |= _scores(f"test_{how}", ask(test.tensors[0], how), test.tensors[1])
            found[f"val_{how}_auroc"] = metrics.auroc(familiar.entropy, ask(strange, how).entropy)
        if self.method != "map":
            pulls = convergence(objective, loader, count=8)
            found["still_moving"] = sum(c.moving * c.size for c in pulls) / sum(c.size for c in pulls)
            found["log_ratio"] = sum(c.log_ratio * c.size for c in pulls) / sum(c.size for c in pulls)
        if isinstance(objective, VL):
            found["gap"] = _gap(objective, [batch for batch, _ in zip(loader, range(4), strict=False)])
        return found

    def _images(self) -> tuple[TensorDataset, TensorDataset, TensorDataset, Tensor]:
        """Training, validation and test images, and inputs of another kind."""
        train, val, test, mean, std = images(self.data, self.size)
        if self.data == "digits":
            x = test.tensors[0]
            order = torch.rand(len(x), x[0].numel(), generator=torch.Generator().manual_seed(0)).argsort(1)
            return train, val, test, x.flatten(1).gather(1, order).reshape(x.shape)
        other = load(STRANGERS[self.data], seed=0)
        x = other.test[:_STRANGERS][0] * other.std + other.mean
        return train, val, test, functional.avg_pool2d((x - mean) / std, self.size.pool)

    def _objective(self, train: TensorDataset) -> Objective:
        x, _ = train[0]
        classes = 100 if self.data == "cifar100" else 10
        net = models.PreActResNet18(classes, self.size.width, x.shape[0], nn.Softplus)
        prior = priors.Gaussian("kaiming")
        shared: dict[str, Any] = {"num_data": len(train), "beta": self.beta}
        if self.method == "map":
            return MAP(net, Categorical(), prior, **shared)
        if self.method == "vi":
            return VI(net, Categorical(), prior, family=_FAMILY, **shared)
        return VL(
            net,
            Categorical(),
            prior,
            curvature=self.curvature,
            fraction=self.fraction,
            labels=self.labels,
            **shared,
        )


@dataclass(frozen=True)
class Moving(Training):
    """The same with scores that move with the network, in the place of labels that are drawn and held."""

    labels: ClassVar[Labels] = "moving"


@dataclass(frozen=True)
class PartOfBatch(Cell):
    """Behind BatchNorm a part of a batch sees statistics of its own: what that does to the curvature it estimates."""

    training: Training
    batch: int
    draws: int

    def run(self) -> dict[str, Any]:
        """Mean and standard error of the curvature term, by the part of the batch, for a network of one epoch."""
        train, *_ = self.training._images()
        torch.manual_seed(self.training.seed)
        vl = self.training._objective(train)
        assert isinstance(vl, VL)
        optimizer = torch.optim.Adam(vl.param_groups(self.training.size.lr), fused=True)
        loader = batches(train, self.training.size.batch, shuffle=True, seed=self.training.seed)
        fit(vl, optimizer, loader, epochs=1, seed=self.training.seed, progress=False)
        x, y = train[: self.batch]
        found: dict[str, Any] = {}
        for part in (1.0, 0.5, 0.25, 0.125):
            vl.fraction = part
            with torch.no_grad(), vl.network.frozen_statistics():
                plain = -vl.likelihood.log_prob(vl.network.mean(x), y).mean()
                drawn = torch.stack([vl.parts(x, y)[0] - plain for _ in range(self.draws)]).double()
            found[f"{part:g}"] = {"mean": drawn.mean().item(), "error": drawn.std().item() / math.sqrt(self.draws)}
        return found


@torch.no_grad()
def _gap(objective: VL, parts: list[tuple[Tensor, ...]]) -> float:
    """How far VL's expected loss is below that of drawn weights, nats per datum, both with the batch's statistics."""
    objective.train()
    total = 0.0
    for x, y in parts:
        with objective.network.frozen_statistics():
            expected, _, _ = objective.parts(x, y)
            drawn = [
                -objective.likelihood.log_prob(objective.network(params, x), y).mean()
                for params in objective.posterior.draws(DRAWS, seed=0)
            ]
        total += float(torch.stack(drawn).mean() - expected)
    return total / len(parts)


def _scores(prefix: str, pred: ClassPredictive, y: Tensor) -> dict[str, float]:
    return {
        f"{prefix}_nll": -pred.log_prob(y).double().mean().item(),
        f"{prefix}_accuracy": metrics.accuracy(pred.probs, y),
        f"{prefix}_ece": metrics.ece(pred.probs, y, bins=15),
    }
