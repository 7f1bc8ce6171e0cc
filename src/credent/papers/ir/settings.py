"""What is run at each scale."""

from credent.papers.experiment import Scale
from credent.papers.images import Size

PRIORS = {
    "horseshoe": "Horseshoe",
    "self_stabilizing": "Self-stabilising",
    "gaussian": "Gaussian",
    "hybrid": "IR, hybrid",
    "inner": "IR, inner",
    "none": "no KL",
}
"""The prior of a row by the name that a cell has. The printed algorithm is `none`: its KL has no gradient."""

NETWORKS = {"densenet": "DenseNet-121", "resnet": "ResNet-18", "vgg": "VGG-16"}
NAMES = {"digits": "digits", "cifar10": "CIFAR-10", "svhn": "SVHN", "cifar100": "CIFAR-100"}

SIZES = {
    Scale.SMOKE: Size(width=4, train=100, val=50, test=20, pool=1, epochs=1, batch=50, lr=1e-2),
    Scale.CPU: Size(width=8, train=3000, val=600, test=100, pool=2, epochs=4, batch=150, lr=1e-2),
    Scale.PAPER: Size(width=64, train=0, val=0, test=0, pool=1, epochs=100, batch=128, lr=1e-3),
}
RATES = {
    Scale.SMOKE: (1e-3, 1e-2),
    Scale.CPU: (1e-3, 3e-3, 1e-2),
    Scale.PAPER: (1e-5, 5e-5, 1e-4, 5e-4, 1e-3),
}
_SLOW_RATES = (1e-3, 1e-2)
SEEDS = {Scale.SMOKE: (0,), Scale.CPU: (0, 1, 2), Scale.PAPER: (0, 1, 2, 3, 4)}
BETA = {Scale.SMOKE: 1.0, Scale.CPU: 0.1, Scale.PAPER: 1.0}
DRAWS = {Scale.SMOKE: 2, Scale.CPU: 5, Scale.PAPER: 10}


def rates(scale: Scale, network: str) -> tuple[float, ...]:
    """The learning rates of figures 1 and 2; at the cpu scale DenseNet-121, the slowest, has only the ends."""
    return _SLOW_RATES if scale is Scale.CPU and network == "densenet" else RATES[scale]


def datasets(scale: Scale) -> tuple[str, ...]:
    """The paper's three, two of them at the cpu scale, or the built-in digits for a smoke run."""
    return {
        Scale.SMOKE: ("digits",),
        Scale.CPU: ("cifar10", "svhn"),
        Scale.PAPER: ("cifar10", "cifar100", "svhn"),
    }[scale]


READ = (
    "With a radial posterior the inner reading is roughly half of hybrid in the scales: once the means have moved by"
    " more than sigma since the refresh, its slope in log sigma is -1/2 (1 - 1/D), D the size of a tensor, against"
    " hybrid's -(1 - 1/D), and the means are hardly pulled. The annealed reading is not run: it has an optimiser of its"
    " own, and a row of it would compare optimisers."
)
"""How the readings of the inverse-reference prior are related."""


def described(scale: Scale) -> str:
    """The setting in words."""
    size = SIZES[scale]
    paper = "all channels, all images, 100 epochs of Adam at 1e-3, five repeats; the weight of the KL is not printed"
    rows = (
        "Radial posteriors, as in the paper, but Gaussian ones under the self-stabilising prior, which multiplies q by"
        " a Gaussian; the scales have the means' rate, and every prior has the same KL weight,"
        f" beta {BETA[scale]:g}. Accuracy is the best over epochs on validation images, from {DRAWS[scale]} draws."
        f" The inner reading is refreshed once an epoch. {READ}"
    )
    if scale is Scale.PAPER:
        return f"The paper's: {paper}. {rows}"
    pooled = f", averaged over squares of {size.pool} pixels" if size.pool > 1 else ""
    count = len(SEEDS[scale])
    chosen = " Of four values it is the one at which the Gaussian prior did best." if scale is Scale.CPU else ""
    return (
        f"ResNet-18 and VGG-16 of {size.width} channels in the place of 64, DenseNet-121 of {size.width // 2};"
        f" {size.train:,} training images{pooled}, {size.val:,} validation images; {size.epochs} epochs in batches of"
        f" {size.batch}, Adam at {size.lr:g}; {count} seed{'s' if count > 1 else ''}. {rows}{chosen} The paper:"
        f" {paper}."
    )
