"""The block under every sampler: drift along the gradient, and noise that fits it.

    U(w) = -log p(w) - sum_i log p(y_i | x_i, w) = N x (MAP's loss),        target  exp(-U(w) / T)

    w <- w + P u,        u = sqrt(eps T) xi - (eps/2) P' grad U,        xi ~ N(0, I)                     momentum = 0
    v <- m v + P u,      u = sqrt(eps (1 - m) T) xi - (eps/2) P' grad U,        w <- w + v               momentum = m

So the drift is that of G = P P', and the noise has its covariance.

`lr` is eps, the papers' step size; the gradient is that of `MAP`'s loss, in nats per datum, and N = `num_data` makes it
grad U. A fixed G has this target as eps -> 0; at a finite eps the law of a quadratic U is known exactly (the discrete
Lyapunov equation), and tests hold every sampler to it. A preconditioner that still adapts samples something else, so it
adapts for `burn_in` steps and is then frozen. (Welling, Teh 2011; Chen, Fox, Guestrin 2014.)

Noise comes from the sampler's own stream, which is in its `state_dict`; processes that train one network together need
equal streams, so give them the same `seed`.
"""

import math
import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, SupportsIndex, TypeVar, cast

import torch
from torch import Tensor
from torch.optim import Optimizer, optimizer

from credent import native
from credent.errors import InputError
from credent.noise import Noise

_P = ParamSpec("_P")
_R = TypeVar("_R")

Params = Iterable[Tensor] | Iterable[dict[str, Any]]
"""What torch's optimisers take: parameters, or groups of them."""

State = dict[Tensor, Any]
"""An optimiser's memory, a dict for each parameter; what has a name with _ in front is made of the rest, not saved."""


class Step(NamedTuple):
    """What a step is made of: lists of one tensor for each parameter, and where its noise comes from."""

    params: list[Tensor]
    grads: list[Tensor]
    moved: list[Tensor]
    """The parameters, or their velocities."""
    rate: float
    """- (eps/2) N, of the gradient."""
    spread: float
    """sqrt(eps (1 - m) T), of the noise."""
    noise: Noise
    memory: "Memory"
    """Where noise is drawn that no loop draws."""
    adapting: bool
    """Whether it belongs to the burn-in, and is to be learnt from."""

    def of(self, params: list[Tensor]) -> "Step":
        """The part of it for these parameters."""
        place = {p: i for i, p in enumerate(self.params)}
        at = [place[p] for p in params]
        return self._replace(params=params, grads=[self.grads[i] for i in at], moved=[self.moved[i] for i in at])

    def normal(self) -> list[Tensor]:
        """Standard normal numbers, others at every call, zeros without a spread; they may be written over."""
        return self.memory.normal(self.params, self.noise) if self.spread else list(map(torch.zeros_like, self.params))

    def compiles(self, *more: list[Tensor]) -> bool:
        """Whether compiled loops, which draw noise, can run along what is moved, the gradients, and more."""
        return bool(self.spread) and native.alike(self.moved, self.grads, *more)

    def along(self, loop: Any, *more: list[Tensor], by: tuple[float, ...] = ()) -> None:
        """Run such a loop, with noise of its own, and numbers beside rate and spread."""
        streams, noise = (self.moved, self.grads, *more), self.noise.stream().call()
        native.pass_along(loop, streams, self.rate, self.spread, *by, noise=[noise])


class Memory:
    """Where noise is drawn: a vector for each type and device, and views of it that lie in memory as parameters do."""

    def __init__(self) -> None:
        self._views: dict[tuple[Any, ...], tuple[list[Tensor], list[Tensor]]] = {}

    def normal(self, like: list[Tensor], noise: Noise) -> list[Tensor]:
        """Standard normal numbers, drawn in one call for each vector."""
        shape = tuple([(t.dtype, t.device, t.shape, t.stride()) for t in like])
        if shape not in self._views:
            self._views[shape] = _vectors(like)
        vectors, views = self._views[shape]
        for vector in vectors:
            noise.normal_(vector)
        return views


class Preconditioner(ABC):
    """G = P P' over some parameters; what it has learnt lies in the sampler's state."""

    @abstractmethod
    def drift(self, state: State, step: Step) -> None:
        """Learn from the step if it is adapting; add P u, u = spread x noise + rate x P' g, to what is moved."""

    @abstractmethod
    def move(self, state: State, params: list[Tensor], u: list[Tensor], moved: list[Tensor], scale: float) -> None:
        """Add scale x P u to `moved`."""

    @abstractmethod
    def freeze(self) -> None:
        """Burn-in is over: nothing is to be learnt any more."""


class Identity(Preconditioner):
    """G = 1."""

    def drift(self, state: State, step: Step) -> None:
        """The gradient and the noise themselves; there is nothing to learn."""
        if step.compiles():
            step.along(native.kernels.drift)
            return
        torch._foreach_add_(step.moved, step.grads, alpha=step.rate)
        if step.spread:
            torch._foreach_add_(step.moved, step.normal(), alpha=step.spread)

    def move(self, state: State, params: list[Tensor], u: list[Tensor], moved: list[Tensor], scale: float) -> None:
        """As it is."""
        torch._foreach_add_(moved, u, alpha=scale)

    def freeze(self) -> None:
        """Nothing to freeze."""


class Langevin(Optimizer, ABC):
    """Drift and noise for a preconditioner; samplers only say which."""

    def __init__(
        self,
        params: Params,
        preconditioner: Preconditioner,
        lr: float,
        num_data: int,
        temperature: float,
        momentum: float,
        burn_in: int | None,
        seed: int | None,
    ) -> None:
        name = type(self).__name__
        whole = isinstance(num_data, SupportsIndex) and not isinstance(num_data, bool)  # numpy's integers too
        if not whole or num_data < 1:
            raise InputError(
                f"{name}(num_data={num_data!r}): the number of training examples, an integer, the same as the"
                " objective's. The loss is per datum and the posterior is not, so the noise is right for one N only."
            )
        if burn_in is not None and burn_in < 1:
            raise InputError(
                f"{name}(burn_in={burn_in}): the preconditioner learns in at least one step; None never freezes it."
            )
        self.preconditioner, self.num_data, self.burn_in = preconditioner, operator.index(num_data), burn_in
        self.noise, self.steps = Noise(seed), 0
        self._memory = Memory()
        super().__init__(params, {"lr": lr, "temperature": temperature, "momentum": momentum})
        for group in self.param_groups:
            if not (group["lr"] > 0 and math.isfinite(group["lr"])):
                raise InputError(f"{name}(lr={group['lr']}): the step size eps is a positive number, such as 1e-5.")
            if not (group["temperature"] >= 0 and math.isfinite(group["temperature"])):
                raise InputError(
                    f"{name}(temperature={group['temperature']}): 1 samples the posterior, 0 adds no noise and"
                    " optimises; less than that cannot be."
                )
            if not 0 <= group["momentum"] < 1:
                raise InputError(f"{name}(momentum={group['momentum']}): the share of velocity kept, in [0, 1).")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        adapting = self.burn_in is None or self.steps < self.burn_in
        if not adapting:
            self.preconditioner.freeze()
        self.steps += 1
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._move(group, params, [p.grad for p in params], adapting)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Torch's, without its note for the profiler, which takes longer than the rest."""
        if not set_to_none:
            super().zero_grad(set_to_none)
            return
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    @staticmethod
    def profile_hook_step(func: Callable[_P, _R]) -> Callable[_P, _R]:
        """Torch's wrapper of `step`, where hooks or a profiler wait for it; otherwise it takes as long as the step."""
        noted = Optimizer.profile_hook_step(func)

        @wraps(func)
        def step(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return (noted if _watched(cast(Optimizer, args[0])) else func)(*args, **kwargs)

        return step

    def _move(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], adapting: bool) -> None:
        state, momentum, eps = self.state, group["momentum"], float(group["lr"])
        moved = params
        if momentum:
            moved = [state[p].setdefault("velocity", torch.zeros_like(p)) for p in params]
            torch._foreach_mul_(moved, momentum)
        spread = math.sqrt(eps * (1 - momentum) * group["temperature"])
        step = Step(params, grads, moved, -eps / 2 * self.num_data, spread, self.noise, self._memory, adapting)
        self.preconditioner.drift(state, step)
        torch.autograd.graph.increment_version(moved)  # which compiled loops do not do
        if momentum:
            torch._foreach_add_(params, moved)

    @torch.no_grad()
    def precondition(self, params: list[Tensor], vectors: list[Tensor]) -> None:
        """P v in the place of v, for vectors v of the parameters' shapes."""
        found = [torch.zeros_like(v) for v in vectors]
        self.preconditioner.move(self.state, params, vectors, found, 1.0)
        torch._foreach_copy_(vectors, found)

    def state_dict(self) -> dict[str, Any]:
        """Torch's, with the position in the stream of noise and the number of steps."""
        saved = super().state_dict()
        saved["state"] = {
            index: {k: v for k, v in known.items() if not k.startswith("_")} for index, known in saved["state"].items()
        }
        return saved | {"noise": self.noise.get_extra_state(), "steps": self.steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.noise.set_extra_state(state_dict["noise"])
        self.steps = state_dict["steps"]
        super().load_state_dict({k: state_dict[k] for k in ("state", "param_groups")})


def _watched(sampler: Optimizer) -> bool:
    """Whether anything is to be called before or after a step, or to be told of it."""
    hooks = (
        sampler._optimizer_step_pre_hooks,
        sampler._optimizer_step_post_hooks,
        optimizer._global_optimizer_pre_hooks,
        optimizer._global_optimizer_post_hooks,
    )
    return any(hooks) or torch.autograd.profiler._is_profiler_enabled


def _vectors(like: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """A vector for each type and device, and views of them that lie in memory as these tensors do."""
    sizes: Counter[tuple[torch.dtype, torch.device]] = Counter()
    for p in like:
        sizes[p.dtype, p.device] += p.numel()
    vectors = {kind: torch.empty(size, dtype=kind[0], device=kind[1]) for kind, size in sizes.items()}
    views, begins = [], dict.fromkeys(vectors, 0)
    for p in like:
        kind = p.dtype, p.device
        views.append(vectors[kind].as_strided(p.shape, torch.empty_like(p).stride(), begins[kind]))
        begins[kind] += p.numel()
    return list(vectors.values()), views
