"""From a network and a posterior over its weights to what both say about inputs.

    p(y | x) = (1/S) sum_s p(y | f(x; w_s)),     w_s ~ posterior

    sampled      f_s = f(x; w_s)                     the network at each draw
    linearised   f_s = f(x; mu) + J(x) (w_s - mu)    its tangent at the mean mu of the posterior
    mean         f_s = f(x; mu)                      once: the mean network

The tangent is taken by forward-mode products: no Jacobian is ever held.

The loop runs over draws outside and over chunks of the inputs inside: each draw of the weights is made or read once,
and the result does not depend on the chunks. Where only the last layers are random, what lies before them is run
twice and not for every draw. The network is in evaluation mode meanwhile and comes back as it was.

With its dropout on (`credent.dropout`) every pass has masks z_s too, f(x; w_s, z_s): draws are then made again until
there are as many passes as samples, the whole network is run in each, and the chunks decide which masks they are.

>>> from credent.families import Draws
>>> from credent.likelihoods import Gaussian
>>> net = nn.Linear(1, 1, bias=False)
>>> posterior = Draws([{"weight": torch.tensor([[1.0]])}, {"weight": torch.tensor([[3.0]])}])
>>> pred = predict(net, posterior, Gaussian(scale=1.0), torch.tensor([[2.0]]))
>>> pred.mean, pred.epistemic                   # outputs 2 and 6
(tensor([[4.]]), tensor([[2.]]))
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from credent.dropout import dropping
from credent.errors import BudgetError, InputError
from credent.families.posterior import Posterior
from credent.likelihoods import Likelihood
from credent.network import Network, Params, take
from credent.predictive import Predictive
from credent.tail import Tail

How = Literal["sampled", "linearised", "mean"]
_APART = 2**19  # between the seeds of two turns at the same posterior


@torch.no_grad()
def predict(
    net: nn.Module,
    posterior: Posterior,
    likelihood: Likelihood,
    x: Any,
    *,
    samples: int | None = 32,
    how: How = "sampled",
    batch_size: int = 1024,
    seed: int | None = 0,
    statistics: Iterable[Any] | None = None,
    max_bytes: int | None = None,
    dropout: bool = False,
) -> Predictive:
    """Bayesian model average over `samples` draws of the weights (None: all that a set of draws has, or else one).

    `x` is a tensor, or a tuple or dict of tensors as the network takes them; `batch_size` inputs go through the network
    at a time. The same `seed` gives the same draws and so the same numbers; None takes fresh ones. `statistics`,
    batches of training data, re-estimates BatchNorm's statistics for each draw, which otherwise stay the network's,
    with a warning where these fit no draw. More than `max_bytes` for the outputs that must be held (of one draw for
    classes, of all draws for regression) is refused after the first chunk. With `dropout` the network's own dropout
    layers stay on: each pass has masks of its own, and where a posterior has fewer draws than `samples`, as a point
    has, all are used equally often, until there are at least as many passes.
    """
    size = _length(x)
    if size == 0:
        raise InputError("predict got no inputs: x has length 0.")
    if isinstance(samples, Tensor):
        raise InputError(
            "predict(samples=<a tensor>): it is the number of draws; several inputs are one tuple, predict((u, v))."
        )
    if samples is not None and samples < 1:
        raise InputError(f"predict(samples={samples}): ask for at least one draw; the mean network is how='mean'.")
    if batch_size < 1:
        raise InputError(f"predict(batch_size={batch_size}): at least one input goes through the network at a time.")
    check_statistics(statistics)
    if not isinstance(dropout, bool):
        raise InputError(f"predict(dropout={dropout!r}): True keeps the network's own layers on, at their own rates.")
    if how not in ("sampled", "linearised", "mean"):
        raise InputError(f"predict(how={how!r}): write 'sampled', 'linearised' or 'mean'.")
    network = Network(net)
    tail = Tail(network)
    mean = posterior.mean() if how != "sampled" else {}

    def drawn(turn: int) -> Iterable[Params]:
        return [mean] if how == "mean" else posterior.draws(samples, None if seed is None else seed + turn * _APART)

    if statistics is None:
        line = "statistics=loader, batches of training data"
        warn_of_running_statistics(network, iter([mean] if mean else drawn(0)), line, stacklevel=4)

    def outputs() -> Iterator[Tensor]:
        for index, params in enumerate(_again(drawn, samples) if dropout else drawn(0)):
            held = (samples or index + 1) if likelihood.keeps_draws and (how != "mean" or dropout) else 1
            with normalised(network, mean or params, statistics, x):
                if samples != 1 and how != "mean" and not dropout:
                    tail.meet(params)
                parts: list[Tensor] = []
                for number, part in enumerate(_chunks(x, size, batch_size)):
                    at = tail.on(number, part)
                    parts.append(_tangent(at, mean, params) if how == "linearised" else at(params))
                    _check_budget(parts[0], size, held, max_bytes)
                yield parts[0] if len(parts) == 1 else torch.cat(parts)

    with network.evaluating(), dropping(net, seed) if dropout else nullcontext():
        return likelihood.predictive(outputs())


def _again(drawn: Callable[[int], Iterable[Params]], samples: int | None) -> Iterator[Params]:
    """Draws over and over until there are at least `samples`, each as often as the others: a point has many masks."""
    made = 0
    for turn in count():
        before = made
        for params in drawn(turn):
            made += 1
            yield params
        if samples is None and made == 1:
            raise InputError(
                "predict(samples=None, dropout=True): one draw of the weights, so say how many masks: samples=32."
            )
        if samples is None or made >= samples or made == before:
            return


def check_statistics(statistics: Iterable[Any] | None) -> None:
    """Whether these batches can be read once for each draw."""
    if isinstance(statistics, Iterator):
        raise InputError(
            "statistics= is read once for each draw, and a generator is used up by the first: give a list."
        )


def normalised(
    network: Network, params: Params, statistics: Iterable[Any] | None, x: Any
) -> AbstractContextManager[None]:
    """Within: BatchNorm's statistics are those of `params` on these batches, or stay as they are.

    Batches are inputs such as `x`, or a loader's (x, y), and are moved to the network's device.
    """
    if statistics is None:
        return nullcontext()
    return network.statistics_of(params, _inputs(statistics, x, network.device))


def warn_of_running_statistics(network: Network, draws: Iterator[Params], line: str, stacklevel: int) -> None:
    """Say so where BatchNorm's running statistics follow weights that are not the network's own; `line` helps."""
    own = dict(network.module.named_parameters())
    params = next(draws) if network.normalises_after(own) else {}
    other = [k for k, w in params.items() if k in own and not torch.equal(w, own[k])]
    if network.normalises_after(other):
        warnings.warn(
            "BatchNorm follows random weights, and its running statistics fit no single draw of them: what it"
            f" says may be far off. Write {line}.",
            stacklevel=stacklevel,
        )


def _inputs(batches: Iterable[Any], x: Any, device: torch.device | None) -> Iterator[Any]:
    """Batches without their targets: a loader may hand out (x, y) where the network takes x."""
    for batch in batches:
        if isinstance(batch, tuple | list):
            batch = batch[: len(x)] if isinstance(x, tuple | list) else batch[0]
        yield take(batch, slice(None), device)


def _tangent(at: Callable[[Params], Tensor], mean: Params, params: Params) -> Tensor:
    """f(x; mu) + J(x) (w - mu) in one pass that carries values and directional derivatives together."""
    try:
        return _dual(at, mean, params)
    except NotImplementedError:  # fused kernels of LSTMs and attention have no forward mode; their plain ones do
        try:
            with _plain_kernels():
                return _dual(at, mean, params)
        except NotImplementedError as error:
            raise InputError(
                f"the network has an operation without a forward-mode derivative ({error}), so it cannot be linearised:"
                " predict(..., how='sampled') or how='mean'."
            ) from error


@contextmanager
def _plain_kernels() -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # putting mkldnn's flags back speaks of GPUs that are not there
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


def _dual(at: Callable[[Params], Tensor], mean: Params, params: Params) -> Tensor:
    with torch.inference_mode(False), torch.no_grad(), forward_ad.dual_level(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch scripts its own derivatives at their first use
        duals = {k: forward_ad.make_dual(mean[k], params[k] - mean[k]) for k in mean}  # type: ignore[no-untyped-call]
        outputs = forward_ad.unpack_dual(at(duals))  # type: ignore[no-untyped-call]
        value: Tensor = outputs.primal
        return value if outputs.tangent is None else value + outputs.tangent


def _check_budget(first: Tensor, size: int, draws: int, max_bytes: int | None) -> None:
    need = first.numel() // first.shape[0] * first.element_size() * size * draws
    if max_bytes is not None and need > max_bytes:
        raise BudgetError(
            f"the outputs of {size:,} inputs, {draws} draws of them at a time, take {need:,} bytes, and max_bytes is"
            f" {max_bytes:,}: predict fewer inputs at a time, ask for fewer samples, or allow {need:,}."
        )


def _length(x: Any) -> int:
    values = list(x.values()) if isinstance(x, Mapping) else list(x) if isinstance(x, tuple | list) else [x]
    first = values[0] if values else None
    if not isinstance(first, Tensor) or first.ndim == 0:
        raise InputError(
            f"predict needs tensors with a batch axis, and got {type(first).__name__}: torch.as_tensor(x)."
        )
    return first.shape[0]


def _chunks(x: Any, size: int, batch_size: int) -> Iterator[Any]:
    for start in range(0, size, batch_size):
        part = slice(start, start + batch_size)
        if isinstance(x, Mapping):
            yield {k: v[part] for k, v in x.items()}
        elif isinstance(x, tuple | list):
            yield tuple(v[part] for v in x)
        else:
            yield x[part]
