"""Numbers with written definitions: pure functions from tensors to Python floats, computed in float64.

`scores` asks how good the predictions are, `calibration` whether the stated probabilities come true, and `uncertainty`
whether the model is less sure where it is wrong or far from home. Bad input raises `InputError`.
"""

from credent.metrics.calibration import Reliability, classwise_ece, ece, ece_by_chance, mce, reliability
from credent.metrics.chains import ess, rhat
from credent.metrics.scores import accuracy, brier, coverage, crps_mixture, nll, rmse
from credent.metrics.uncertainty import auroc, risk_coverage

__all__ = [
    "Reliability",
    "accuracy",
    "auroc",
    "brier",
    "classwise_ece",
    "coverage",
    "crps_mixture",
    "ece",
    "ece_by_chance",
    "ess",
    "mce",
    "nll",
    "reliability",
    "rhat",
    "risk_coverage",
    "rmse",
]
