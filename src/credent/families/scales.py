"""The scales of a variational family: sigma = exp(rho) > 0, one vector under all random parameters.

The vector keeps the elementwise work of sampling in a few passes over memory; in a `state_dict` it appears by
parameter name, so files do not depend on the order in which memory happens to be laid out.

>>> scales = Scales(Layout(nn.Linear(2, 1)), {"weight": 0.1, "bias": 0.2})
>>> sorted(scales.state_dict())
['rho.bias', 'rho.weight']
>>> scales.sigma().detach()
tensor([0.1000, 0.1000, 0.2000])
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.layout import Layout


class Scales(nn.Module):
    """One positive number per random weight."""

    rho: nn.Parameter
    _cache: Tensor | None

    def __init__(self, layout: Layout, initial: dict[str, float]) -> None:
        super().__init__()
        self.layout = layout
        filled = {k: torch.full_like(p, math.log(initial[k])) for k, p in layout.params().items()}
        self.rho = nn.Parameter(layout.flatten(filled).clone())
        self._caching, self._cache = False, None

    @contextmanager
    def cached(self) -> Iterator[None]:
        """Within: the numbers of sigma are computed once, if at all."""
        self._caching = True
        try:
            yield
        finally:
            self._caching, self._cache = False, None

    def values(self) -> Tensor:
        """All scales as numbers that no gradient flows through, (P,)."""
        if self._cache is not None:
            return self._cache
        rho = self.log_sigma().detach()
        values = torch.exp(rho, out=self.layout.vector(rho))
        if self._caching:
            self._cache = values
        return values

    def sigma(self) -> Tensor:
        """All scales, differentiable in rho, (P,)."""
        return self.log_sigma().exp()

    def log_sigma(self) -> Tensor:
        """The logarithms of all scales, (P,)."""
        mean = self.layout.first()
        if mean.device != self.rho.device or mean.dtype != self.rho.dtype:
            raise InputError(
                f"the network is {mean.dtype} on {mean.device}, its scales are {self.rho.dtype} on {self.rho.device}:"
                " move or convert the objective, which holds both, as in bnn.to(device)."
            )
        return self.rho

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        rho = self.rho if keep_vars else self.rho.detach()
        destination.update({f"{prefix}rho.{k}": v for k, v in self.layout.unflatten(rho).items()})

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        keys = {k: f"{prefix}rho.{k}" for k in self.layout.names}
        missing = [key for key in keys.values() if key not in state_dict]
        wrong = {key for k, key in keys.items() if key in state_dict and state_dict[key].shape != self.layout.shapes[k]}
        _, _, missing_keys, unexpected_keys, errors = arguments
        missing_keys.extend(missing)
        unexpected_keys.extend(k for k in state_dict if k.startswith(f"{prefix}rho.") and k not in keys.values())
        errors.extend(f"{key} has shape {tuple(state_dict[key].shape)}, another network's" for key in sorted(wrong))
        if not missing and not wrong:
            with torch.no_grad():
                self.rho.copy_(self.layout.flatten({k: state_dict[key].to(self.rho) for k, key in keys.items()}))
