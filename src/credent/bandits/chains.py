"""Thompson sampling along a chain: the weights where it is now are a draw from the posterior.

    SGLD, PSGLD, BNP     `credent.samplers`, on a potential that grows with the buffer

The preconditioners adapt all along (`burn_in=None`), as in the papers: the target itself moves as trials come in.
`lr` is the sampler's eps, (lr/2) grad U and noise of variance lr T.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from credent import samplers
from credent.bandits.deep import Deep, Learner, held
from credent.objectives import Objective


@dataclass(frozen=True, kw_only=True)
class SGLD(Deep):
    """Langevin dynamics."""

    lr: float = 6e-6
    temperature: float = 0.03

    def learner(self, net: nn.Module) -> Learner:
        """MAP's gradient with noise."""
        sampler = samplers.SGLD(net.parameters(), self.lr, num_data=1, temperature=self.temperature)
        return Learner(self.log_joint(net), sampler)

    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """Where the chain is."""
        return held(objective, contexts)


@dataclass(frozen=True, kw_only=True)
class PSGLD(Deep):
    """Langevin dynamics preconditioned by RMSprop."""

    lr: float = 6e-6
    temperature: float = 0.03
    decay: float = 0.99
    damping: float = 1e-3

    def learner(self, net: nn.Module) -> Learner:
        """MAP's gradient with noise, both preconditioned."""
        sampler = samplers.PSGLD(
            net.parameters(),
            self.lr,
            num_data=1,
            temperature=self.temperature,
            burn_in=None,
            decay=self.decay,
            damping=self.damping,
        )
        return Learner(self.log_joint(net), sampler)

    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """Where the chain is."""
        return held(objective, contexts)


@dataclass(frozen=True, kw_only=True)
class BNP(Deep):
    """Langevin dynamics preconditioned by the statistics of layer inputs."""

    lr: float = 6e-6
    temperature: float = 0.03
    floor: tuple[float, float] = (1e-2, 1e-2)
    decay: float = 0.99

    def learner(self, net: nn.Module) -> Learner:
        """MAP's gradient with noise, both preconditioned."""
        sampler = samplers.BNPSGLD(
            net,
            self.lr,
            num_data=1,
            temperature=self.temperature,
            burn_in=None,
            decay=self.decay,
            floor=self.floor,
            batch_size=self.schedule.batch,
        )
        return Learner(self.log_joint(net), sampler)

    def values(self, objective: Objective, contexts: Tensor) -> Tensor:
        """Where the chain is."""
        return held(objective, contexts)
