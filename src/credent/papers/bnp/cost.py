"""Table 4.2: the time of an epoch, as ratios to SGLD's that were measured side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from credent.cells import Cell
from credent.likelihoods import Categorical
from credent.objectives import MAP
from credent.papers.bnp.settings import TITLES
from credent.papers.bnp.training import Norm, build
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.timing import race, ratios
from credent.papers.verdict import Verdict, together
from credent.report import Column, Section, Table
from credent.samplers import BNPSGLD, PSGLD, SGLD

DEARER = "BNP, in pSGLD's"
PUBLISHED = {"BNP": 21.83 / 18.10, "pSGLD": 19.04 / 18.10, "SGLD": 1.0, DEARER: 21.83 / 19.04}
_DATA = 50_000


@dataclass(frozen=True)
class Timing(Cell):
    """Steps of every method in turn, on random images: what they show does not change the time."""

    norm: Norm
    width: int
    pixels: int
    batch: int
    rounds: int
    exclusive: ClassVar[bool] = True

    def run(self) -> dict[str, Any]:
        """Ratio to SGLD by method, and BNP's to pSGLD."""
        torch.manual_seed(0)
        x, y = torch.randn(self.batch, 3, self.pixels, self.pixels), torch.randint(100, (self.batch,))

        def step(optimizer: Callable[[nn.Module], Optimizer]) -> Callable[[], None]:
            net = build(self.norm, 100, self.width, 3)
            objective, mover = MAP(net, Categorical(), num_data=_DATA), optimizer(net)

            def take() -> None:
                objective(x, y).backward()
                mover.step()
                mover.zero_grad()

            return take

        common: dict[str, Any] = {"lr": 1e-6, "num_data": _DATA, "momentum": 0.9, "seed": 0}
        steps = {
            "BNP": step(lambda net: BNPSGLD(net, burn_in=None, **common)),
            "pSGLD": step(lambda net: PSGLD(net.parameters(), burn_in=None, **common)),
            "SGLD": step(lambda net: SGLD(net.parameters(), **common)),
            "SGD": step(lambda net: torch.optim.SGD(net.parameters(), lr=0.025, momentum=0.9)),
        }
        times = race(steps, self.rounds)
        found = ratios(times, "SGLD") | {DEARER: ratios(times, "pSGLD")["BNP"]}
        return {name: asdict(ratio) for name, ratio in found.items()}


class Table4_2(Experiment):
    """What preconditioning costs."""

    name = "bnp/table4_2"
    title = "Time per epoch"
    about = (
        "Table 4.2: an epoch of ResNet-20 takes 18.10 s with SGLD, 19.04 s with pSGLD and 21.83 s with BNP on a GPU:"
        " ratios 1.05 and 1.21."
    )
    takes: ClassVar = {Scale.SMOKE: "10 s", Scale.CPU: "2 min"}
    _SIZES: ClassVar[dict[Scale, tuple[int, int, int, int]]] = {
        Scale.SMOKE: (2, 8, 8, 3),
        Scale.CPU: (16, 32, 64, 21),
        Scale.PAPER: (16, 32, 256, 31),
    }

    def setting(self, scale: Scale) -> str:
        """One step of a batch."""
        width, pixels, batch, rounds = self._SIZES[scale]
        return (
            f"Steps with momentum on ResNet-20 of width {width} for {pixels}x{pixels} pixels, batches of {batch},"
            f" {rounds} rounds in which each method has its turn; medians of the ratio to SGLD's step. Preconditioners"
            " adapt at every step. SGD is torch's."
        )

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """A race for each kind of network."""
        return [self._cell(scale, norm) for norm in TITLES]

    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """The ratios."""
        columns = (
            Column("method"),
            Column("time, in SGLD's", "", "lower"),
            Column("10 %"),
            Column("90 %"),
            Column("published"),
        )
        found = []
        for norm, title in TITLES.items():
            rows = tuple(
                (name, each["median"], each["low"], each["high"], PUBLISHED.get(name))
                for name, each in results[self._cell(scale, norm)].items()
            )
            found.append(Section(title, (Table("Ratios to SGLD", columns, rows),)))
        return tuple(found)

    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Both cost more than SGLD, BNP more than pSGLD; ours cost no more than the paper's. Ranges decide."""
        found = []
        for norm, title in TITLES.items():
            times = results[self._cell(scale, norm)]
            order = f"{title}: BNP takes longer than pSGLD, and pSGLD longer than SGLD"
            cheap = f"{title}: BNP and pSGLD cost at most what they do in the paper, 1.21 and 1.05 of SGLD"
            if not times or scale is Scale.SMOKE:
                found += [Verdict(c, "not testable at this scale", "Too small to time.") for c in (order, cheap)]
                continue
            found += [
                together(
                    order,
                    _beyond("pSGLD over SGLD", times["pSGLD"], 1.0),
                    _beyond("BNP over pSGLD", times[DEARER], 1.0),
                ),
                together(cheap, *(_beyond(name, times[name], PUBLISHED[name], -1) for name in ("BNP", "pSGLD"))),
            ]
        return tuple(found)

    def _cell(self, scale: Scale, norm: Norm) -> Timing:
        return Timing(norm, *self._SIZES[scale])


def _beyond(claim: str, ratio: Mapping[str, float], mark: float, side: Literal[1, -1] = 1) -> Verdict:
    """Whether a ratio is above (or below) a mark: not to be said if its range of 10 to 90 % of rounds has the mark."""
    said = f"{ratio['median']:.3f}, 10 to 90 % of rounds {ratio['low']:.3f} to {ratio['high']:.3f}, beside {mark:.3f}."
    if ratio["low"] <= mark <= ratio["high"]:
        return Verdict(claim, "not testable at this scale", said)
    return Verdict(claim, "replicated" if side * (ratio["median"] - mark) > 0 else "not replicated", said)
