"""What a recipe leaves at None, by data set and method (docs/training.md and docs/sampling.md have the numbers).

Of a sampler `lr` is the papers' eps. A gradient step is eps N / 2 times MAP's, so a good eps falls as 1/N: that of
digits was tried on validation data, that of image sets is the same by this rule and untried. For curves and tables,
where the noise sets it too, it must be given.

By VI the image sets have several members, which are averaged: six of few epochs by Muon where images are grey, chosen
with LeNet-5 on images of Fashion-MNIST that were not trained on; four by Adam where they are in colour, tried with
5,000 of them alone. One alone wants a larger beta and more epochs.

>>> of("digits", "sgld")["beta"], of("digits", "vi")["beta"]
(1.0, 0.01)
>>> members("mnist", "vi"), of("mnist", "vi", members=6)["beta"], of("mnist", "vi")["beta"]
(6, 0.01, 0.2)
"""

from typing import Any

from credent.recipe.choices import SAMPLERS

_GREY = ("mnist", "fashion_mnist")
_COLOURED = ("cifar10", "cifar100", "svhn")
IMAGE_SETS = (*_GREY, *_COLOURED)

_REGRESSION: dict[str, Any] = {"epochs": 2000, "lr": 1e-2, "scale_lr": 1e-2, "beta": 0.03, "weight_samples": 4}
_IMAGES: dict[str, Any] = {"epochs": 20, "lr": 4e-3, "scale_lr": 2e-2, "beta": 0.2, "weight_samples": 1}
_GREY_MEMBER: dict[str, Any] = {"optimiser": "muon", "epochs": 6, "lr": 6e-3, "scale_lr": 3e-2, "beta": 0.01}
_COLOURED_MEMBER: dict[str, Any] = {"beta": 0.03}  # both are colder than one alone, since together they doubt more
_BY_DATA: dict[str, dict[str, Any]] = {
    **dict.fromkeys(IMAGE_SETS, _IMAGES),
    "digits": _IMAGES | {"epochs": 60, "batch_size": 64, "beta": 0.01},
}
_IMAGE_STEPS = {"sgld": 2e-6, "psgld": 2e-8, "bnp": 5e-7}
_STEPS: dict[str, dict[str, float]] = {
    **dict.fromkeys(IMAGE_SETS, _IMAGE_STEPS),
    "digits": {"sgld": 1e-4, "psgld": 1e-6, "bnp": 3e-5},
}


def members(data: str, method: str) -> int:
    """How many posteriors are trained and averaged."""
    if method != "vi" or data not in IMAGE_SETS:
        return 1
    return 6 if data in _GREY else 4


def of(data: str, method: str, members: int = 1) -> dict[str, Any]:
    """Values by field; a sampler has Bayes' rule, and no `lr` where none is known. Only VI and VL have scales."""
    found = {"batch_size": 128, "optimiser": "adam", "schedule": "cosine", **_BY_DATA.get(data, _REGRESSION)}
    if method in SAMPLERS:
        del found["optimiser"], found["schedule"]
        found |= {"beta": 1.0, "lr": _STEPS.get(data, {}).get(method)}
        found["epochs"] *= 2  # half of them lead to where the draws are
    if method not in ("vi", "vl"):
        del found["scale_lr"]
    if method == "vi" and data in IMAGE_SETS:
        member = _GREY_MEMBER if data in _GREY else _COLOURED_MEMBER
        found |= member if members > 1 else {"epochs": 2 * found["epochs"]}  # noisy weights overfit later
    return found
