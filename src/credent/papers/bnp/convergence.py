"""Figure 4.2: test accuracy over training, and how early it comes."""

import numpy as np

from credent.papers.bnp.settings import ARMS, SIZES, TITLES, ResNet
from credent.papers.bnp.training import NAMES, Method, Norm
from credent.papers.experiment import Results, Scale
from credent.papers.seeds import estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Figure, Section, Table, plots

CLOSE = 0.01


class Figure4_2(ResNet):
    """Convergence."""

    name = "bnp/figure4_2"
    title = "ResNet-20 on CIFAR-100: convergence"
    about = (
        "Figure 4.2: BNP converges faster than SGLD and has a comparable final test accuracy. pSGLD at one rate"
        " converges faster than SGLD and gains less when the rate falls, at the other it is as slow as SGLD."
    )

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Accuracy and loss over epochs, early and final numbers, for each kind of network."""
        columns = (
            Column("method"),
            Column("early test accuracy", "%", "higher"),
            Column("early training NLL", "nats", "lower"),
            Column("final test accuracy", "%", "higher"),
            Column("final training NLL", "nats", "lower"),
        )
        found = []
        for norm, methods in ARMS.items():
            rows = tuple(
                (
                    NAMES[method],
                    estimate(self._early(scale, norm, method, "test_accuracies", results)),
                    estimate(self._early(scale, norm, method, "losses", results)),
                    estimate(self.numbers(scale, norm, method, "test_last", results)),
                    estimate({s: r["losses"][-1] for s, r in self.finished(scale, norm, method, results).items()}),
                )
                for method in methods
            )
            table = Table(f"Early: the mean over the first {self._third(scale)} epochs", columns, rows)
            figures = (
                self._curves(scale, norm, "test_accuracies", "Test accuracy", results),
                self._curves(scale, norm, "losses", "Training NLL (nats)", results),
            )
            found.append(Section(TITLES[norm], (*figures, table)))
        return tuple(found)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Faster than each other sampler, by accuracy and by loss; and not worse in the end."""
        found = []
        for norm in ARMS:

            def early(method: Method, name: str, norm: Norm = norm) -> dict[int, float]:
                return self._early(scale, norm, method, name, results)

            others = self.others(norm)
            found += [
                together(
                    f"{TITLES[norm]}: BNP's early test accuracy is above that of the other samplers",
                    *(lower(NAMES[m], early(m, "test_accuracies"), early("bnp", "test_accuracies")) for m in others),
                ),
                together(
                    f"{TITLES[norm]}: BNP's early training NLL is below that of the other samplers",
                    *(lower(NAMES[m], early("bnp", "losses"), early(m, "losses")) for m in others),
                ),
                lower(
                    f"{TITLES[norm]}: BNP's final test accuracy is at most a point below SGLD's",
                    {
                        seed: value - CLOSE
                        for seed, value in self.numbers(scale, norm, "sgld", "test_last", results).items()
                    },
                    self.numbers(scale, norm, "bnp", "test_last", results),
                ),
            ]
        return tuple(found)

    def _third(self, scale: Scale) -> int:
        return -(-SIZES[scale].epochs // 3)

    def _early(self, scale: Scale, norm: Norm, method: Method, name: str, results: Results) -> dict[int, float]:
        found = self.finished(scale, norm, method, results)
        return {seed: float(np.mean(result[name][: self._third(scale)])) for seed, result in found.items()}

    def _curves(self, scale: Scale, norm: Norm, name: str, label: str, results: Results) -> Figure:
        epochs = np.arange(1, SIZES[scale].epochs + 1)
        lines = {}
        for method in ARMS[norm]:
            each = [result[name] for result in self.finished(scale, norm, method, results).values()]
            if each:
                lines[NAMES[method]] = (epochs, np.mean(each, 0))
        return plots.curves(label, lines, "epoch", label, "Mean over seeds, of the network at the end of each epoch.")
