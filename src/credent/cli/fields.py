"""Options for the fields of a recipe, which `credent fit` and `credent sweep` both take."""

import typer

from credent.recipe import FAMILIES, METHODS, MODELS, OPTIMISERS, PRIORS, SCHEDULES

DATA = typer.Option(help="Data set; `credent list` names them.")
MODEL = typer.Option(help=" · ".join(MODELS))
METHOD = typer.Option(help=" · ".join(f"{name}: {meaning}" for name, meaning in METHODS.items()))
EPOCHS = typer.Option(help="Passes over the training data. Default: by data set.")
BATCH_SIZE = typer.Option(help="Examples per step. Default: by data set.")
LR = typer.Option(help="Learning rate of the means, or a sampler's eps. Default: by data.")
SCALE_LR = typer.Option(help="Learning rate of the scales. Default: by data set.")
OPTIMISER = typer.Option(
    help=" · ".join(f"{name}: {meaning}" for name, meaning in OPTIMISERS.items())
    + ". Default: muon for vi with members on grey image sets, else adam."
)
SCHEDULE = typer.Option(
    help=" · ".join(f"{name}: {meaning}" for name, meaning in SCHEDULES.items()) + ". Default: cosine."
)
BETA = typer.Option(help="Weight of the penalty; 1 is Bayes' rule. Default: by data.")
TEMPERATURE = typer.Option(help="Samplers: 1 is the posterior, less is colder. Default: beta.")
WEIGHT_SAMPLES = typer.Option(help="Draws of the weights per step. Default: by data.")
MEMBERS = typer.Option(
    help="Posteriors trained and averaged; of map, a deep ensemble. Default: of vi 6 on grey image sets and 4 on"
    " coloured ones, else 1."
)
PRIOR = typer.Option(help=" · ".join(PRIORS))
PRIOR_SCALE = typer.Option(help="fan_in, kaiming, glorot, or a number. Default: kaiming, where there is a scale.")
FAMILY = typer.Option(help=" · ".join(FAMILIES))
NOISE = typer.Option(help="Regression noise: learnt, heteroscedastic, or a number.")
RANDOM = typer.Option(help="Which parameters are random, such as 'head.*'.")
SPLIT = typer.Option(help="UCI sets: which standard split.")
SEED = typer.Option(help="Initial weights, data order and noise all follow from it.")
