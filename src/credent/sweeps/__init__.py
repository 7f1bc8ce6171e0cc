"""Many runs that differ in a few values: grids, random search and jitter, on all cores or on a cluster.

>>> from credent.sweeps import LogUniform, sweep
>>> vary = {"method": ["map", "vi"], "lr": LogUniform(1e-4, 1e-1)}
>>> done = sweep(vary, "runs/rates", fixed={"data": "digits"}, runs=20, seeds=3)    # doctest: +SKIP
>>> done.best.values                                                                # doctest: +SKIP
{'method': 'vi', 'lr': 0.0041}
"""

from credent.sweeps.done import Sweep, read
from credent.sweeps.ranking import Setting
from credent.sweeps.sweep import sweep
from credent.sweeps.vary import Choice, Jitter, LogUniform, Uniform

__all__ = ["Choice", "Jitter", "LogUniform", "Setting", "Sweep", "Uniform", "read", "sweep"]
