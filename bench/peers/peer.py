"""What every library is asked for: a network made Bayesian, its training step, its predictions.

A peer is one file with functions `build(net, task) -> Bayesian`, made as the library's own documentation says, and up
to six dictionaries of them by the name that pages show: VI, FUSED (the same with a fused Adam, where it takes any
optimiser), MENDED (the ELBO's scale put right where the documented one is not), TUNED (all of the task's settings are
followed: what the race for quality asks for), SAMPLERS and LAPLACE. CONVERTS says whether it takes any network as it
is; libraries of layers leave that to their users.

    loss = -(1/B) sum_i log p(y_i | x_i, w) + KL(q || p) / N        the scale that is right, in nats per datum

Shapes: x (n, ...), y (n,) class numbers, outputs (n, classes), probabilities (n, classes).
"""

import importlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional

from credent.objectives import Objective

NAMES = (
    "bayesian_torch",
    "torchbnn",
    "blitz",
    "torch_blue",
    "torch_uncertainty",
    "ivon",
    "posteriors",
    "pyro",
    "tyxe",
    "laplace",
)

Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Task:
    """What is learnt: classes, from `num_data` examples; rates are those of Adam, or of a sampler's potential."""

    num_data: int = 60_000
    lr: float = 1e-3
    fused: bool = False
    """Adam with one kernel for all weights, where the peer takes torch's Adam."""
    as_is: bool = False
    """The network exactly as given, with its weights for means and no work-around: what the zoo asks for."""
    beta: float = 1.0
    """Weight of the KL or temperature of a chain, where the build is one that is MENDED or TUNED: 1 is Bayes' rule."""
    steps: int | None = None
    """Over so many steps the rate falls to zero along a cosine; None is a constant rate."""

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean over the batch, nats."""
        return functional.cross_entropy(outputs, y)

    def adam(self, params: object) -> torch.optim.Optimizer:
        """What a plain loop would take."""
        return self.annealed(torch.optim.Adam(params, lr=self.lr, fused=self.fused))  # type: ignore[arg-type]

    def annealed(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """The optimiser, whose rate follows the task's cosine by itself."""
        if self.steps is not None:
            cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
            optimizer.register_step_post_hook(lambda *_: cosine.step())
        return optimizer


@dataclass(frozen=True)
class Bayesian:
    """A network that a library has made Bayesian."""

    net: nn.Module
    """What `train()` and `eval()` are called on."""
    step: Callable[[Tensor, Tensor], object]
    """One training step on (x, y), gradients zeroed and all."""
    draw: Callable[[Tensor], Tensor]
    """Outputs at a fresh draw of the weights."""
    mean: Callable[[Tensor], Tensor]
    """Outputs with all weights at the means of q: no noise."""
    random: int
    """How many weights are random."""
    locations: int
    """How many numbers are learnt besides spreads; more than the network had where a tie was broken."""
    predict: Callable[[Tensor, int], Tensor] | None = None
    """Probabilities averaged over so many draws, where the library has a way of its own."""
    weights: Callable[[], dict[str, Tensor]] | None = None
    """Of a chain: a copy of the network's weights as they are now."""
    finish: Callable[[Batches, Batches], None] | None = None
    """What is done once, when training has ended, with all the data and with validation data, both in batches."""
    objective: Objective | None = None
    """Of credent: what predicts, and can be calibrated."""

    @torch.no_grad()
    def probabilities(self, x: Tensor, samples: int) -> Tensor:
        """The library's own averaged prediction, or else the loop that its documentation shows."""
        if self.predict is not None:
            return self.predict(x, samples)
        total = self.draw(x).softmax(-1)
        for _ in range(samples - 1):
            total += self.draw(x).softmax(-1)
        return total / samples


Build = Callable[[nn.Module, Task], Bayesian]


@dataclass(frozen=True)
class Peer:
    """The dictionaries of a peer's file; empty where it offers nothing of the kind."""

    name: str
    VI: dict[str, Build]
    FUSED: dict[str, Build]
    MENDED: dict[str, Build]
    TUNED: dict[str, Build]
    SAMPLERS: dict[str, Build]
    LAPLACE: dict[str, Build]
    CONVERTS: dict[str, Build]


@cache
def load(name: str) -> Peer | str:
    """The peer of this name, or why it does not run here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what they will deprecate
            module: ModuleType = importlib.import_module(f"bench.peers.{name}")
    except Exception as error:  # whatever a library raises while it is imported
        return f"{type(error).__name__}: {error}"
    kinds = ("VI", "FUSED", "MENDED", "TUNED", "SAMPLERS", "LAPLACE", "CONVERTS")
    return Peer(name, **{kind: vars(module).get(kind, {}) for kind in kinds})


def peers() -> tuple[list[Peer], dict[str, str]]:
    """All peers that import, and why the others do not."""
    found = {name: load(name) for name in NAMES}
    there = [each for each in found.values() if isinstance(each, Peer)]
    return there, {name: each for name, each in found.items() if isinstance(each, str)}


def count(net: nn.Module) -> int:
    """Distinct parameters; two that share their memory are one."""
    return sum({p.data_ptr(): p.numel() for p in net.parameters()}.values())
