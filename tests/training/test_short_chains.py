"""Scores of chains that are too short come with a warning; of long ones, and of no chains, without."""

import pytest
import torch
from torch import nn

import credent as cr
from credent.errors import ConvergenceWarning
from credent.families import Draws
from credent.training.short_chains import warn_of_short_chains

NET, LIKELIHOOD, X = nn.Linear(1, 1, bias=False), cr.likelihoods.Gaussian(scale=1.0), torch.ones(3, 1)


def chains(values):
    """(chains, draws) of one weight."""
    return cr.Chains([Draws([{"weight": w.view(1, 1)} for w in each]) for each in values])


def ask(posterior):
    warn_of_short_chains(posterior, NET, LIKELIHOOD, X)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def walk(*shape, stay):
    """An autoregression whose draws are worth (1 - stay) / (1 + stay) of independent ones."""
    value, found = torch.zeros(shape[0]), []
    for step in noise(shape[1], shape[0]):
        value = stay * value + (1 - stay**2) ** 0.5 * step
        found.append(value)
    return torch.stack(found, 1)


def test_independent_draws_of_several_chains_pass():
    ask(chains(noise(2, 60)))
    ask(Draws([{"weight": w.view(1, 1)} for w in noise(60)]))


def test_chains_apart_are_warned_of():
    with pytest.warns(ConvergenceWarning, match=r"R-hat is [1-9].*wanted are 25 at least, and 1\.05 at most"):
        ask(chains(noise(2, 400) + torch.tensor([[0.0], [3.0]])))


def test_draws_that_are_worth_few_are_warned_of():
    """400 draws of which 1 in 39 counts: about 10. Twelve independent ones are too few as well."""
    with pytest.warns(ConvergenceWarning, match="400 draws are worth [0-9]{1,2} independent ones"):
        ask(chains(walk(2, 200, stay=0.95)))
    with pytest.warns(ConvergenceWarning, match="12 draws are worth"):
        ask(chains(noise(1, 12)))


def test_fewer_draws_than_can_be_asked_are_warned_of():
    with pytest.warns(ConvergenceWarning, match="7 draws of a chain are too few"):
        ask(chains(noise(2, 7)))


def test_what_is_no_chain_is_passed_over():
    ask(cr.MAP(NET, LIKELIHOOD, num_data=3).posterior)


def test_an_evaluation_warns():
    data = cr.data.load("digits")
    objective = cr.MAP(cr.models.MLP(64, 10, (4,)), cr.likelihoods.Categorical(), num_data=len(data.train))
    own = {k: p.detach() for k, p in objective.layout.params().items()}
    with pytest.warns(ConvergenceWarning, match="3 draws of a chain"):
        cr.evaluation.evaluate(objective, Draws([own] * 3), data)
