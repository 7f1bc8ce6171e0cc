"""A run as plain values: what it may choose from, what it leaves to the data, and how it is built and trained."""

from credent.recipe.built import Built
from credent.recipe.choices import FAMILIES, METHODS, MODELS, OPTIMISERS, PRIORS, SCHEDULES
from credent.recipe.recipe import Recipe

__all__ = ["FAMILIES", "METHODS", "MODELS", "OPTIMISERS", "PRIORS", "SCHEDULES", "Built", "Recipe"]
