"""Table 4.1: accuracy of the Bayesian model average."""

from credent.papers.bnp.settings import ARMS, TITLES, ResNet
from credent.papers.bnp.training import NAMES, Method
from credent.papers.experiment import Results, Scale
from credent.papers.seeds import estimate
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Section, Table

PUBLISHED: dict[Method, float] = {"bnp": 0.6968, "sgld": 0.6964, "psgld": 0.6959}
CLOSE = 0.01


class Table4_1(ResNet):
    """Model averages."""

    name = "bnp/table4_1"
    title = "ResNet-20 on CIFAR-100: Bayesian model average"
    about = (
        "Table 4.1: model averages of BNP, SGLD and pSGLD are right on 69.68, 69.64 and 69.59 % of the test images: BNP"
        " is slightly better, and all are comparable. Which of its two pSGLDs the paper means, it does not say."
    )

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Scores of the average beside the last network's."""
        columns = (
            Column("method"),
            Column("average", "%", "higher"),
            Column("published", "%"),
            Column("last network", "%", "higher"),
            Column("NLL of the average", "nats", "lower"),
            Column("draws"),
        )
        found = []
        for norm, methods in ARMS.items():
            rows = []
            for method in methods:
                accuracy, last, nll = (
                    estimate(self.numbers(scale, norm, method, name, results))
                    for name in ("test_accuracy", "test_last", "test_nll")
                )
                draws = {int(n) for n in self.numbers(scale, norm, method, "draws", results).values()}
                claim = PUBLISHED.get(method)
                rows.append((NAMES[method], accuracy, claim, last, nll, max(draws, default=None)))
            found.append(Section(TITLES[norm], (Table("Test images", columns, tuple(rows)),)))
        return tuple(found)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Better; comparable; and better than one network."""
        found = []
        for norm in ARMS:
            score = {
                method: self.numbers(scale, norm, method, "test_accuracy", results)
                for method in (*self.others(norm), "bnp")
            }
            less = {m: {seed: value - CLOSE for seed, value in score[m].items()} for m in self.others(norm)}
            last = self.numbers(scale, norm, "bnp", "test_last", results)
            found += [
                together(
                    f"{TITLES[norm]}: BNP's average is right more often than the other samplers'",
                    *(lower(NAMES[m], score[m], score["bnp"]) for m in self.others(norm)),
                ),
                together(
                    f"{TITLES[norm]}: BNP's average is at most a point below the other samplers'",
                    *(lower(NAMES[m], less[m], score["bnp"]) for m in self.others(norm)),
                ),
                lower(f"{TITLES[norm]}: BNP's average is right more often than its last network", last, score["bnp"]),
            ]
        return tuple(found)
