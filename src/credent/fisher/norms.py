"""Squared norms of every example's gradient, without a gradient for every example.

    |g_i|^2,      g_i = d/dw log p(y_i | x_i, w)

One backward pass brings the gradient of the summed log-likelihood to the outputs of all layers, and computes none by
weights; linear, convolutional and norm layers have the norms in closed form (`fisher.layers`). That holds for a
parameter if its layer is called once, nothing else uses it, and each row of the layer's output belongs to one example.
A pass with two examples finds out which do. All others (embeddings, recurrent cells, tied weights, ...) have gradients
for every example by `vmap`, a few examples at a time.

Shapes: `x` is a tensor (n, ...), or a tuple or dict of them; results (n,) for each parameter.

>>> net = nn.Linear(2, 1, bias=False)
>>> Norms(net)({}, torch.tensor([[3.0, 4.0], [0.0, 1.0]]), lambda outputs: torch.ones_like(outputs))
{'weight': tensor([25.,  1.])}
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from credent.errors import InputError
from credent.fisher.layers import KINDS, squared_norms
from credent.network import Network, Params, each_tensor, owners, take

Score = Callable[[Tensor], Tensor]
"""From outputs (n, ...) to d log p / d outputs of the same shape; called once for each set of labels."""

_BYTES = 2**26  # that the gradients of the examples that vmap takes at a time may fill


class Norms:
    """Per-example squared gradient norms of a network's trainable parameters, in evaluation mode."""

    def __init__(self, net: nn.Module) -> None:
        self.network = Network(net)
        self._owners = owners(net)
        self._plan: _Plan | None = None
        for name, module in net.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
                raise InputError(
                    f"{type(module).__name__} {name!r} keeps no running statistics, so the gradient of one example"
                    " depends on the others and there is no Fisher information of p(y | x): build it with"
                    " track_running_stats=True."
                )

    def __call__(self, params: Mapping[str, Tensor], x: Any, score: Score, labels: int = 1) -> Params:
        """|g_i|^2 at `params` (the network's own where there are none), averaged over so many scores; (n,) by name."""
        leaves = {k: w.detach().requires_grad_() for k, w in {**self._own(), **params}.items()}
        with self.network.evaluating(), torch.enable_grad():
            if self._plan is None:
                self._plan = _plan(self.network, self._owners, leaves, x)
            with _watched(self._plan.closed) as seen:
                outputs = self.network(leaves, x)
            scores = [score(outputs.detach()) for _ in range(labels)]
            edges = {layer: uses[0] for layer, uses in seen.items()}
            found: Params = {}
            for index, cotangent in enumerate(scores):
                self._closed(found, outputs, edges, cotangent, last=index + 1 == labels)
            del outputs, edges, seen
            for cotangent in scores:
                _add(found, _by_examples(self.network, leaves, self._plan.rest, x, cotangent))
        zeros = torch.zeros(len(scores[0]), dtype=scores[0].dtype, device=scores[0].device)
        return {k: found[k] / labels if k in found else zeros for k in leaves}

    def _own(self) -> Params:
        return {k: p for k, p in self.network.module.named_parameters() if p.requires_grad}

    def _closed(self, found: Params, outputs: Tensor, edges: "_Uses", cotangent: Tensor, last: bool) -> None:
        if not edges:
            return
        assert self._plan is not None
        inputs = [edge for _, edge in edges.values()]
        grads = torch.autograd.grad(outputs, inputs, cotangent, retain_graph=not last, allow_unused=True)
        with torch.no_grad():
            for (layer, (a, _)), d in zip(edges.items(), grads, strict=True):
                if d is not None:
                    names = self._plan.closed[layer]
                    each = squared_norms(layer, names, a.to(d.dtype), d)
                    _add(found, {names[attribute]: squares for attribute, squares in each.items()})


# -- which parameters have a closed form ------------------------------------------------------------------------------

_Uses = dict[nn.Module, tuple[Tensor, GradientEdge]]
"""Of each layer its input and where the gradient of its output arrives."""


class _Plan:
    """closed: parameter names by attribute for each layer with a closed form; rest: the other parameters in use."""

    def __init__(self) -> None:
        self.closed: dict[nn.Module, dict[str, str]] = {}
        self.rest: list[str] = []


def _plan(network: Network, owners: Mapping[str, list[tuple[nn.Module, str]]], leaves: Params, x: Any) -> _Plan:
    """Send two examples through the network, and the gradient of the first one back."""
    layers = dict.fromkeys(m for m in network.module.modules() if type(m) in KINDS)
    with _watched(layers) as seen:
        outputs = network(leaves, take(x, torch.tensor([0, -1])))
    once = {layer: uses[0] for layer, uses in seen.items() if len(uses) == 1}
    if not outputs.requires_grad:
        return _Plan()
    first = torch.zeros_like(outputs)
    # of no pattern: behind a softmax, say, equal numbers would have no gradient at all
    first[0] = torch.arange(1, first[0].numel() + 1, device=first.device).cos().reshape(first[0].shape)
    edges = [edge for _, edge in once.values()]
    grads = torch.autograd.grad(outputs, edges, first, allow_unused=True, retain_graph=True) if edges else ()
    apart = {layer for layer, d in zip(once, grads, strict=True) if d is None or (len(d) == 2 and not d[1].any())}
    uses = _count_uses(outputs.grad_fn)
    plan = _Plan()
    for name, leaf in leaves.items():
        (layer, attribute), *others = owners[name]
        if layer in apart and not others and uses.get(id(leaf)) == 1:
            plan.closed.setdefault(layer, {})[attribute] = name
        elif id(leaf) in uses:
            plan.rest.append(name)
    return plan


def _count_uses(end: Node | None) -> dict[int, int]:
    """How many operations of the graph read each leaf: a weight may be used without its layer being called."""
    uses: dict[int, int] = {}
    queue, known = [end], {end}
    while queue:
        node = queue.pop()
        for following, _ in node.next_functions if node is not None else ():
            if following is None:
                continue
            if following.name() == "torch::autograd::AccumulateGrad":
                leaf = id(following.variable)  # type: ignore[attr-defined]
                uses[leaf] = uses.get(leaf, 0) + 1
            elif following not in known:
                known.add(following)
                queue.append(following)
    return uses


@contextmanager
def _watched(layers: Mapping[nn.Module, Any]) -> Iterator[dict[nn.Module, list[tuple[Tensor, GradientEdge]]]]:
    """Within: the input of every call of these layers, and where the gradient of its output will arrive.

    An edge of the graph stays what it is when the output is later changed in place, as by `nn.ReLU(inplace=True)`.
    """
    seen: dict[nn.Module, list[tuple[Tensor, GradientEdge]]] = {}

    def record(layer: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Tensor) -> None:
        if output.requires_grad:
            a = next(iter((*arguments, *keywords.values()))).detach()
            seen.setdefault(layer, []).append((a, get_gradient_edge(output)))

    hooks = [layer.register_forward_hook(record, prepend=True, with_kwargs=True) for layer in layers]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


# -- the others -------------------------------------------------------------------------------------------------------


def _by_examples(network: Network, leaves: Params, names: list[str], x: Any, cotangent: Tensor) -> Params:
    """|g_i|^2 for these parameters, from the gradients of a few examples at a time."""
    if not names:
        return {}
    given = {k: w.detach() for k, w in leaves.items()}

    def weighed(some: Params, one: Any, weight: Tensor) -> Tensor:
        return (network({**given, **some}, each_tensor(one, lambda t: t.unsqueeze(0))) * weight.unsqueeze(0)).sum()

    each = torch.func.grad(weighed)
    some = {k: given[k] for k in names}
    size = max(1, _BYTES // sum(w.numel() * w.element_size() for w in some.values()))
    parts: list[Params] = []
    for start in range(0, len(cotangent), size):
        rows = torch.arange(start, min(start + size, len(cotangent)), device=cotangent.device)
        chunk, weights = take(x, rows), cotangent[rows]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # operations that vmap itself takes one by one
                grads = torch.func.vmap(each, (None, 0, 0))(some, chunk, weights)
            parts.append({k: g.flatten(1).square().sum(1) for k, g in grads.items()})
        except (RuntimeError, ValueError):  # fused kernels, and networks that look at their numbers
            parts += [_one(network, given, names, chunk, weights, i) for i in range(len(rows))]
    return {k: torch.cat([part[k] for part in parts]) for k in names}


def _one(network: Network, given: Params, names: list[str], x: Any, cotangent: Tensor, i: int) -> Params:
    """|g_i|^2 of one example, by a backward pass of its own."""
    some = {k: given[k].detach().requires_grad_() for k in names}
    outputs = network({**given, **some}, take(x, torch.tensor([i])))
    grads = torch.autograd.grad(outputs, list(some.values()), cotangent[i : i + 1], allow_unused=True)
    zero = cotangent.new_zeros(1)
    return {k: zero if g is None else g.square().sum().reshape(1) for k, g in zip(names, grads, strict=True)}


def _add(found: Params, more: Params) -> None:
    for name, squares in more.items():
        found[name] = found[name] + squares if name in found else squares
