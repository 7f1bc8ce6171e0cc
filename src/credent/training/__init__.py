"""The one loop, its checkpoints and what it keeps."""

from credent.training.fit import fit
from credent.training.mixing import Chains, Mixing
from credent.training.processes import chains
from credent.training.result import Result
from credent.training.saving import load, save
from credent.training.scale_ratio import ScaleRatio
from credent.training.thin import Thin

__all__ = ["Chains", "Mixing", "Result", "ScaleRatio", "Thin", "chains", "fit", "load", "save"]
