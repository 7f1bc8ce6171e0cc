"""Table 1 and Figure 1: how well MAP, VI and VL predict, over beta."""

import math
from collections.abc import Sequence
from typing import ClassVar

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.seeds import by_seed, estimate
from credent.papers.verdict import Verdict, lower, together
from credent.papers.vl.settings import BETAS, NAMES, SEEDS, SIZES, datasets, described, needs, seeds
from credent.papers.vl.training import Training
from credent.report import Column, Estimate, Section, Table, plots
from credent.report.numbers import Value

ROWS = {
    "VL (mean)": ("vl", "mean"),
    "VL (linearised)": ("vl", "linearised"),
    "VL (10 samples)": ("vl", "sampled"),
    "VI (mean)": ("vi", "mean"),
    "VI (10 samples)": ("vi", "sampled"),
    "MAP": ("map", "mean"),
}
PUBLISHED = {
    "cifar10": {
        "VL (mean)": (0.23, 0.924, 0.017),
        "VI (mean)": (0.37, 0.911, 0.053),
        "VI (10 samples)": (0.35, 0.902, 0.044),
        "MAP": (0.43, 0.908, 0.058),
    },
    "cifar100": {
        "VL (mean)": (1.00, 0.714, 0.024),
        "VI (mean)": (1.29, 0.688, 0.100),
        "VI (10 samples)": (1.49, 0.673, 0.026),
        "MAP": (1.61, 0.675, 0.159),
    },
    "svhn": {
        "VL (mean)": (0.14, 0.971, 0.009),
        "VI (mean)": (0.16, 0.963, 0.012),
        "VI (10 samples)": (0.22, 0.955, 0.022),
        "MAP": (0.24, 0.957, 0.028),
    },
    "fashion_mnist": {
        "VL (mean)": (0.16, 0.946, 0.010),
        "VI (mean)": (0.23, 0.940, 0.034),
        "VI (10 samples)": (0.29, 0.936, 0.016),
        "MAP": (0.29, 0.936, 0.096),
    },
}
SCORES = {"nll": "NLL (nats)", "accuracy": "accuracy", "ece": "ECE"}


class _Grid(Experiment):
    """Every method at every beta."""

    takes: ClassVar = {Scale.SMOKE: "1 min", Scale.CPU: "45 min on 2 cores, shared by table1 and figure1"}

    def setting(self, scale: Scale) -> str:
        """See `settings`."""
        return described(scale)

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """The paper's data sets."""
        return needs(datasets(scale))

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Three methods, all betas, all data sets."""
        return [
            Training(data, method, beta, SIZES[scale], seed)
            for seed in SEEDS[scale]
            for data in datasets(scale)
            if seed in seeds(scale, data)
            for beta in BETAS[scale]
            for method in ("map", "vi", "vl")
        ]


class Table1(_Grid):
    """The best beta of each method."""

    name = "vl/table1"
    title = "MAP, VI and VL on four data sets"
    about = (
        "Table 1: at its best beta VL has lower test NLL, higher accuracy and lower ECE than VI and MAP on every data"
        " set. Our beta is the one with the lowest validation NLL, for each method and predictive on its own."
    )

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """A table a data set, and the three predictives of VL on validation images."""
        return (
            *(Section(NAMES[data], (self._table(scale, data, results),)) for data in datasets(scale)),
            Section("Which predictive", (self._predictives(scale, results),)),
        )

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """VL below MAP and both VIs, in NLL and ECE, for each data set."""
        return tuple(
            together(
                f"{NAMES[data]}: VL's {SCORES[score]} is below that of MAP and VI",
                *(
                    lower(f"below {row}", self._best(scale, data, "VL (mean)", score, results), other)
                    for row in ("VI (mean)", "VI (10 samples)", "MAP")
                    if (other := self._best(scale, data, row, score, results)) is not None
                ),
            )
            for data in datasets(scale)
            for score in ("nll", "ece")
        )

    def _table(self, scale: Scale, data: str, results: Results) -> Table:
        columns = [Column("method"), Column("beta")]
        for label, better in (("NLL", "lower"), ("accuracy", "higher"), ("ECE", "lower")):
            unit = "nats" if label == "NLL" else "%"
            columns += [Column(label, unit, better), Column(f"{label}, published", unit)]  # type: ignore[arg-type]
        rows: list[tuple[Value, ...]] = []
        for row in ROWS:
            cells: list[Value] = [row, f"{self._beta(scale, data, row, results):g}"]
            claims = PUBLISHED.get(data, {}).get(row, (None, None, None))
            for score, claim in zip(SCORES, claims, strict=True):
                cells += [estimate(self._best(scale, data, row, score, results)), claim]
            rows.append(tuple(cells))
        return Table(f"{NAMES[data]}, test images", tuple(columns), tuple(rows))

    def _predictives(self, scale: Scale, results: Results) -> Table:
        scores = ("nll", "ece", "auroc")
        columns = (Column("data"), Column("beta"), Column("predictive"), *(Column(s, "", "") for s in scores))
        rows: list[tuple[Value, ...]] = [
            (
                NAMES[data],
                f"{beta:g}",
                row,
                *(estimate(by_seed(results, f"val_{how}_{s}", **_fields(scale, data, method, beta))) for s in scores),
            )
            for data in datasets(scale)
            for beta in BETAS[scale]
            for row, (method, how) in ROWS.items()
            if method == "vl"
        ]
        return Table("VL's predictives on validation images; AUROC against images of another set", columns, tuple(rows))

    def _beta(self, scale: Scale, data: str, row: str, results: Results) -> float:
        """The beta with the lowest validation NLL."""
        method, how = ROWS[row]

        def surprise(beta: float) -> float:
            mean = estimate(by_seed(results, f"val_{how}_nll", **_fields(scale, data, method, beta)))
            return math.inf if mean is None or math.isnan(mean.value) else mean.value

        return min(BETAS[scale], key=surprise)

    def _best(self, scale: Scale, data: str, row: str, score: str, results: Results) -> dict[int, float]:
        method, how = ROWS[row]
        beta = self._beta(scale, data, row, results)
        return by_seed(results, f"test_{how}_{score}", **_fields(scale, data, method, beta))


class Figure1(_Grid):
    """The same runs over beta."""

    name = "vl/figure1"
    title = "Test accuracy, log-likelihood and ECE against beta"
    about = "Figure 1: for many values of beta VL has better accuracy, log-likelihood and ECE than VI and MAP."

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Three curves a data set, and how far VL's bound is from the sampled one."""
        xs = [math.log10(beta) for beta in BETAS[scale]]
        found = []
        for data in datasets(scale):
            figures = []
            for score, label in {
                "accuracy": "Test accuracy",
                "nll": "Test log-likelihood (nats)",
                "ece": "ECE",
            }.items():
                sign = -1.0 if score == "nll" else 1.0
                named = {
                    row: (
                        xs,
                        [
                            sign * _value(by_seed(results, f"test_{how}_{score}", **_fields(scale, data, method, b)))
                            for b in BETAS[scale]
                        ],
                    )
                    for row, (method, how) in ROWS.items()
                }
                caption = "Means over seeds; the weight of the KL grows to the right, and 1 is Bayes' rule."
                figures.append(plots.curves(label, named, "log10 of beta", label, caption))
            found.append(Section(NAMES[data], tuple(figures)))
        gaps = {
            NAMES[data]: (xs, [_value(by_seed(results, "gap", **_fields(scale, data, "vl", b))) for b in BETAS[scale]])
            for data in datasets(scale)
        }
        caption = (
            "Expected loss of drawn weights less what VL's quadratic says of it. Near zero the quadratic holds where q"
            " has its mass; far above, drawn weights leave the region that it describes, and should not be used."
        )
        figure = plots.curves(
            "How far VL's bound is from the sampled one", gaps, "log10 of beta", "nats per datum", caption
        )
        return (*found, Section("The quadratic", (figure,)))

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """At each beta VL's NLL against MAP's and VI's."""
        found = []
        for data in datasets(scale):
            for beta in BETAS[scale]:
                ours = by_seed(results, "test_mean_nll", **_fields(scale, data, "vl", beta))
                others = {
                    row: by_seed(results, f"test_{how}_nll", **_fields(scale, data, method, beta))
                    for row, (method, how) in ROWS.items()
                    if method != "vl"
                }
                claim = f"{NAMES[data]}, beta {beta:g}: VL's NLL is below that of MAP and VI"
                found.append(together(claim, *(lower(f"below {row}", ours, other) for row, other in others.items())))
        return tuple(found)


def _fields(scale: Scale, data: str, method: str, beta: float) -> dict[str, object]:
    return {"data": data, "method": method, "beta": beta, "size": SIZES[scale]}


def _value(numbers: dict[int, float]) -> float:
    mean: Estimate | None = estimate(numbers)
    return math.nan if mean is None else mean.value
