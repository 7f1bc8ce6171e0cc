"""What is run at each scale."""

from credent.papers.experiment import Scale
from credent.papers.images import Size
from credent.papers.pp.training import Net, Which

NETS: tuple[Net, ...] = ("cvnn", "vgg19")
PENALTIES: tuple[Which, ...] = ("l2", "l1", "rows", "columns")
NAMES = {
    "none": "no penalty",
    "l2": "L2",
    "l1": "L1",
    "rows": "group lasso, incoming",
    "columns": "group lasso, outgoing",
    "cvnn": "CVNN",
    "vgg19": "VGG-19",
}
DATA = {Scale.SMOKE: "digits", Scale.CPU: "fashion_mnist", Scale.PAPER: "cifar10"}
SEEDS = {Scale.SMOKE: (0,), Scale.CPU: (0, 1), Scale.PAPER: (0, 1, 2)}
SIZES: dict[Scale, dict[Net, Size]] = {
    Scale.SMOKE: {
        "cvnn": Size(width=4, train=200, val=50, test=100, pool=1, epochs=2, batch=50, lr=2e-3),
        "vgg19": Size(width=2, train=200, val=50, test=100, pool=1, epochs=2, batch=50, lr=2e-3),
    },
    Scale.CPU: {
        "cvnn": Size(width=12, train=4000, val=1000, test=2000, pool=2, epochs=10, batch=64, lr=2e-3),
        "vgg19": Size(width=8, train=4000, val=1000, test=2000, pool=2, epochs=8, batch=64, lr=3e-3),
    },
    Scale.PAPER: {
        "cvnn": Size(width=64, train=0, val=0, test=0, pool=1, epochs=100, batch=128, lr=1e-3),
        "vgg19": Size(width=64, train=0, val=0, test=0, pool=1, epochs=100, batch=128, lr=1e-3),
    },
}
BAYESIAN = {
    Scale.SMOKE: (0.1, 1.0),
    Scale.CPU: (0.001, 0.01, 0.1, 0.3, 1.0, 3.0),
    Scale.PAPER: tuple(10 ** (half / 2) for half in range(-8, 3)),
}
"""lambda over lambda_Th = 1 / N, with Bayesian factors; 1 is the theory's."""
USUAL = {
    Scale.SMOKE: (1.0,),
    Scale.CPU: (0.01, 0.1, 1.0, 10.0, 100.0),
    Scale.PAPER: tuple(10 ** (half / 2) for half in range(-4, 6)),
}
"""lambda N, with the usual factors, for which no value is the theory's."""


def described(scale: Scale) -> str:
    """The setting in words."""
    unknown = (
        "The slides print neither data, networks' widths, training nor the usual factors; the accuracies would fit"
        " CIFAR-10. Ours: CVNN is two convolutions (width, 2 width) and two linear layers (4 width, classes) without"
        " norm layers, VGG-19 has batch norm and one linear layer. Usual factors are 1 for L2 and L1, and the square"
        " root of the group's size for groups; Bayesian ones have prior variance 1 / fan_in, while networks start at"
        " 2 / fan_in. MAP by Adam whose rate falls by 10 at half and three quarters, without augmentation. lambda* has"
        " the highest validation accuracy, mean over seeds (of equals the largest lambda)."
    )
    parts = []
    for net, size in SIZES[scale].items():
        images = f"{size.train:,} images" if size.train else "all images"
        pooled = f" averaged over {size.pool}x{size.pool} pixels" if size.pool > 1 else ""
        parts.append(
            f"{NAMES[net]} of width {size.width}, {images}{pooled}, {size.epochs} epochs in batches of {size.batch} at"
            f" {size.lr:g}"
        )
    many = len(SEEDS[scale])
    on = {
        Scale.SMOKE: "Built-in digits",
        Scale.CPU: "Fashion-MNIST (on so few images of CIFAR-10 a narrow VGG-19 is right on 4 of 10)",
        Scale.PAPER: "CIFAR-10",
    }
    return f"{on[scale]}, {many} seed{'s' if many > 1 else ''}. {'; '.join(parts)}. {unknown}"
