"""The default recipe on real data: what a newcomer gets from one command."""

import pytest

from credent.evaluation import evaluate
from credent.recipe import Recipe


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fashion_mnist_by_the_default_recipe(data_dir):
    scores = {}
    for method in ("map", "vi"):
        built = Recipe(data="fashion_mnist", model="lenet5", method=method).build(data_dir)
        assert built.recipe.epochs <= 20
        result = built.train(progress=False)
        scores[method] = evaluate(built.objective, result.posterior, built.data, samples=10).scores
    assert scores["vi"]["accuracy"] >= scores["map"]["accuracy"] - 0.003
    assert scores["vi"]["nll"] <= 0.245
    assert scores["vi"]["ece"] <= 0.013
