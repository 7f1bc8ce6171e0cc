"""The other answer to "which prior is this penalty?": none, and why.

r(mu, nu) is a KL divergence to some prior exp(A) only if one function A serves all scales nu of the noise,

    E[A(mu + nu e)] = -r(mu, nu) - H[nu e] + constant,                                                      (*)

and exp(A) integrates. Three things can go wrong: A depends on nu; exp(A) does not integrate; or r is not smooth enough
to be an average over the noise at all. And where the noise is much wider than the prior, nothing can be told.

>>> print(NoPrior("it depends on the scale", "A would have to change by 0.3 nats between nu=0.1 and nu=1 at w=0.5."))
No prior: it depends on the scale. A would have to change by 0.3 nats between nu=0.1 and nu=1 at w=0.5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Reason = Literal[
    "it depends on the scale", "it is not integrable", "it is not smooth enough", "it cannot be told from this noise"
]


@dataclass(frozen=True)
class NoPrior:
    """No prior has this penalty as its KL divergence, or none that could be found; print it for a sentence.

    `evidence` holds the numbers of the sentence. `log_priors` maps nu to the A that it asks for at the points `grid`,
    for plots.
    """

    reason: Reason
    because: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    grid: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    log_priors: Mapping[float, npt.NDArray[np.float64]] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return f"No prior: {self.reason}. {self.because}"
