"""The graphs: a penalty beside the KL to its prior, over the mean."""

from collections.abc import Sequence
from typing import ClassVar

from credent.cells import Cell
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.pp.kl import GROUP, Curve, Learnt
from credent.papers.verdict import Outcome, Verdict
from credent.report import Column, Section, Table, plots

_NAMES = {"l2": "L2", "l1": "L1", "group": f"Group of {GROUP}"}
_NOISES = (0.1, 0.3, 1.0)
_TERMS = ("alone", "printed", "exchanged")
_SAME = 1e-9  # nats; closed forms in double precision


class Figures(Experiment):
    """Penalties beside KLs."""

    name = "pp/figures"
    title = "Penalties beside the KL to the prior that they stand for"
    about = (
        "The slides' corollary and example: a penalty is a KL to a prior, up to a constant. For Gaussian noise of fixed"
        " scale L2 is the KL to a Gaussian. A norm with a corner is no KL under Gaussian noise, which rounds every"
        " corner; without noise it is -log of the prior whose variance gives the factor."
    )
    takes: ClassVar = {Scale.SMOKE: "1 s", Scale.CPU: "1 s", Scale.PAPER: "1 s"}

    def setting(self, scale: Scale) -> str:
        """The same at all scales."""
        return (
            "Closed forms, nothing is trained: the same at all scales. Means and noise are in units of the prior's"
            " standard deviation; penalties have the factors of the table, those of a prior of that deviation."
        )

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Three penalties at three scales of noise, and L2 with three versions of its terms in sigma."""
        curves = [Curve(penalty, noise) for penalty in _NAMES for noise in _NOISES]  # type: ignore[arg-type]
        return [*curves, *(Learnt(terms) for terms in _TERMS)]  # type: ignore[arg-type]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """A figure for each penalty, one over the noise, and the gaps."""
        figures = []
        for penalty, name in _NAMES.items():
            found = {noise: results[Curve(penalty, noise)] for noise in _NOISES}  # type: ignore[arg-type]
            named = {"penalty": (found[_NOISES[0]]["mean"], found[_NOISES[0]]["penalty"])}
            named |= {f"KL, noise {noise:g}": (each["mean"], each["kl"]) for noise, each in found.items()}
            caption = "Without their values at zero. A penalty is the KL where the curves fall on each other."
            label = "norm of the means / sqrt(n)" if penalty == "group" else "mean"
            figures.append(plots.curves(f"{name} and its KL", named, label, "nats", caption))
        learnt = {terms: results[Learnt(terms)] for terms in _TERMS}  # type: ignore[arg-type]
        over = {f"L2, terms {terms}": (each["noise"], each["penalty"]) for terms, each in learnt.items()}
        over |= {"KL": (learnt["alone"]["noise"], learnt["alone"]["kl"])}
        caption = "At mean zero. L2 alone does not see the noise: where that is learnt, nothing holds it up."
        figures.append(plots.curves("Over the noise", over, "noise", "nats", caption))
        columns = (Column("penalty"), *(Column(f"noise {noise:g}", "nats") for noise in _NOISES))
        rows = tuple(
            (name, *(_written(results[Curve(penalty, noise)]["gap"]) for noise in _NOISES))  # type: ignore[arg-type]
            for penalty, name in _NAMES.items()
        )
        table = Table("Largest difference over means up to 4, under the best constant", columns, rows)
        return (Section("Penalty and KL", (*figures, table)),)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """The corollary, as printed and put right; the example; and the corners."""
        fixed = max(results[Curve("l2", noise)]["gap"] for noise in _NOISES)
        gaps = {terms: results[Learnt(terms)]["gap"] for terms in _TERMS}  # type: ignore[arg-type]
        corners = {p: [results[Curve(p, noise)]["gap"] for noise in _NOISES] for p in ("l1", "group")}
        return (
            _same("lambda mu^2 with Gaussian noise of fixed scale is the KL to N(0, 1 / P)", fixed),
            _same(
                "Corollary as printed: a + b mu^2, a = 1 / (2 s^2), b the rest, is the KL to N(0, s^2)", gaps["printed"]
            ),
            _same("Corollary with a and b exchanged", gaps["exchanged"]),
            _same("Example: lambda mu^2 alone, with a learnt scale, stands for a Gaussian prior", gaps["alone"]),
            Verdict(
                "Factors of L1 and groups, those of no noise: the gap to the KL falls with the noise",
                "replicated"
                if all(each == sorted(each) and each[0] < each[-1] / 2 for each in corners.values())
                else "not replicated",
                "; ".join(
                    f"{_NAMES[p]} {', '.join(_written(g) for g in each)} nats at noise {', '.join(map(str, _NOISES))}"
                    for p, each in corners.items()
                )
                + ".",
            ),
        )


def _same(claim: str, gap: float) -> Verdict:
    outcome: Outcome = "replicated" if gap <= _SAME else "not replicated"
    return Verdict(claim, outcome, f"They differ by at most {_written(gap)} nats under the best constant.")


def _written(gap: float) -> str:
    return f"{gap:.2g}"
