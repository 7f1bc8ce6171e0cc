import dataclasses
import json

import pytest
import torch

from credent.errors import CheckpointError, InputError
from credent.likelihoods import Categorical, Gaussian
from credent.objectives import MAP, VI
from credent.recipe import Recipe


def test_json_round_trip_keeps_every_field():
    recipe = Recipe(data="cubic", method="map", lr=0.5, noise="0.3", random="head.*", seed=7)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert set(json.loads(recipe.to_json())) == {f.name for f in dataclasses.fields(Recipe)}


@pytest.mark.parametrize("text", ["", "{", '{"colour": 1}', "[1]"])
def test_a_foreign_config_is_refused(text):
    with pytest.raises(CheckpointError, match="not a recipe"):
        Recipe.from_json(text)


def test_what_it_builds():
    built = Recipe(data="digits", method="vi", beta=0.5, prior="laplace", family="radial", weight_samples=3).build()
    assert isinstance(built.objective, VI)
    assert isinstance(built.objective.likelihood, Categorical)
    assert (built.objective.num_data, built.objective.beta, built.objective.samples) == (1000, 0.5, 3)
    assert type(built.objective.posterior).__name__ == "RadialPosterior"
    built = Recipe(data="heteroscedastic", method="map", noise="heteroscedastic").build()
    assert isinstance(built.objective, MAP)
    assert isinstance(built.objective.likelihood, Gaussian)
    assert built.objective.net(torch.zeros(2, 1)).shape == (2, 2)


def test_the_seed_decides_everything():
    first, again, other = (Recipe(seed=s).build() for s in (1, 1, 2))
    x, _ = first.data.test[:4]
    assert torch.equal(first.objective.net(x), again.objective.net(x))
    assert not torch.equal(first.objective.net(x), other.objective.net(x))
    orders = [torch.cat([y for _, y in built.loader()]) for built in (first, again, other)]
    assert torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    draws = [built.objective.posterior.sample(1) for built in (first, again)]
    assert all(torch.equal(draws[0][k], draws[1][k]) for k in draws[0])


def test_only_the_head():
    built = Recipe(random="head.*").build()
    assert built.objective.layout.names == ("head.weight", "head.bias")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": "digitz"}, "Did you mean 'digits'"),
        ({"model": "transformer"}, "there is no such model"),
        ({"lr": 0.0}, "positive"),
        ({"batch_size": 0}, "positive"),
    ],
)
def test_bad_fields_are_explained(changes, words):
    with pytest.raises(InputError, match=words):
        Recipe(**changes)
