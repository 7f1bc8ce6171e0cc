"""Make any PyTorch network Bayesian, and see what it does not know.

>>> import torch, credent as cr
>>> net = torch.nn.Linear(3, 2)
>>> bnn = cr.VI(net, cr.likelihoods.Categorical(), prior=cr.priors.Gaussian(), num_data=100)
>>> loss = bnn(torch.zeros(4, 3), torch.tensor([0, 1, 1, 0]))
>>> loss.backward()
>>> bnn.predict(torch.zeros(4, 3), samples=8).probs.shape
torch.Size([4, 2])
"""

from credent import data, families, likelihoods, metrics, models, objectives, penalties, priors, samplers
from credent.equivalence import equivalence
from credent.errors import CredentError
from credent.objectives import MAP, VI, VL
from credent.predict import predict
from credent.smooth import smooth
from credent.training import Result, Thin, fit, load, save

__version__ = "0.1.0"

__all__ = [
    "MAP",
    "VI",
    "VL",
    "CredentError",
    "Result",
    "Thin",
    "data",
    "equivalence",
    "families",
    "fit",
    "likelihoods",
    "load",
    "metrics",
    "models",
    "objectives",
    "penalties",
    "predict",
    "priors",
    "samplers",
    "save",
    "smooth",
]
