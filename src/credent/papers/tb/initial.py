"""Figure A.1: how wide the posterior begins."""

from typing import ClassVar

import numpy as np

from credent.papers.experiment import Results, Scale
from credent.papers.tb.comparison import Arms, Comparison
from credent.papers.tb.settings import NAMES, datasets
from credent.papers.verdict import Verdict, lower

RHOS = {f"rho = {rho:g}": rho for rho in (-10.0, -7.0, -5.0, -3.0, -1.0)}


class FigureA_1(Comparison):
    """Five first scales."""

    name = "tb/figureA_1"
    title = "The first scales of the posterior"
    about = (
        "Figure A.1: sigma = ln(1 + e^rho) at first. Too large a value makes for poor performance, too small a one"
        " loses what is Bayesian about the network; the thesis takes rho = -10."
    )
    takes: ClassVar = {Scale.CPU: "3 min on 2 cores beyond figure 1.2"}
    shown = ("accuracies", "losses", "kls")

    def data(self, scale: Scale) -> tuple[str, ...]:
        """The harder one."""
        return datasets(scale)[-1:]

    def arms(self, scale: Scale, data: str) -> Arms:
        """Five."""
        return {name: {"rho": rho} if rho != -10 else {} for name, rho in RHOS.items()}

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """What is lost at either end."""
        (data,) = self.data(scale)
        at, label = (scale, data, results), NAMES[data]
        narrow, *_, wide, widest = RHOS
        sure = {arm: self._confidence(scale, data, arm, results) for arm in (narrow, wide)}
        return (
            self.below(f"{label}: {widest} less accurate than {narrow}", "accuracy", widest, narrow, at),
            self.below(f"{label}: {wide} less accurate than {narrow}", "accuracy", wide, narrow, at),
            lower(f"{label}: {narrow} surer of pure noise than {wide}", sure[wide], sure[narrow]),
        )

    def _confidence(self, scale: Scale, data: str, arm: str, results: Results) -> dict[int, float]:
        runs = self.runs(scale, data, arm, results)
        return {seed: float(np.mean(run["confidences"])) for seed, run in runs.items() if not run["diverged"]}
