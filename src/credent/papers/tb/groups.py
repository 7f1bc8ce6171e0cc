"""Figures 5.8, 5.10 and 5.11: means and scales trained in turn, at rates of their own, on schedules of their own."""

from typing import ClassVar

import numpy as np

from credent.papers.experiment import Results, Scale
from credent.papers.seeds import estimate
from credent.papers.tb.comparison import Arms, Comparison
from credent.papers.tb.settings import NAMES, datasets, longer
from credent.papers.verdict import Verdict, lower, together
from credent.report import Column, Section, Table

RATE = 1e-3
RATES = ("means_lr", "scales_lr")
TOGETHER, IN_TURN = "means and scales together", "in turn, an epoch each"
RATIOS = {f"r = {ratio:g}": ratio for ratio in (10.0, 1.0, 0.1, 0.01)}
PLATEAU, CONVENTIONAL, SLOW = "plateau by group, from 0.001", "conventional, 0.001", "conventional, 0.0001"


class Figure5_8(Comparison):
    """Alternation."""

    name = "tb/figure5_8"
    title = "Means and scales trained in turn"
    about = (
        "Figure 5.8: trained in turn for a number of epochs each, means and scales reach about the accuracy that they"
        " reach together; the likelihood loss falls while the means are trained, and the divergence while the scales"
        " are."
    )
    takes: ClassVar = {Scale.CPU: "1 min on 2 cores beyond figure 1.2"}
    shown = ("accuracies", "nlls", "kls")
    note = "One epoch for the means, one for the scales, and so on; the thesis does not say how many."

    def data(self, scale: Scale) -> tuple[str, ...]:
        """The harder one."""
        return datasets(scale)[-1:]

    def arms(self, scale: Scale, data: str) -> Arms:
        """Two."""
        return {TOGETHER: {}, IN_TURN: {"turns": (1, 1)}}

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Accuracy, and what moves in whose epochs."""
        (data,) = self.data(scale)
        label = NAMES[data]
        changes = {name: self._changes(scale, data, name, results) for name in ("nlls", "kls")}
        nothing = dict.fromkeys(changes["nlls"][0], 0.0)
        return (
            self.alike(
                f"{label}: about the same accuracy in turn as together",
                "accuracy",
                IN_TURN,
                TOGETHER,
                (scale, data, results),
            ),
            lower(f"{label}: training NLL falls over an epoch of the means", changes["nlls"][0], nothing),
            lower(f"{label}: it falls more than over an epoch of the scales", *changes["nlls"]),
            lower(f"{label}: the KL falls over an epoch of the scales", changes["kls"][1], nothing),
            lower(f"{label}: it falls more than over an epoch of the means", *reversed(changes["kls"])),
        )

    def _changes(
        self, scale: Scale, data: str, name: str, results: Results
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Mean change over an epoch of the means, and of the scales, by seed; the first epoch has nothing before it."""
        runs = self.runs(scale, data, IN_TURN, results)
        steps = {seed: np.diff(run[name]) for seed, run in runs.items()}
        means = {seed: float(np.mean(each[1::2])) for seed, each in steps.items() if len(each) > 1}
        return means, {seed: float(np.mean(each[::2])) for seed, each in steps.items() if len(each) > 1}


class Figure5_10(Comparison):
    """A ratio of rates."""

    name = "tb/figure5_10"
    title = "The rate of the scales as a share of that of the means"
    about = (
        "Figure 5.10: with Adam on CIFAR-10, accuracy asks for a rate of the scales at least ten times below that of"
        " the means, r = alpha_sigma / alpha_mu <= 0.1. (The text has alpha_mu = 0.01; the figure 0.001, as here.)"
    )
    takes: ClassVar = {Scale.CPU: "3 min on 2 cores beyond figure 1.2"}
    shown = ("accuracies", "losses", "kls")
    note = (
        "What matters is how far the scales come, rate times steps: with fewer steps than the thesis has, r = 10 here"
        " is about as far as r = 1 there."
    )

    def data(self, scale: Scale) -> tuple[str, ...]:
        """The harder one."""
        return datasets(scale)[-1:]

    def arms(self, scale: Scale, data: str) -> Arms:
        """Four ratios."""
        return {name: {"scale_lr": ratio * RATE} if ratio != 1 else {} for name, ratio in RATIOS.items()}

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Small ratios against large ones, and what they cost in divergence."""
        (data,) = self.data(scale)
        at = (scale, data, results)
        fast, same, slow, slower = RATIOS
        return (
            self.above(f"{NAMES[data]}: {slow} more accurate than {same}", "accuracy", slow, same, at),
            self.above(f"{NAMES[data]}: {slow} more accurate than {fast}", "accuracy", slow, fast, at),
            self.above(f"{NAMES[data]}: {slower} more accurate than {fast}", "accuracy", slower, fast, at),
            self.below(f"{NAMES[data]}: {fast} ends with a lower KL than {slow}", "kl", fast, slow, at),
        )


class Figure5_11(Comparison):
    """Schedules by group."""

    name = "tb/figure5_11"
    title = "A plateau schedule for each group"
    about = (
        "Figure 5.11: under Adam on CIFAR-10, rates that fall tenfold when progress stops, the means' by the likelihood"
        " and the scales' by the divergence (patience 1, from 0.001), improve training significantly over the fixed"
        " rates 0.001 and 0.0001; on MNIST they make no significant difference. In each simulation the divergence"
        " falls: the scales, which begin narrow, grow."
    )
    takes: ClassVar = {Scale.CPU: "4 min on 2 cores"}
    shown = ("accuracies", "losses", "kls")

    def setting(self, scale: Scale) -> str:
        """See `settings`; with epochs enough for progress to stop in some of them."""
        sizes = {data: longer(scale, data) for data in self.data(scale)}
        said = "; ".join(f"{NAMES[d]}: {size.train:,} images, {size.epochs} epochs" for d, size in sizes.items())
        other = f"In this figure, so that there are enough epochs for progress to stop: {said}; what follows is of the"
        return super().setting(scale) if scale is Scale.PAPER else f"{other} others. {super().setting(scale)}"

    def arms(self, scale: Scale, data: str) -> Arms:
        """One schedule, two fixed rates."""
        size = longer(scale, data)
        return {
            PLATEAU: {"size": size, "plateau": (1, 0.1)},
            CONVENTIONAL: {"size": size},
            SLOW: {"size": size, "lr": 1e-4},
        }

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """And how far the rates fell."""
        columns = (Column("data"), Column("rate of the means at the end"), Column("rate of the scales at the end"))
        rows = tuple(
            (NAMES[data], *(estimate(self.numbers(scale, data, PLATEAU, name, results)) for name in RATES))
            for data in self.data(scale)
        )
        table = Table(f"What the schedule made of the rates, from {RATE:g}", columns, rows)
        return (*super().sections(scale, results), Section("Rates", (table,)))

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Better on the harder data, alike on the easier; where no rate ever fell, nothing was tried. Then the KL."""
        schedules = (
            Verdict(each.claim, "not testable at this scale", "No rate fell: progress did not stop.")
            if not self._fell(scale, data, results)
            else each
            for data, each in self._verdicts(scale, results)
        )
        return (*schedules, *(self._falls(scale, data, results) for data in self.data(scale)))

    def _falls(self, scale: Scale, data: str, results: Results) -> Verdict:
        claim = f"{NAMES[data]}: the KL is lower after the last epoch than after the first, however it is trained"
        runs = {arm: self.runs(scale, data, arm, results) for arm in self.arms(scale, data)}
        ends = {arm: [{s: run["kls"][k] for s, run in each.items()} for k in (-1, 0)] for arm, each in runs.items()}
        return together(claim, *(lower(arm, *each) for arm, each in ends.items()))

    def _fell(self, scale: Scale, data: str, results: Results) -> bool:
        ends = [self.numbers(scale, data, PLATEAU, name, results).values() for name in RATES]
        return any(rate < RATE / 2 for each in ends for rate in each)

    def _verdicts(self, scale: Scale, results: Results) -> list[tuple[str, Verdict]]:
        easy, hard = datasets(scale)[0], datasets(scale)[-1]
        at = (scale, hard, results)
        found = [
            (hard, side(f"{NAMES[hard]}: {PLATEAU}, {claim} {arm}", name, PLATEAU, arm, at))
            for claim, side, name in (
                ("more accurate than", self.above, "accuracy"),
                ("lower total loss than", self.below, "loss"),
            )
            for arm in (CONVENTIONAL, SLOW)
        ]
        claim = f"{NAMES[easy]}: no significant difference in accuracy from {CONVENTIONAL}"
        return [*found, (easy, self.alike(claim, "accuracy", PLATEAU, CONVENTIONAL, (scale, easy, results)))]
