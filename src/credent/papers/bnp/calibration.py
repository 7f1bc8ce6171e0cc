"""Figure 4.4: calibration of the model averages, over chains."""

from dataclasses import replace

import numpy as np

from credent.papers.bnp.settings import ARMS, TITLES, ResNet
from credent.papers.bnp.training import BINS, NAMES, Method, Norm
from credent.papers.experiment import Results, Scale
from credent.papers.seeds import estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Figure, Section, Table, plots

PUBLISHED: dict[Method, float] = {"bnp": 0.0858, "sgld": 0.1044, "psgld": 0.1067}


class Figure4_4(ResNet):
    """Calibration."""

    name = "bnp/figure4_4"
    title = "ResNet-20 on CIFAR-100: calibration"
    about = (
        "Figure 4.4: all models are overconfident; BNP has an ECE of 8.58 %, pSGLD of 10.67 % and SGLD of 10.44 % (the"
        " paper once prints BN for SGLD), and the lowest MCE, in ten bins."
    )

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """ECE and MCE, and a reliability diagram for each method over all of its chains."""
        columns = (
            Column("method"),
            Column("ECE", "%", "lower"),
            Column("ECE, published", "%"),
            Column("MCE", "%", "lower"),
            Column("confidence less accuracy", "%"),
        )
        found = []
        for norm, methods in ARMS.items():
            rows = tuple(
                (
                    NAMES[method],
                    estimate(self.numbers(scale, norm, method, "test_ece", results)),
                    PUBLISHED.get(method),
                    estimate(self.numbers(scale, norm, method, "test_mce", results)),
                    estimate(self._excess(scale, norm, method, results)),
                )
                for method in methods
            )
            table = Table(f"Test images, {BINS} bins; a bin of few images makes MCE large", columns, rows)
            figures = [self._diagram(scale, norm, method, results) for method in methods if method != "sgd"]
            found.append(Section(TITLES[norm], (table, *(figure for figure in figures if figure is not None))))
        return tuple(found)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """BNP's errors are lower; everyone is overconfident."""
        found = []
        for norm in ARMS:
            for name, label in (("test_ece", "ECE"), ("test_mce", "MCE")):
                score = {m: self.numbers(scale, norm, m, name, results) for m in ARMS[norm]}
                claim = f"{TITLES[norm]}: BNP's {label} is below that of the other samplers"
                found.append(together(claim, *(lower(NAMES[m], score["bnp"], score[m]) for m in self.others(norm))))
            excess = {m: self._excess(scale, norm, m, results) for m in (*self.others(norm), "bnp")}
            found.append(
                together(
                    f"{TITLES[norm]}: every sampler is overconfident, its confidence above its accuracy",
                    *(lower(NAMES[m], dict.fromkeys(each, 0.0), each) for m, each in excess.items()),
                )
            )
        return tuple(found)

    def _excess(self, scale: Scale, norm: Norm, method: Method, results: Results) -> dict[int, float]:
        """Mean confidence less accuracy."""
        found = {}
        for seed, result in self.finished(scale, norm, method, results).items():
            count, confidence, correct = (_floats(result[k]) for k in ("count", "confidence", "correct"))
            found[seed] = float(np.nansum(count * (confidence - correct)) / count.sum())
        return found

    def _diagram(self, scale: Scale, norm: Norm, method: Method, results: Results) -> Figure | None:
        """All chains in one diagram, each image counted once for each."""
        chains = list(self.finished(scale, norm, method, results).values())
        if not chains:
            return None
        each = {k: np.array([_floats(result[k]) for result in chains]) for k in ("count", "confidence", "correct")}
        count = each["count"].sum(0)
        total = np.where(count > 0, count, np.nan)
        confidence, correct = (np.nansum(each["count"] * each[k], 0) / total for k in ("confidence", "correct"))
        edges = np.linspace(0, 1, BINS + 1)
        ece = float(np.nansum(count * abs(correct - confidence)) / count.sum())
        figure = plots.reliability_diagram(edges[:-1], edges[1:], confidence, correct, count, ece)
        return replace(figure, title=f"{NAMES[method]}, {len(chains)} chain{'s' if len(chains) > 1 else ''}")


def _floats(values: list[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64)
