"""Figure 4.3: condition numbers of the online empirical Fisher matrix, convolution by convolution."""

import math

import numpy as np

from credent.papers.bnp.settings import ARMS, TITLES, ResNet
from credent.papers.bnp.training import NAMES, Method, Norm
from credent.papers.experiment import Results, Scale
from credent.papers.seeds import estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Figure, Section, Table, plots

KINDS = {
    "elementwise": "largest over smallest diagonal entry",
    "percentiles": "95th over 5th percentile of the diagonal",
    "full": "largest over smallest eigenvalue of F",
    "preconditioned": "the same of P' F P",
    "preconditioned_elementwise": "largest over smallest diagonal entry of P' F P",
}
SHOWN = (1, 10, 19)
LAYERS = 19


class Figure4_3(ResNet):
    """Condition numbers."""

    name = "bnp/figure4_3"
    title = "ResNet-20 on CIFAR-100: condition of the Fisher matrix"
    about = (
        "Figure 4.3: in all 19 convolutions the condition number of the running mean of squared gradients is lower"
        " under BNP than under SGLD. It is the paper's stand-in for the Fisher matrix, a vector: largest over smallest"
        " entry. Its theory is about P' F P, which we give beside it, from full matrices of one channel."
    )

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Every kind, mean over layers and in three of them, and the paper's over epochs."""
        found = []
        for norm, methods in ARMS.items():
            columns = (Column("method"), *(Column(kind.replace("_", ", ")) for kind in KINDS))
            rows = tuple(
                (NAMES[m], *(estimate(self._mean(scale, norm, m, kind, results)) for kind in KINDS)) for m in methods
            )
            said = "; ".join(f"{kind.replace('_', ', ')}: {what}" for kind, what in KINDS.items())
            table = Table(f"log10 at the end, mean over the {LAYERS} convolutions. {said}", columns, rows)
            columns = (Column("convolution"), *(Column(NAMES[m]) for m in methods))
            rows = tuple(
                (
                    f"{layer}, {kind.replace('_', ', ')}",
                    *(estimate(self._last(scale, norm, m, kind, layer, results)) for m in methods),
                )
                for layer in SHOWN
                for kind in KINDS
            )
            figures = (self._curves(scale, norm, layer, results) for layer in SHOWN)
            found.append(
                Section(TITLES[norm], (table, *figures, Table("log10 at the end, the paper's layers", columns, rows)))
            )
        return tuple(found)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """All layers, as the paper has it; and the mean over layers of its number and of that of its theory."""
        found = []
        for norm, title in TITLES.items():
            found.append(self._all(scale, norm, results))
            for kind in ("elementwise", "percentiles", "preconditioned"):
                bnp, sgld = (self._mean(scale, norm, m, kind, results) for m in ("bnp", "sgld"))
                claim = f"{title}: BNP's {KINDS[kind]}, log10, mean over layers, is below SGLD's"
                found.append(lower(claim, bnp, sgld))
        return tuple(found)

    def _all(self, scale: Scale, norm: Norm, results: Results) -> Verdict:
        claim = f"{TITLES[norm]}: BNP's {KINDS['elementwise']} is below SGLD's in all {LAYERS} convolutions"
        layers = range(1, LAYERS + 1)
        bnp, sgld = (
            [self._last(scale, norm, m, "elementwise", layer, results) for layer in layers] for m in ("bnp", "sgld")
        )
        each = [lower(f"Convolution {k}", a, b) for k, a, b in zip(layers, bnp, sgld, strict=True)]
        outcome = together(claim, *each).outcome
        if outcome == "not testable at this scale":
            return Verdict(claim, outcome, "One seed, or numbers that are infinite or missing.")
        below = sum(verdict.outcome == "replicated" for verdict in each)
        gaps = [np.mean([a[s] - b[s] for s in a.keys() & b.keys()]) for a, b in zip(bnp, sgld, strict=True)]
        said = (
            f"By more than two standard errors of the paired difference in {below} of {LAYERS}; log10 differs by"
            f" {np.nanmin(gaps):+.2f} to {np.nanmax(gaps):+.2f} on average, over {len(bnp[0])} seeds."
        )
        return Verdict(claim, outcome, said)

    def _series(
        self, scale: Scale, norm: Norm, method: Method, kind: str, layer: int, results: Results
    ) -> dict[int, list[float]]:
        """Log10 at each look, by seed."""
        found = {}
        for seed, result in self.finished(scale, norm, method, results).items():
            layers = list(result["conditions"]["layers"].values())
            found[seed] = [math.log10(float(value)) for value in layers[layer - 1][kind]]
        return found

    def _last(
        self, scale: Scale, norm: Norm, method: Method, kind: str, layer: int, results: Results
    ) -> dict[int, float]:
        return {seed: each[-1] for seed, each in self._series(scale, norm, method, kind, layer, results).items()}

    def _mean(self, scale: Scale, norm: Norm, method: Method, kind: str, results: Results) -> dict[int, float]:
        """Over layers, by seed."""
        each = [self._last(scale, norm, method, kind, layer, results) for layer in range(1, LAYERS + 1)]
        return {seed: float(np.mean([layer[seed] for layer in each])) for seed in each[0]}

    def _curves(self, scale: Scale, norm: Norm, layer: int, results: Results) -> Figure:
        lines = {}
        for method in ARMS[norm]:
            finished = self.finished(scale, norm, method, results)
            if finished:
                epochs = next(iter(finished.values()))["conditions"]["epochs"]
                each = self._series(scale, norm, method, "elementwise", layer, results)
                lines[NAMES[method]] = (epochs, np.mean(list(each.values()), 0))
        caption = "Largest over smallest entry of the running mean of squared gradients, mean over channels and seeds."
        return plots.curves(f"Convolution {layer}", lines, "epoch", "log10 of the condition number", caption)
