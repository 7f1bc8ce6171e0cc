"""The demo: a plain and a Bayesian network on built-in data, and what sets them apart, on one page."""

import dataclasses

import numpy as np
import torch
from rich.console import Console

from credent.evaluation import Evaluation, evaluate
from credent.pictures import figures, shown
from credent.recipe import Recipe
from credent.report import Estimate, Figure, Page, comparison_page

_DEMO_SEEDS = 3
_console = Console(stderr=True)


def build(progress: bool, footer: str) -> tuple[Page, dict[str, dict[str, Estimate]]]:
    """Train everything; the page, and the scores of MAP and VI on the digits."""
    torch.set_num_threads(1)  # these networks are too small to share between cores
    scores = {}
    pictures: list[Figure] = []
    for name in ("MAP", "VI"):
        runs = [_demo_run(name, Recipe(method=name.lower(), seed=seed), progress) for seed in range(_DEMO_SEEDS)]
        scores[name] = _mean_scores([found for found, _ in runs])
        drawn = runs[0][1]
        pictures += [
            dataclasses.replace(f, title=f"{name}, seed 0: {f.title}") for f in (drawn if name == "VI" else drawn[:1])
        ]
    for name, recipe in {
        "A gap in the data, which mean-field VI does not see": Recipe(data="sine_gap"),
        "Noise that grows": Recipe(data="heteroscedastic", noise="heteroscedastic", epochs=500),
    }.items():
        band = _demo_run("VI", recipe, progress)[1][0]
        pictures.append(dataclasses.replace(band, title=name))
    page = comparison_page(
        "What a network does not know",
        scores,
        pictures,
        subtitle="1,000 handwritten digits and two curves: a plain network (MAP) beside a Bayesian one (VI), scored on"
        f" inputs that neither has seen; mean and standard error over {_DEMO_SEEDS} seeds.",
        footer=footer,
    )
    return page, scores


def _demo_run(name: str, recipe: Recipe, progress: bool) -> tuple[Evaluation, list[Figure]]:
    _console.print(f"[bold]{name}[/] on {recipe.data}, seed {recipe.seed}", highlight=False)
    built = recipe.build()
    result = built.train(progress=progress)
    found = evaluate(built.objective, result.posterior, built.data)
    return found, figures(built.objective, result.posterior, built.data, found, result.history)


def _mean_scores(runs: list[Evaluation]) -> dict[str, Estimate]:
    """Mean and standard error over seeds of the scores that the page shows."""
    rows = [shown(run.scores) for run in runs]
    return {
        name: Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5))
        for name in rows[0]
        if (values := [row[name] for row in rows])
    }
