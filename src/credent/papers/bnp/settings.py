"""What is run of the residual network at each scale, and what the four tables and figures on it share."""

from collections.abc import Sequence
from typing import Any, ClassVar

from credent.cells import Cell
from credent.papers.bnp.training import Method, Norm, Training
from credent.papers.experiment import Experiment, Results, Scale
from credent.papers.images import Size

SIZES = {
    Scale.SMOKE: Size(width=2, train=200, val=50, test=100, pool=1, epochs=3, batch=50, lr=1e-6),
    Scale.CPU: Size(width=8, train=5000, val=1000, test=2000, pool=2, epochs=20, batch=64, lr=1e-6),
    Scale.PAPER: Size(width=16, train=0, val=0, test=0, pool=1, epochs=300, batch=256, lr=1e-6),
}
DROPS = {Scale.SMOKE: 2, Scale.CPU: 15, Scale.PAPER: 250}
SEEDS = {Scale.SMOKE: (0,), Scale.CPU: (0, 1, 2), Scale.PAPER: (0, 1, 2)}
DATA = {Scale.SMOKE: "digits", Scale.CPU: "cifar100", Scale.PAPER: "cifar100"}
ARMS: dict[Norm, tuple[Method, ...]] = {"batch": ("bnp", "sgld", "psgld", "psgld_fast", "sgd"), "none": ("bnp", "sgld")}
TITLES: dict[Norm, str] = {"batch": "With BatchNorm", "none": "Without BatchNorm"}


class ResNet(Experiment):
    """A table or figure on the residual network: all share their chains."""

    takes: ClassVar = {Scale.SMOKE: "20 s", Scale.CPU: "12 min on 2 cores, shared by those on the ResNet"}

    def setting(self, scale: Scale) -> str:
        """In words."""
        size = SIZES[scale]
        network = (
            "The paper does not say whether the network has BatchNorm, and so both are run: with it, convolutions have"
            " no bias; without it they have one, and the residual branches start a tenth as large."
        )
        unsaid = (
            f"Momentum 0.9, preconditioners that never freeze, pSGLD's damping 1, prior variance 1 / fan_in; none"
            f" is printed, nor how long is trained ({SIZES[Scale.PAPER].epochs} epochs at the paper's scale), nor T, 1."
            f" The model average is over the ends of the epochs from {DROPS[scale]} on, where the rate falls by 10 and"
            " then by 1.5 % an epoch. No augmentation."
        )
        if scale is Scale.PAPER:
            return f"The paper's ResNet-20, batches of {size.batch}, rate 1e-6 (and 5e-6 for pSGLD). {network} {unsaid}"
        pooled = f" averaged over {size.pool}x{size.pool} pixels" if size.pool > 1 else ""
        many = len(SEEDS[scale])
        return (
            f"ResNet-20 of width {size.width} for 16, {size.train:,} images{pooled}, {size.epochs} epochs in batches of"
            f" {size.batch}, {size.test:,} test images, {many} seed{'s' if many > 1 else ''}. The rate is the paper's"
            f" 1e-6 (5e-6) times 50,000 / N, the temperature N / 50,000, so that drift and noise of a step are the"
            f" paper's. {network} {unsaid}"
        )

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """CIFAR-100, or the built-in digits for a smoke run."""
        return () if scale is Scale.SMOKE else (DATA[scale],)

    def cells(self, scale: Scale) -> Sequence[Cell]:
        """All methods with BatchNorm, two without."""
        return [
            self.cell(scale, norm, method, seed)
            for seed in SEEDS[scale]
            for norm, methods in ARMS.items()
            for method in methods
        ]

    @staticmethod
    def cell(scale: Scale, norm: Norm, method: Method, seed: int) -> Training:
        """One chain."""
        return Training(DATA[scale], method, norm, SIZES[scale], DROPS[scale], seed)

    def finished(self, scale: Scale, norm: Norm, method: Method, results: Results) -> dict[int, Any]:
        """Results by seed, without those that failed."""
        found = {seed: results[self.cell(scale, norm, method, seed)] for seed in SEEDS[scale]}
        return {seed: result for seed, result in found.items() if result}

    def numbers(self, scale: Scale, norm: Norm, method: Method, name: str, results: Results) -> dict[int, float]:
        """One number by seed."""
        return {seed: float(result[name]) for seed, result in self.finished(scale, norm, method, results).items()}

    @staticmethod
    def others(norm: Norm) -> tuple[Method, ...]:
        """The samplers that BNP is compared with."""
        return tuple(method for method in ARMS[norm] if method not in ("bnp", "sgd"))
