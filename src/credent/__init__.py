"""Make any PyTorch network Bayesian, and see what it does not know.

>>> import torch, credent as cr
>>> net = torch.nn.Linear(3, 2)
>>> bnn = cr.VI(net, cr.likelihoods.Categorical(), prior=cr.priors.Gaussian(), num_data=100)
>>> loss = bnn(torch.zeros(4, 3), torch.tensor([0, 1, 1, 0]))
>>> loss.backward()
>>> bnn.predict(torch.zeros(4, 3), samples=8).probs.shape
torch.Size([4, 2])
"""

from credent import (
    attacks,
    bandits,
    data,
    families,
    fisher,
    likelihoods,
    metrics,
    models,
    objectives,
    optim,
    penalties,
    pictures,
    priors,
    samplers,
    sweeps,
)
from credent.calibrate import calibrate
from credent.equivalence import equivalence
from credent.errors import CredentError
from credent.objectives import MAP, VI, VL
from credent.predict import predict
from credent.smooth import smooth
from credent.sweeps import sweep
from credent.training import Chains, Result, Thin, chains, fit, load, save

__version__ = "0.1.0"

__all__ = [
    "MAP",
    "VI",
    "VL",
    "Chains",
    "CredentError",
    "Result",
    "Thin",
    "attacks",
    "bandits",
    "calibrate",
    "chains",
    "data",
    "equivalence",
    "families",
    "fisher",
    "fit",
    "likelihoods",
    "load",
    "metrics",
    "models",
    "objectives",
    "optim",
    "penalties",
    "pictures",
    "predict",
    "priors",
    "samplers",
    "save",
    "smooth",
    "sweep",
    "sweeps",
]
