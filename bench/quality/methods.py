"""Who races: how each is made, which rates and which knob are tried, and how much more than the others it may train.

The knob is beta, the weight of the KL or of the log prior, unless it is said otherwise. Variational methods of all
libraries have the same rates and the same knobs at first, but IVON, which is its own optimiser, and VL and the last
layer alone, which have MAP's rates; where the documented weight of the KL is kept, only rates are tried.

Everyone has eight trials, on all data sets: four, and four more of the ranges that follow, of which the one whose end
had the best on Fashion-MNIST is moved by one place. Temperatures stay, rates of chains move towards the best, and where
rates alone are tried the other four lie between the first or beyond their best end. "VI, Fashion-MNIST's recipe" is the
one row that has no trials here: its rate, beta and members are those of credent's recipes for grey images.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bench.peers import Build, load
from bench.quality import ours
from bench.quality.settings import trials
from credent.recipe import defaults

Four = tuple[float, float, float, float]

PLAIN = "plain PyTorch"
"""The library of what needs none."""


@dataclass(frozen=True)
class Method:
    """A row of the race."""

    label: str
    library: str
    make: Callable[[], Build]
    """Imports the library, so that a table of methods needs none."""
    rates: Four
    knobs: Four
    knob: str = "beta"
    further: tuple[Four, Four] | None = None
    """Rates and knobs of four more trials."""
    members: int = 1
    """Networks that are trained."""
    passes: float = 1.0
    """Over the training images by each member, of everyone else's."""
    chain: bool = False
    """Predicts with weights of the second half of training."""
    chunk: int = 1000
    """Inputs that are predicted at once."""
    limit: int | None = None
    """Only so many validation images are predicted, and no others than the test images: where one takes a tenth of a
    second of CPU."""
    calibrated: bool = False
    """Predicts at the temperature that the validation images choose, one for all members."""
    tuned_as: str = ""
    """The method whose chosen setting it takes."""

    @property
    def trials(self) -> tuple[tuple[float, float], ...]:
        """(rate, knob), as many for everyone."""
        return trials(self.rates, self.knobs) + (trials(*self.further) if self.further else ())


def _ours(build: Build) -> Callable[[], Build]:
    return lambda: build


def _of_peer(peer: str, kind: str, name: str) -> Build:
    found = load(peer)
    if isinstance(found, str):
        raise ImportError(f"{peer} does not run here: {found}")
    build: Build = getattr(found, kind)[name]
    return build


_ADAM = (5e-4, 1e-3, 2e-3, 4e-3)
_VI = (1e-3, 2e-3, 4e-3, 8e-3)
_FAST = (2e-3, 4e-3, 8e-3, 1.6e-2)
_BETA = (0.03, 0.1, 0.3, 1.0)
_LIGHT = (0.01, 0.03, 0.1, 0.3)
_DECAY = (0.1, 0.3, 1.0, 3.0)
_MAP = (0.01, 0.03, 0.1, 0.3)  # of a prior of variance 1/fan_in: stronger decays still than those, of a prior N(0, 1)
_COLDER = (0.003, 0.01, 0.03, 0.1)
_COLDEST = (0.001, 0.003, 0.01, 0.03)
_AS_DOCUMENTED = (1.0, 1.0, 1.0, 1.0)
_RATES_OF_DROPOUT = (0.05, 0.1, 0.2, 0.4)
_LOWER = (0.025, 0.05, 0.1, 0.2)
_HEAVY = (0.005, 0.01, 0.02, 0.05)
_HEAVIER = (0.01, 0.02, 0.05, 0.1)
_MEMBERS = defaults.members("fashion_mnist", "vi")
_RECIPE = defaults.of("fashion_mnist", "vi", _MEMBERS)
_COLD = (0.01, 0.1, 0.3, 1.0)


def _layers(label: str, peer: str, further: tuple[Four, Four], rates: Four) -> dict[str, Method]:
    """A library of layers: with the KL as documented, whose further rates are the last, and with it as it should be."""
    module = peer.replace("-", "_")
    documented = Method(
        f"{label}, documented KL",
        label,
        partial(_of_peer, module, "VI", label),
        _VI,
        _AS_DOCUMENTED,
        "none",
        further=(rates, _AS_DOCUMENTED),
    )
    mended = Method(
        f"{label}, KL mended", label, partial(_of_peer, module, "MENDED", label), _VI, _BETA, further=further
    )
    return {module: documented, f"{module}_mended": mended}


def _by_muon(label: str, members: int, passes: float) -> Method:
    """Averaged networks that Muon has moved, at rates that fall to a tenth."""
    return Method(
        f"MAP, Muon, averaged, {label}",
        "credent",
        _ours(ours.map_muon),
        _FAST,
        _COLDER,
        further=(_FAST, _COLDEST),
        members=members,
        passes=passes,
    )


_AVERAGED: dict[str, Method] = {
    "map_averaged": Method("MAP, averaged", "credent", _ours(ours.map_averaged), _ADAM, _MAP, further=(_ADAM, _COLDER)),
    "vi_averaged": Method("VI, averaged", "credent", _ours(ours.vi_averaged), _VI, _BETA, further=(_VI, _LIGHT)),
    "map_muon": _by_muon("3 members of 0.3 of the passes", 3, 0.3),
    "map_muon_two": _by_muon("2 members of 0.4 of the passes", 2, 0.4),
}
_CALIBRATED = {
    f"{name.removesuffix('_averaged')}_calibrated": replace(
        method, label=f"{method.label}, calibrated", calibrated=True, tuned_as=name
    )
    for name, method in _AVERAGED.items()
}

METHODS: dict[str, Method] = {
    "map": Method("MAP", "credent", _ours(ours.map_), _ADAM, _MAP, further=(_VI, _MAP)),
    "vi": Method("VI", "credent", _ours(ours.vi), _VI, _BETA, further=(_VI, _LIGHT)),
    "vi_last": Method("VI, last layer", "credent", _ours(ours.vi_last), _ADAM, _BETA, further=(_ADAM, _LIGHT)),
    "vi_default": Method(
        f"VI, Fashion-MNIST's recipe, {_MEMBERS} members of 0.6 of the passes",
        "credent",
        _ours(ours.vi_default),
        (_RECIPE["lr"],) * 4,
        (_RECIPE["beta"],) * 4,
        members=_MEMBERS,
        passes=_RECIPE["epochs"] / 10,
    ),
    **_AVERAGED,
    **_CALIBRATED,
    "dropout_averaged": Method(
        "MAP, averaged, dropout on",
        "credent",
        _ours(ours.dropout_averaged),
        _ADAM,
        _RATES_OF_DROPOUT,
        "dropout rate",
        further=(_ADAM, _LOWER),
    ),
    "dropout_muon": Method(
        "MAP, Muon, averaged, dropout on, 2 members of 0.4 of the passes",
        "credent",
        _ours(ours.dropout_muon),
        _FAST,
        _RATES_OF_DROPOUT,
        "dropout rate",
        further=(_FAST, _LOWER),
        members=2,
        passes=0.4,
    ),
    "vl": Method("VL", "credent", _ours(ours.vl), _ADAM, _BETA, further=(_ADAM, _LIGHT)),
    "ir": Method("VI, inverse-reference prior", "credent", _ours(ours.ir), _VI, _BETA, further=(_ADAM, _BETA)),
    "sgld": Method(
        "SGLD",
        "credent",
        _ours(ours.sgld),
        (0.02, 0.05, 0.1, 0.2),
        _COLD,
        "temperature",
        further=((0.05, 0.1, 0.2, 0.5), _COLD),
        chain=True,
    ),
    "sghmc": Method(
        "SGLD, momentum 0.9",
        "credent",
        _ours(ours.sghmc),
        _HEAVY,
        _COLD,
        "temperature",
        further=(_HEAVIER, _COLD),
        chain=True,
    ),
    "psgld": Method(
        "pSGLD",
        "credent",
        _ours(ours.psgld),
        (2e-4, 5e-4, 1e-3, 2e-3),
        _COLD,
        "temperature",
        further=((5e-4, 1e-3, 2e-3, 5e-3), _COLD),
        chain=True,
    ),
    "bnp": Method(
        "BNP-SGLD",
        "credent",
        _ours(ours.bnp),
        (0.05, 0.1, 0.2, 0.4),
        _COLD,
        "temperature",
        further=((0.1, 0.2, 0.4, 0.8), _COLD),
        chain=True,
    ),
    "ensemble": Method("deep ensemble of 5", PLAIN, _ours(ours.map_), _ADAM, _MAP, members=5, tuned_as="map"),
    "dropout": Method(
        "MC dropout",
        PLAIN,
        _ours(ours.dropout),
        _ADAM,
        _RATES_OF_DROPOUT,
        "dropout rate",
        further=(_ADAM, _LOWER),
    ),
    "ivon": Method(
        "IVON",
        "ivon",
        partial(_of_peer, "ivon", "TUNED", "ivon"),
        (0.05, 0.1, 0.2, 0.4),
        _BETA,
        further=((0.1, 0.2, 0.4, 0.8), _BETA),
    ),
    "laplace_last": Method(
        "laplace-torch, last layer",
        "laplace-torch",
        partial(_of_peer, "laplace", "TUNED", "laplace-torch, last layer"),
        _ADAM,
        _DECAY,
        further=(_VI, _DECAY),
    ),
    "laplace_grid": Method(
        "laplace-torch, last layer, prior by validation",
        "laplace-torch",
        partial(_of_peer, "laplace", "TUNED", "laplace-torch, last layer, grid"),
        _ADAM,
        _DECAY,
        tuned_as="laplace_last",
    ),
    "laplace_kron": Method(
        "laplace-torch, Kronecker",
        "laplace-torch",
        partial(_of_peer, "laplace", "TUNED", "laplace-torch, Kronecker"),
        _ADAM,
        _DECAY,
        further=(_VI, _DECAY),
        chunk=50,
        limit=300,
    ),
    **_layers("bayesian-torch", "bayesian-torch", (_FAST, _BETA), rates=(3e-3, 6e-3, 1.2e-2, 1.6e-2)),
    **_layers("torchbnn", "torchbnn", (_FAST, _BETA), rates=(1.5e-3, 3e-3, 6e-3, 1.2e-2)),
    **_layers("blitz", "blitz", (_FAST, _BETA), rates=(1.25e-4, 2.5e-4, 5e-4, 1.5e-3)),
    **_layers("torch-uncertainty", "torch-uncertainty", (_FAST, _BETA), rates=(1.5e-3, 3e-3, 6e-3, 1.2e-2)),
    "pyro": Method("pyro", "pyro", partial(_of_peer, "pyro", "VI", "pyro"), _VI, _BETA, further=(_VI, _LIGHT)),
    "posteriors_default": Method(
        "posteriors, SGHMC, default friction",
        "posteriors",
        partial(_of_peer, "posteriors", "SAMPLERS", "posteriors, SGHMC"),
        (0.003, 0.01, 0.03, 0.1),
        _COLD,
        "temperature",
        further=((0.001, 0.003, 0.01, 0.03), _COLD),
        chain=True,
    ),
    "posteriors_sghmc": Method(
        "posteriors, SGHMC",
        "posteriors",
        partial(_of_peer, "posteriors", "TUNED", "posteriors, SGHMC"),
        _HEAVY,
        _COLD,
        "temperature",
        further=(_HEAVIER, _COLD),
        chain=True,
    ),
}
