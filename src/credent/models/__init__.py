"""The networks of the papers, as plain `nn.Module`s with a `body` and a linear `head`.

The head has one name in all of them, so `random="head.*"` makes the last layer Bayesian whatever the network.
"""

from credent.models.cvnn import CVNN
from credent.models.densenet import DenseNet121
from credent.models.lenet import LeNet5
from credent.models.mlp import MLP
from credent.models.preact_resnet import PreActResNet18
from credent.models.resnet import ResNet20
from credent.models.resnet18 import ResNet18
from credent.models.vgg import VGG11, VGG13, VGG16, VGG19

__all__ = [
    "CVNN",
    "MLP",
    "VGG11",
    "VGG13",
    "VGG16",
    "VGG19",
    "DenseNet121",
    "LeNet5",
    "PreActResNet18",
    "ResNet18",
    "ResNet20",
]
