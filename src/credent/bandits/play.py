"""An agent at play in an environment, for several seeds at once.

A seed decides which trials come, how the network begins, which arms are taken blindly and which minibatches are drawn,
whichever seeds run beside it. The noise of samplers and variational draws is one stream for all seeds of a call, so
runs with noise are the same in law, not number for number, when seeds are grouped otherwise.

A seed that diverges has NaN for its regret from then on, and a warning says why; the others play on. When none is
left, that is an error, whose `regret` is what there was until then.

Shapes: the regret of each decision, (seeds, steps) float64.

>>> from credent.bandits.agent import Uniform
>>> from credent.bandits.synthetic import Wheel
>>> regret = play(Wheel(delta=1.0), Uniform(), steps=5000, seeds=(0, 1))
>>> regret.shape, abs(regret.mean().item() - 0.8 * 0.2) < 0.003        # 4 arms of 5 pay 0.2 less than the safe one
(torch.Size([2, 5000]), True)
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from credent.bandits.agent import Agent, DivergedError, Player, checked_seeds, seed_for, streams
from credent.bandits.environment import Environment
from credent.errors import InputError

_KEPT = "The regret until then, and NaN from then on, is this error's `regret`."


def play(environment: Environment, agent: Agent, steps: int, seeds: Sequence[int]) -> Tensor:
    """Exact regret of each of `steps` decisions, for each seed."""
    played = played_out(environment, agent, steps, seeds)
    reasons = list(dict.fromkeys(played.diverged.values()))  # seeds that were lost in one turn share theirs
    if len(played.diverged) == len(played.regret):
        error = DivergedError(f"none is left to play on. {' '.join(reasons)} {_KEPT}", tuple(played.diverged))
        error.regret = played.regret
        raise error
    for reason in reasons:
        warnings.warn(f"NaN from then on: {reason}", stacklevel=2)
    return played.regret


@dataclass(frozen=True, eq=False)
class Played:
    """Regret (seeds, steps), and of seeds that diverged the reason."""

    regret: Tensor
    diverged: dict[int, str]


def played_out(environment: Environment, agent: Agent, steps: int, seeds: Sequence[int]) -> Played:
    """What `play` does, with what became of seeds that diverged, be it all of them."""
    seeds = checked_seeds(seeds, "play")
    if steps < 1:
        raise InputError(f"play(steps={steps}): at least one decision.")
    features, arms = environment.features, environment.arms
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(seeds, "play"))
        trials = [environment.trials(steps, generator) for generator in streams(seeds, "environment")]
        contexts = torch.stack([each.contexts for each in trials], 1)
        expected, rewards = (torch.stack([getattr(t, k) for t in trials], 1) for k in ("expected", "rewards"))
        if contexts.shape != (steps, len(seeds), features) or expected.shape != (steps, len(seeds), arms):
            raise InputError(
                f"{type(environment).__name__} says {features} features and {arms} arms for {steps} trials, and its"
                f" trials have contexts {tuple(trials[0].contexts.shape)} and rewards {tuple(trials[0].rewards.shape)}."
            )
        player = agent.start(features, arms, seeds)
        every = _turn(player)
        taken = torch.zeros(steps, len(seeds), dtype=torch.long)
        diverged: dict[int, str] = {}
        for start in range(0, steps, every):
            now = slice(start, start + every)
            chosen = player.choose(contexts[now])
            _check(chosen, contexts[now], arms, agent)
            taken[now] = chosen
            try:
                player.learn(contexts[now], chosen, rewards[now].gather(2, chosen[..., None])[..., 0])
            except DivergedError as error:
                diverged |= dict.fromkeys(error.seeds, str(error))
                expected[now.stop :, [seeds.index(seed) for seed in error.seeds]] = math.nan
                if len(diverged) == len(seeds):
                    break
    regret = expected.amax(2) - expected.gather(2, taken[..., None])[..., 0]
    return Played(regret.T.double(), diverged)


def _turn(player: Player) -> int:
    """How many decisions it takes at once."""
    every = getattr(player, "every", None)
    if not isinstance(every, int) or every < 1:
        raise InputError(
            f"{type(player).__name__} has every={every!r}: what start() returns says how many contexts it decides on"
            " before it learns what they paid, at least 1; write every = 20 in its class."
        )
    return every


def _check(chosen: Tensor, contexts: Tensor, arms: int, agent: Agent) -> None:
    wanted = contexts.shape[:2]
    if chosen.shape != wanted or chosen.dtype != torch.long or bool(((chosen < 0) | (chosen >= arms)).any()):
        raise InputError(
            f"{type(agent).__name__} chose {chosen.dtype} of shape {tuple(chosen.shape)}: choose() returns arms from 0"
            f" to {arms - 1} as torch.long of shape {tuple(wanted)}, a row for each context, a column for each seed."
        )
