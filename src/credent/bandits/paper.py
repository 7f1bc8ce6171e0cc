"""The bandit experiment of the BNP paper: its environments, agents and hyper-parameters.

    temperature 0.03 (Mushroom 0.3), L2 penalty 1, dropout 0.5 with 5 samples, 0.3 % blind arms and lr x0.999 a turn,
    pSGLD with lambda = 0.001 and decay 0.99 (Mushroom 0.95), a constant rate and BNP's (eps1, eps2) by data set.

The paper's rate multiplies grad U, where a sampler's eps/2 does, so eps is twice the printed number. What it does not
print is Deng, Liang, Hao, Lin 2022's, whose code it follows: 100-100 hidden units, squared errors, the `Schedule`, and
2,000 turns of 20 decisions. VI and VL are not in the paper and have this library's own rates. "Census" is Adult.

(Lange, Deng, Ye, Lin 2023, section 4.2.)
"""

from dataclasses import dataclass

from credent.bandits.agent import Agent, Uniform
from credent.bandits.chains import BNP, PSGLD, SGLD
from credent.bandits.deep import Schedule
from credent.bandits.environment import Environment
from credent.bandits.point import SGD, Dropout, EpsGreedy
from credent.bandits.tables import Adult, Covertype, Mushroom, Shuttle
from credent.bandits.variational import VI, VL
from credent.errors import InputError


@dataclass(frozen=True)
class Setting:
    """What the paper chose for one data set."""

    environment: Environment
    rate: float
    floor: tuple[float, float]
    temperature: float = 0.03
    decay: float = 0.99


SETTINGS = {
    "mushroom": Setting(Mushroom(), 1e-6, (1e-1, 1e-4), temperature=0.3, decay=0.95),
    "statlog": Setting(Shuttle(), 3e-6, (1.0, 0.1)),
    "covertype": Setting(Covertype(), 3e-6, (3e-2, 3e-2)),
    "census": Setting(Adult(features=94), 1e-7, (1e-2, 1e-2)),
}


def paper_agents(name: str, schedule: Schedule = Schedule()) -> dict[str, Agent]:  # noqa: B008  (frozen)
    """The paper's agents with its hyper-parameters for one of `SETTINGS`, and this library's others beside them."""
    if name not in SETTINGS:
        raise InputError(f"paper_agents({name!r}): the paper has {', '.join(SETTINGS)}.")
    chosen = SETTINGS[name]
    lr, temperature = 2 * chosen.rate, chosen.temperature
    return {
        "uniform": Uniform(),
        "EpsGreedy": EpsGreedy(lr=lr, schedule=schedule),
        "SGD": SGD(lr=lr, schedule=schedule),
        "Dropout": Dropout(lr=lr, schedule=schedule),
        "SGLD": SGLD(lr=lr, temperature=temperature, schedule=schedule),
        "pSGLD": PSGLD(lr=lr, temperature=temperature, decay=chosen.decay, damping=1e-3, schedule=schedule),
        "BNP": BNP(lr=lr, temperature=temperature, floor=chosen.floor, schedule=schedule),
        "VI": VI(temperature=temperature, schedule=schedule),
        "VL": VL(temperature=temperature, schedule=schedule),
    }
