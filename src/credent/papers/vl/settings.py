"""What is run at each scale."""

from credent.papers.experiment import Scale
from credent.papers.images import Size
from credent.papers.vl.training import STRANGERS

SIZES = {
    Scale.SMOKE: Size(width=2, train=200, val=50, test=100, pool=1, epochs=2, batch=50, lr=2e-3),
    Scale.CPU: Size(width=8, train=2000, val=750, test=1500, pool=2, epochs=20, batch=64, lr=2e-3),
    Scale.PAPER: Size(width=64, train=0, val=0, test=0, pool=1, epochs=200, batch=128, lr=1e-4),
}
SEEDS = {Scale.SMOKE: (0,), Scale.CPU: (0, 1, 2), Scale.PAPER: (0, 1, 2)}
BETAS = {
    Scale.SMOKE: (0.1, 1.0),
    Scale.CPU: (0.001, 0.01, 0.1),
    Scale.PAPER: (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
}
NAMES = {
    "digits": "digits",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
}
_ONE_SEED = ("cifar100", "svhn")


def datasets(scale: Scale) -> tuple[str, ...]:
    """The paper's four, or the built-in digits for a smoke run."""
    return ("digits",) if scale is Scale.SMOKE else ("fashion_mnist", "cifar10", "cifar100", "svhn")


def seeds(scale: Scale, data: str) -> tuple[int, ...]:
    """At the cpu scale two of the four data sets have several seeds."""
    return SEEDS[scale][:1] if scale is Scale.CPU and data in _ONE_SEED else SEEDS[scale]


def needs(data: tuple[str, ...]) -> tuple[str, ...]:
    """Data sets that are read from files: these, and what their networks have never seen."""
    return tuple(dict.fromkeys(name for each in data for name in (each, STRANGERS[each]) if name != "digits"))


def described(scale: Scale) -> str:
    """The setting in words."""
    size = SIZES[scale]
    paper = "PreActResNet-18 with softplus, 200 epochs of Adam at 1e-4 in batches of 128"
    if scale is Scale.PAPER:
        return (
            f"The paper's: {paper}; but beta is chosen on a tenth of the training images, held out. Prior variance"
            " 2 / fan_in, which it does not print."
        )
    pooled = f", averaged over squares of {size.pool} pixels" if size.pool > 1 else ""
    seeds = "three seeds, one for CIFAR-100 and SVHN" if scale is Scale.CPU else "one seed"
    few = " So few images are used so that MAP overfits, as it does in the paper." if scale is Scale.CPU else ""
    return (
        f"PreActResNet-18 with softplus and {size.width} channels in the place of 64; {size.train:,} training images"
        f"{pooled}; {size.epochs} epochs in batches of {size.batch}, Adam at {size.lr:g} that falls by 10 at half and"
        f" three quarters; prior variance 2 / fan_in; beta chosen on {size.val:,} validation images, {size.test:,} test"
        f" images; {seeds}.{few} The paper: {paper}, all images, best beta on test images."
    )
