"""Figure 2: whether training stops before the scales have converged, and what that does to VI and VL."""

import math
from collections.abc import Sequence
from typing import ClassVar

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.verdict import Verdict
from credent.papers.vl.settings import NAMES, SIZES, datasets, described, needs
from credent.papers.vl.training import Training
from credent.report import Figure, Section, plots

MULTIPLIERS = (1.0, 3.0, 10.0, 30.0)
_BETAS = (1.0, 0.1)
METHODS = ("vi", "vl")


class Figure2(Experiment):
    """Rates of log sigma."""

    name = "vl/figure2"
    title = "Early stopping: the rate of log sigma"
    about = (
        "Figure 2: at a multiplier of 1 the ELBO of VI has not converged. With a larger one VI's ELBO rises and its"
        " test performance falls; VL is robust to the multiplier."
    )
    takes: ClassVar = {Scale.SMOKE: "1 min", Scale.CPU: "12 min on 2 cores"}

    def setting(self, scale: Scale) -> str:
        """See `settings`."""
        return described(scale) + f" Here on {NAMES[self._data(scale)]}, one seed."

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """One data set."""
        return needs((self._data(scale),))

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Two methods, two betas, four multipliers."""
        return [self._cell(scale, method, beta, m) for beta in _BETAS for m in MULTIPLIERS for method in METHODS]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """ELBO over epochs, and the final numbers against the multiplier, for each beta."""
        return tuple(Section(f"beta {beta:g}", self._figures(scale, beta, results)) for beta in _BETAS)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """The three claims, at beta 1; one seed, so the sizes stand for themselves."""
        if scale is Scale.SMOKE:
            return (
                Verdict(
                    "VI is sensitive to the rate of log sigma, VL is not", "not testable at this scale", "Two epochs."
                ),
            )

        def change(method: str, name: str) -> float:
            ends = [results[self._cell(scale, method, 1.0, m)] for m in (1.0, 30.0)]
            return float(ends[1][name]) - float(ends[0][name]) if all(ends) else float("nan")

        vi, vl = change("vi", "test_mean_nll"), change("vl", "test_mean_nll")
        elbo = change("vi", "elbo")
        return (
            _said("VI's ELBO rises with the multiplier, 1 to 30", elbo, f"by {elbo:+.3f} nats per datum"),
            _said("VI's test NLL gets worse with it", vi, f"changes by {vi:+.3f} nats"),
            _said("VL's test NLL changes less than VI's", abs(vi) - abs(vl), f"VL {vl:+.3f}, VI {vi:+.3f} nats"),
        )

    def _figures(self, scale: Scale, beta: float, results: Results) -> tuple[Figure, ...]:
        epochs = list(range(1, SIZES[scale].epochs + 1))
        found = []
        for method in METHODS:
            named = {
                f"multiplier {m:g}": (epochs, list(result["elbos"]))
                for m in MULTIPLIERS
                if (result := results[self._cell(scale, method, beta, m)])
            }
            caption = "A curve that still rises at the end has not converged; only the rate of log sigma differs."
            found.append(plots.curves(f"ELBO of {method.upper()}", named, "epoch", "nats per datum", caption))
        for name, label in (
            ("test_mean_nll", "Final test NLL (nats)"),
            ("test_mean_accuracy", "Final test accuracy"),
            ("test_mean_ece", "Final test ECE"),
            ("elbo", "Final ELBO (nats per datum)"),
            ("still_moving", "Share of scales still moving"),
        ):
            lines = {
                method.upper(): (
                    list(MULTIPLIERS),
                    [results[self._cell(scale, method, beta, m)].get(name, float("nan")) for m in MULTIPLIERS],
                )
                for method in METHODS
            }
            found.append(plots.curves(label, lines, "multiplier of log sigma's rate", label, "Mean network."))
        return tuple(found)

    def _data(self, scale: Scale) -> str:
        return "digits" if scale is Scale.SMOKE else datasets(scale)[1]

    def _cell(self, scale: Scale, method: str, beta: float, multiplier: float) -> Training:
        return Training(self._data(scale), method, beta, SIZES[scale], 0, multiplier)  # type: ignore[arg-type]


def _said(claim: str, size: float, evidence: str) -> Verdict:
    if math.isnan(size):
        return Verdict(claim, "not testable at this scale", "Some of the runs are missing.")
    return Verdict(claim, "replicated" if size > 0 else "not replicated", f"{evidence}, one seed.")
