"""Several chains as one posterior, and whether they agree.

    q(w) = (1 / (C n)) sum_c sum_i delta(w - w_ci)

Chains that were begun in different places and found the same law are the only evidence that one of them has found it.
R-hat near 1 and a large effective sample size (`credent.metrics.chains`) are asked of what matters: of predictions,
and of chosen weights. Weights of a network have many equivalent modes, so that chains may differ in every weight and
agree in every prediction.

Shapes: arrays are (chains, draws, ...).

>>> one, other = (Draws([{"w": torch.tensor([float(i)])} for i in some]) for some in ((0, 1), (2, 3)))
>>> q = Chains([one, other])
>>> len(q), float(q.mean()["w"]), q.to_arrays()["w"].shape
(4, 1.5, (2, 2, 1))
"""

import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from credent.errors import CredentError, InputError
from credent.families import Draws, Posterior
from credent.likelihoods import Likelihood
from credent.metrics.chains import LEAST, ess, rhat
from credent.network import Params
from credent.objectives import Objective, Stacked
from credent.predict import predict

_SOME = 100  # weights that are looked at when chains are printed


@dataclass(frozen=True)
class Mixing:
    """R-hat and effective number of draws by name, each a tensor of the quantity's shape."""

    rhat: dict[str, Tensor]
    ess: dict[str, Tensor]
    chains: int
    draws: int
    """Of each chain, as many as the shortest has."""

    def __str__(self) -> str:
        total = f"{self.chains * self.draws} draws in {self.chains} chain{'s' if self.chains > 1 else ''}"
        return f"R-hat at most {self.worst_rhat:.3g}, ESS at least {self.least_ess:.3g} of {total}"

    @property
    def worst_rhat(self) -> float:
        """The largest R-hat of all that move; Vehtari et al. advise less than 1.01. NaN where nothing moves."""
        return max(_numbers(self.rhat), default=math.nan)

    @property
    def least_ess(self) -> float:
        """The smallest effective number of draws of all that move, of all chains together; NaN where nothing moves.

        Vehtari et al. advise 100 times the number of chains.
        """
        return min(_numbers(self.ess), default=math.nan)


class Chains(Posterior):
    """The draws of all chains, equally weighted; `chains` has each by itself.

    left_out: what chains that diverged had drawn until then, by their number. It is no part of the posterior.
    """

    def __init__(self, chains: Sequence[Draws], left_out: Mapping[int, Draws] | None = None) -> None:
        if len(chains) == 0:
            raise InputError("a posterior of chains needs at least one chain with draws.")
        self.chains, self.left_out = tuple(chains), dict(left_out or {})
        forms = [{k: tuple(w.shape) for k, w in chain[0].items()} for chain in self.chains]
        for number, form in enumerate(forms):
            if form != forms[0]:
                name = next(k for k in {**forms[0], **form} if forms[0].get(k) != form.get(k))
                raise InputError(
                    f"chain {number} is of another network than chain 0: {name!r} has shape {form.get(name)} and"
                    f" {forms[0].get(name)}. Chains of one posterior have the same parameters; keep others apart."
                )
        self._all = Draws(_Joined(self.chains))

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> Params:
        return self._all[index]

    def __repr__(self) -> str:
        return f"Chains({len(self.chains)} chains, {len(self)} draws)"

    def __str__(self) -> str:
        """How much there is, and whether the chains agree in some of the weights, which is quickly said."""
        lengths, size = [len(chain) for chain in self.chains], sum(w.numel() for w in self[0].values())
        draws = f"{lengths[0]}" if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)}"
        there = f"{len(self.chains)} chain{'s' if len(lengths) > 1 else ''} of {draws} draws of {size:,} weights"
        if min(lengths) < LEAST:
            return f"{there}; whether they agree is asked of at least {LEAST} draws each"
        every = max(1, size // _SOME)
        some = torch.stack([torch.stack([_flat(w, every) for w in chain]) for chain in self._equal()])
        agree = Mixing({"some": rhat(some)}, {"some": ess(some)}, *some.shape[:2])
        return f"{there}. Of {some.shape[2]} weights: {agree}. What counts are predictions: mixing_of_predictions(...)"

    def mean(self) -> Params:
        """Mean over all draws."""
        return self._all.mean()

    def stddev(self) -> Params:
        """Standard deviation over all draws: within the chains and between them."""
        return self._all.stddev()

    def sample(self, n: int, seed: int | None = None) -> Params:
        """n of the draws, stacked in front."""
        return self._all.sample(n, seed)

    def draws(self, n: int | None = None, seed: int | None = None) -> Iterator[Params]:
        """All draws, chain after chain; with n, that many of them: evenly spaced, or with a seed chosen at random."""
        return self._all.draws(n, seed)

    # -- do they agree? -----------------------------------------------------------------------------------------------

    def mixing_of_predictions(self, net: nn.Module, likelihood: Likelihood, x: Any, **options: Any) -> Mixing:
        """Of each draw's predictive mean on `x` (probabilities for classes); options are those of `credent.predict`."""

        def answer(params: Params) -> Tensor:
            return predict(net, Draws([params]), likelihood, x, **options).mean.cpu()

        self._check_length()
        each = torch.stack([torch.stack([answer(w) for w in chain]) for chain in self._equal()])
        return Mixing({"predictions": rhat(each)}, {"predictions": ess(each)}, *each.shape[:2])

    def mixing_of_weights(self, names: str = "*") -> Mixing:
        """Of the weights whose names match the pattern, such as "head.*"."""
        self._check_length()
        arrays = self.to_arrays(names)
        number = len(self.chains), min(len(chain) for chain in self.chains)
        return Mixing({k: rhat(w) for k, w in arrays.items()}, {k: ess(w) for k, w in arrays.items()}, *number)

    # -- for other programs -------------------------------------------------------------------------------------------

    def to_arrays(self, names: str = "*") -> dict[str, NDArray[Any]]:
        """Draws of the parameters whose names match the pattern, (chains, draws, ...) each; float32 for bfloat16.

        Of chains of unequal length the last draws count, as many as the shortest has.
        """
        chosen = fnmatch.filter(self[0], names)
        if not chosen:
            raise InputError(f"{names!r} matches no parameter; there are {', '.join(list(self[0])[:6])}.")
        found: dict[str, list[NDArray[Any]]] = {k: [] for k in chosen}
        for chain in self._equal():
            drawn: dict[str, list[NDArray[Any]]] = {k: [] for k in chosen}
            for params in chain:
                for k in chosen:
                    w = params[k].cpu()
                    drawn[k].append((w.float() if w.dtype == torch.bfloat16 else w).numpy())  # numpy has none
            for k in chosen:
                found[k].append(np.stack(drawn[k]))
        return {k: np.stack(each) for k, each in found.items()}

    def to_arviz(self, names: str = "*") -> Any:
        """The same for arviz: an InferenceData (arviz 0.x), or a DataTree (1.x)."""
        try:
            import arviz  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise CredentError(
                "to_arviz() needs arviz, which is not installed: `pip install arviz`. to_arrays() gives the same"
                " numbers as plain arrays (chain, draw, ...), without it."
            ) from error
        posterior = self.to_arrays(names)
        if int(arviz.__version__.split(".")[0]) < 1:
            return arviz.from_dict(posterior=posterior)
        return arviz.from_dict({"posterior": posterior})

    def _check_length(self) -> None:
        least = min(len(chain) for chain in self.chains)
        if least < LEAST:
            raise InputError(
                f"the shortest chain has {least} draws, and whether chains agree is asked of at least {LEAST} of each:"
                " keep more, with a smaller Thin(every=...), or let the chains run longer."
            )

    def _equal(self) -> list[Iterator[Params]]:
        """The last draws of each chain, equally many."""
        least = min(len(chain) for chain in self.chains)
        return [islice(chain.draws(), len(chain) - least, None) for chain in self.chains]


def _flat(params: Params, every: int) -> Tensor:
    """One of every so many weights of each tensor."""
    return torch.cat([w.flatten()[::every].float().cpu() for w in params.values()])


def _numbers(found: dict[str, Tensor]) -> list[float]:
    """All of them but NaN, which stands for what never changes."""
    return [number for each in found.values() for number in each[~each.isnan()].tolist()]


class _Joined(Sequence[Params]):
    """The draws of several chains, one chain after the other."""

    def __init__(self, chains: Sequence[Draws]) -> None:
        self._chains = chains
        self._ends = np.cumsum([len(chain) for chain in chains]).tolist()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Params:  # type: ignore[override]
        index = range(len(self))[index]
        chain = int(np.searchsorted(self._ends, index, side="right"))
        return self._chains[chain][index - (self._ends[chain - 1] if chain else 0)]


class _OfStack(Sequence[Params]):
    """The draws of one chain of a `Stacked`, whose draws hold all of them."""

    def __init__(self, stacked: Sequence[Params], chain: int) -> None:
        self._stacked, self._chain = stacked, chain

    def __len__(self) -> int:
        return len(self._stacked)

    def __getitem__(self, index: int) -> Params:  # type: ignore[override]
        return {k: w[self._chain] for k, w in self._stacked[index].items()}


def posterior_of(objective: Objective, draws: Sequence[Params]) -> Draws | Chains:
    """What the draws of a run are: of one chain, or of several that lie stacked in each."""
    if isinstance(objective, Stacked):
        return Chains([Draws(_OfStack(draws, chain)) for chain in range(objective.count)])
    return Draws(draws)
