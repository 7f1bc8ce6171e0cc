"""Equal parts of several posteriors of one network: an ensemble, each of whose members knows its own doubt.

    q(w) = (1/K) sum_k q_k(w),     mean = mean_k mu_k,     variance = mean_k (sigma_k^2 + mu_k^2) - mean^2

Posteriors that were trained from different seeds lie in different modes, which no single mean-field q covers; deep
ensembles [Lakshminarayanan et al. 2017] are the case of K points. Draws take the members in turn, so that any number of
them is shared out evenly.

Shapes: those of the members, which must agree.

>>> parts = [Draws([{"w": torch.tensor([0.0])}, {"w": torch.tensor([2.0])}]), Draws([{"w": torch.tensor([5.0])}])]
>>> q = Mixture(parts)
>>> q.mean()["w"], q.stddev()["w"]              # means 1 and 5, variances 1 and 0: 3, and 1/2 + 4
(tensor([3.]), tensor([2.1213]))
>>> [params["w"].item() for params in q.draws()]
[0.0, 5.0, 2.0]
"""

import warnings
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import torch

from credent.errors import InputError
from credent.families.draws import Draws  # noqa: F401  (the doctest's)
from credent.families.posterior import Posterior
from credent.network import Params

_APART = 2**20  # between the seeds of two members; torch's generator for CPUs takes 32 bits of a seed, no more


class Mixture(Posterior):
    """Posteriors in equal parts, for `predict`: `Mixture([first.posterior, second.posterior])`.

    Each belongs to an objective of its own: the means of a trained q are the parameters of its network.
    """

    def __init__(self, parts: Sequence[Posterior]) -> None:
        if not parts:
            raise InputError("Mixture([]): a mixture needs at least one posterior.")
        if len({id(part) for part in parts}) < len(parts):
            raise InputError(
                "Mixture: the same posterior is there twice; train each member on a network of its own, which begins"
                " from a seed of its own."
            )
        for part in parts:
            if not isinstance(part, Posterior):
                raise InputError(
                    f"Mixture takes posteriors, and got a {type(part).__name__}: Mixture([first.posterior,"
                    " second.posterior])."
                )
        means = [part.mean() for part in parts]
        if any(each.keys() != means[0].keys() for each in means) or any(
            w.shape != means[0][k].shape for each in means for k, w in each.items()
        ):
            raise InputError(
                "Mixture: its posteriors are of different networks: the names or shapes of weights differ."
            )
        places = [w.data_ptr() for each in means for w in each.values() if w.numel()]
        if len(set(places)) < len(places):
            raise InputError(
                "Mixture: its posteriors share the weights of one network, so that the last one trained is what all of"
                " them are: train each member on a network of its own."
            )
        self.parts = tuple(parts)

    def mean(self) -> Params:
        """Mean over the members."""
        means = [part.mean() for part in self.parts]
        return {k: torch.stack([mean[k] for mean in means]).mean(0) for k in means[0]}

    def stddev(self) -> Params:
        """Standard deviation of the mixture: within members and between them."""
        means, scales = [part.mean() for part in self.parts], [part.stddev() for part in self.parts]
        between = {k: torch.stack([mean[k] for mean in means]).var(0, correction=0) for k in means[0]}
        within = {k: torch.stack([scale[k] for scale in scales]).square().mean(0) for k in scales[0]}
        return {k: (between[k] + within[k]).sqrt() for k in between}

    def draws(self, n: int | None = None, seed: int | None = None) -> Iterator[Params]:
        """n draws, the members in turn; None is all that members of draws have."""
        members = len(self.parts)
        if n is not None and n < members:
            left = f"{n} draws leave out {members - n} of {members} posteriors"
            warnings.warn(f"{left}: take samples={members}, or a multiple.", stacklevel=3)
        streams = [
            part.draws(None if n is None else (n + members - 1 - k) // members, _stream(seed, k))
            for k, part in enumerate(self.parts)
            if n is None or n > k
        ]
        for turn in zip_longest(*streams):
            yield from (params for params in turn if params is not None)


def _stream(seed: int | None, member: int) -> int | None:
    return None if seed is None else seed + member * _APART
