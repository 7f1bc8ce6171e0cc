"""Contextual bandits: Thompson sampling from any posterior, with exact regret.

>>> regret = play(Linear(arms=3), LinearThompson(noise=0.5), steps=300, seeds=(0, 1))
>>> bool(regret[:, :50].mean() > 3 * regret[:, -50:].mean())
True
"""

from credent.bandits.agent import Agent, DivergedError, Player, Uniform
from credent.bandits.chains import BNP, PSGLD, SGLD
from credent.bandits.compare import Comparison, Run, compare
from credent.bandits.deep import Deep, DeepPlayer, Learner, Schedule, fresh, held
from credent.bandits.environment import Environment, Trials
from credent.bandits.linear import LinearThompson
from credent.bandits.network import Abreast, ValueNetwork
from credent.bandits.paper import SETTINGS, Setting, paper_agents
from credent.bandits.play import play
from credent.bandits.point import SGD, Dropout, EpsGreedy
from credent.bandits.replay import Replay
from credent.bandits.synthetic import Linear, Wheel
from credent.bandits.tables import Adult, Covertype, Mushroom, Shuttle
from credent.bandits.variational import VI, VL

__all__ = [
    "BNP",
    "PSGLD",
    "SETTINGS",
    "SGD",
    "SGLD",
    "VI",
    "VL",
    "Abreast",
    "Adult",
    "Agent",
    "Comparison",
    "Covertype",
    "Deep",
    "DeepPlayer",
    "DivergedError",
    "Dropout",
    "Environment",
    "EpsGreedy",
    "Learner",
    "Linear",
    "LinearThompson",
    "Mushroom",
    "Player",
    "Replay",
    "Run",
    "Schedule",
    "Setting",
    "Shuttle",
    "Trials",
    "Uniform",
    "ValueNetwork",
    "Wheel",
    "compare",
    "fresh",
    "held",
    "paper_agents",
    "play",
]
