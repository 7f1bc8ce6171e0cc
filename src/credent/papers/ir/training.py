"""One run of the inverse-reference paper: a radial posterior under one of the priors, watched as it trains.

Following the paper: accuracy is the best over epochs on held-out images, and the trace of the Fisher information is
taken along the way, on a fixed set of training images. Attacks are made on the averaged prediction of the last epoch's
posterior, on other images.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from credent import fisher, models, priors
from credent.attacks import FGSM, GREY_LEVELS, PAPER, Averaged, Box, robustness
from credent.cells import Cell
from credent.data import batches
from credent.errors import ConvergenceWarning
from credent.families import Gaussian, Radial
from credent.likelihoods import Categorical
from credent.objectives import VI
from credent.papers.images import Images, Size, images
from credent.penalty import Description
from credent.training import fit

PROBE = 200  # training images for BatchNorm's statistics under attack, and, the first of them, for the Fisher trace
TRACED = 64
EPSILONS = (*(f"{radius:g}" for radius in PAPER), *(f"{round(255 * radius)}/255" for radius in GREY_LEVELS))
"""Names of the attacks' radii."""


@dataclass(frozen=True)
class Training(Cell):
    """One run."""

    data: str
    network: str
    prior: str
    lr: float
    beta: float
    draws: int
    size: Size
    seed: int

    def run(self) -> dict[str, Any]:
        """Validation scores and Fisher trace by epoch, how the scales moved, and accuracy under attack."""
        parts = images(self.data, self.size)
        train, val = parts.train, parts.val
        torch.manual_seed(self.seed)
        net = network(self.network, self.data, train, self.size)
        beta = 0.0 if self.prior == "none" else self.beta
        loader = batches(train, self.size.batch, shuffle=True, seed=self.seed)
        chosen = prior(self.prior, len(loader))
        family = Gaussian() if self.prior == "self_stabilizing" else Radial()
        bnn = VI(net, Categorical(), chosen, num_data=len(train), beta=beta, family=family)
        before = _log_scale(bnn)
        optimizer = torch.optim.Adam(bnn.param_groups(self.lr, self.lr), fused=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # where the scales go is what is asked
            done = fit(
                bnn,
                optimizer,
                loader,
                epochs=self.size.epochs,
                val=batches(val, 250),
                val_samples=self.draws,
                monitors=[fisher.TraceMonitor(train[:TRACED][0], every=len(loader), samples=1, seed=self.seed)],
                log_every=10**9,  # a row an epoch
                seed=self.seed,
                progress=False,
            )
        epochs = [row for row in done.history if "val_accuracy" in row]
        accuracies = [float(row["val_accuracy"]) for row in epochs]
        traces = [float(row["fisher_trace"]) for row in done.history if "fisher_trace" in row]
        found: dict[str, Any] = {
            "accuracies": accuracies,
            "accuracy": max(accuracies),
            "nll": min(float(row["val_nll"]) for row in epochs),
            "traces": traces,
            "max_trace": max(traces),
            "log_scale_change": _log_scale(bnn) - before,
        }
        if self.network == "densenet":
            found["attacks"] = _attacked(bnn, parts, self.draws)
        return found


def network(name: str, data: str, train: TensorDataset, size: Size) -> nn.Module:
    """DenseNet-121, ResNet-18 or VGG-16 for these images; a narrow DenseNet has half the width, for its cost."""
    channels, classes = train[0][0].shape[0], 100 if data == "cifar100" else 10
    if name == "densenet":
        return models.DenseNet121(classes, size.width if size.width == 64 else size.width // 2, channels)
    if name == "resnet":
        return models.ResNet18(classes, size.width, channels)
    return models.VGG16(classes, size.width, channels)


def prior(name: str, steps: int) -> Description:
    """The prior of a row, refreshed after so many steps; without a KL, which one does not matter."""
    found: dict[str, Description] = {
        "horseshoe": priors.Horseshoe(),
        "self_stabilizing": priors.SelfStabilizing(),
        "gaussian": priors.Gaussian(),
        "hybrid": priors.InverseReference(mode="hybrid"),
        "inner": priors.InverseReference(mode="inner", every=steps),
        "none": priors.Gaussian(),
    }
    return found[name]


def _log_scale(bnn: VI) -> float:
    """Mean log standard deviation over all weights."""
    return float(torch.cat([s.flatten() for s in bnn.posterior.stddev().values()]).log().mean())


def _attacked(bnn: VI, parts: Images, draws: int) -> dict[str, dict[str, float]]:
    """Accuracy and drop of the log-likelihood by the attack's radius, on test images."""
    x, y = parts.test[:]
    statistics = [parts.train[:PROBE][0]]
    averaged = Averaged(bnn.net, bnn.posterior, bnn.likelihood, samples=draws, statistics=statistics)
    box = Box(mean=parts.mean, std=parts.std)
    rows = robustness(averaged, x, y, FGSM(), epsilons=(*PAPER, *GREY_LEVELS), box=box).rows
    return {name: {"accuracy": row.score, "drop": row.drop} for name, row in zip(("0", *EPSILONS), rows, strict=True)}
