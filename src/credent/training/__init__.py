"""The one loop, its checkpoints and what it keeps."""

from credent.training.fit import fit
from credent.training.result import Result
from credent.training.saving import load, save
from credent.training.thin import Thin

__all__ = ["Result", "Thin", "fit", "load", "save"]
