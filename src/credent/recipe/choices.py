"""What a recipe can name: models, methods, priors and families."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from credent import families, models, priors
from credent.data import Data
from credent.errors import InputError
from credent.objectives.vi import Family
from credent.penalty import Description

MODELS = {
    "mlp": "fully connected: 400-400 for images, 100-100 for digits, 50-50 for curves and tables",
    "lenet5": "LeNet-5 for 28x28 or 32x32 images",
    "resnet20": "ResNet-20 for 32x32 images, with BatchNorm",
    "resnet18": "ResNet-18 for 32x32 images, with BatchNorm",
    "preact_resnet18": "PreActResNet-18 for 32x32 images, with BatchNorm",
    "densenet121": "DenseNet-121 for 32x32 images, with BatchNorm",
    "vgg16": "VGG-16 for 32x32 images, with BatchNorm",
}
METHODS = {
    "map": "one setting of the weights, the most probable one",
    "vi": "variational inference: a distribution over the weights",
    "vl": "Variational Laplace: the same without drawing weights in training",
    "sgld": "Langevin dynamics: draws from the posterior along a noisy walk",
    "psgld": "the same, each weight with a step of its own, as in RMSprop",
    "bnp": "the same, steps by the inputs of each layer, as batch normalisation would have them",
}
OPTIMISERS = {
    "adam": "Adam for all parameters",
    "muon": "optim.Muon for matrices and convolutions, Adam beside it",
}
SCHEDULES = {
    "cosine": "the rate falls to zero along a cosine, and the last weights are taken",
    "average": "the rate is constant, and the average of the weights is taken",
}
SAMPLERS = ("sgld", "psgld", "bnp")
PRIORS: dict[str, Callable[..., Description]] = {
    "gaussian": priors.Gaussian,
    "laplace": priors.Laplace,
    "scale_mixture": priors.ScaleMixture,
    "horseshoe": priors.Horseshoe,
    "node_horseshoe": priors.NodeHorseshoe,
    "self_stabilizing": priors.SelfStabilizing,
    "inverse_reference": priors.InverseReference,
}
FOLLOWING = ("self_stabilizing", "inverse_reference")
"""Priors that follow q: they have no scale to choose, and without a q they are none."""
FAMILIES: dict[str, Callable[[], Family]] = {"gaussian": families.Gaussian, "radial": families.Radial}

_FOR_IMAGES: dict[str, Callable[..., nn.Module]] = {
    "lenet5": models.LeNet5,
    "resnet20": models.ResNet20,
    "resnet18": models.ResNet18,
    "preact_resnet18": models.PreActResNet18,
    "densenet121": models.DenseNet121,
    "vgg16": models.VGG16,
}


def network(model: str, data: Data, outputs: int) -> nn.Module:
    """The model for inputs like these, freshly initialised."""
    size = math.prod(data.shape)
    image = len(data.shape) == 3
    if model == "mlp":
        width = 50 if not image else 100 if size < 784 else 400
        return models.MLP(size, outputs, (width, width))
    if not image or min(data.shape[1:]) < 28:
        raise InputError(
            f"{model} is for images of 28x28 and more, and {data.name} has shape {data.shape}: --model mlp."
        )
    # channels last: convolutions on a CPU take 0.8 of the time, and the numbers are the same but for rounding
    net = _FOR_IMAGES[model](outputs, in_channels=data.shape[0])
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def prior(name: str, scale: str | None) -> Description:
    """The prior of that name; those that follow q take no scale."""
    options: dict[str, Any] = {}
    if scale is not None:
        options["scale"] = scale if scale in ("fan_in", "kaiming", "glorot") else number("prior_scale", scale)
    return PRIORS[name](**options)


def number(field: str, text: str) -> float:
    """A field that is a number unless it is one of its words."""
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"{field}={text!r}: neither a number nor one of the words that `credent fit --help` lists."
        ) from None
