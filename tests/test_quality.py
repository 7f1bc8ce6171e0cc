"""The default recipe on real data: what a newcomer gets from one command."""

import statistics

import pytest

from credent.evaluation import evaluate
from credent.recipe import Recipe


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("data", "accuracy", "limits"),
    [
        ("fashion_mnist", 0.917, {"nll": 0.235, "ece": 0.010}),
        ("mnist", 0.991, {"nll": 0.030}),
    ],
)
def test_lenet5_by_the_default_recipe_over_three_seeds(data, accuracy, limits, data_dir):
    runs = []
    for seed in range(3):
        built = Recipe(data=data, model="lenet5", seed=seed).build(data_dir)
        result = built.train(progress=False)
        runs.append(evaluate(built.objective, result.posterior, built.data).scores)
    mean = {name: statistics.fmean(run[name] for run in runs) for name in runs[0]}
    assert mean["accuracy"] >= accuracy
    for name, limit in limits.items():
        assert mean[name] <= limit, name


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_vi_predicts_better_than_map_by_the_default_recipes(data_dir):
    scores = {}
    for method in ("map", "vi"):
        built = Recipe(data="fashion_mnist", model="lenet5", method=method).build(data_dir)
        scores[method] = evaluate(built.objective, built.train(progress=False).posterior, built.data).scores
    assert scores["vi"]["accuracy"] >= scores["map"]["accuracy"] - 0.003
    assert scores["vi"]["nll"] <= scores["map"]["nll"] - 0.01
    assert scores["vi"]["ece"] <= scores["map"]["ece"] / 2
