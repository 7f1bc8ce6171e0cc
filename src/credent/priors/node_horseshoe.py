"""The horseshoe over neurons: all that a neuron reads shrinks or stays together.

    w | tau, upsilon ~ N(0, tau_k^2 upsilon_l^2)     for the weights and the bias into neuron k of layer l
    tau_k half-Cauchy(0, node_scale),      upsilon_l half-Cauchy(0, b_l),  b_l from `scale`

The network's last weight, random or not, has upsilon alone: each of its neurons is an output. The order in which layers
are registered in the module decides which is last, so define the head after the body. The factors have a log-normal
posterior of their own, t = tau^2,  log t ~ N(m, v^2), and likewise upsilon^2, centred, beside any q(w). With
half-Cauchy(0, b) written as t | a ~ InvGamma(1/2, 1/a), a ~ InvGamma(1/2, 1/b^2), and the best q(a), which is
InvGamma(1, E(1/t) + 1/b^2),

    E log N(w; 0, t u) = -1/2 [log 2 pi + m_t + m_u + E w^2 E(1/t) E(1/u)],         E(1/t) = exp(-m + v^2 / 2)
    KL of one factor   = log(pi b) + log(E(1/t) + 1/b^2) + m/2 - 1/2 log(2 pi e v^2)

so the whole KL is closed for every q(w) with known mean and variance. `log_prob` is the evidence lower bound of
log p(w) at the current q(t, u); p(w) itself has no closed form. Norm layers and lone biases have N(rest, 1).
[Ghosh, Yao, Doshi-Velez 2019]

Shapes: `location` and `log_spread` hold m and log v of all F factors: neurons in order of layers, then layers.

>>> round(float(factor_kl(torch.tensor(-0.7), torch.tensor(0.4).log(), torch.tensor(0.0))), 5)
1.44943
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.layout import Layout
from credent.network import Params
from credent.neurons import Neurons, neurons
from credent.penalty import Q
from credent.priors.horseshoe import refuse_point_mass
from credent.priors.prior import Prior
from credent.priors.scales import Scale, scales

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_FIRST_SPREAD = 0.1  # of log t


@dataclass(frozen=True)
class NodeHorseshoe:
    """Shrinks neurons; `scale` is the half-Cauchy scale of the layers' factors, `node_scale` of the neurons'."""

    scale: Scale = "fan_in"
    node_scale: float = 1.0

    def __post_init__(self) -> None:
        if not (self.node_scale > 0 and math.isfinite(self.node_scale)):
            raise InputError(f"NodeHorseshoe(node_scale={self.node_scale}): the scale of a half-Cauchy is positive.")

    def bind(self, layout: Layout) -> "NodeHorseshoePrior":
        """The prior for this network's random parameters, with factors for its neurons and layers."""
        return NodeHorseshoePrior(self, layout)


@dataclass(frozen=True)
class _Layer:
    """A weight, the bias beside it, and where its neurons' factors are; None in the network's last layer."""

    weight: str
    bias: str | None
    lie: Neurons
    factors: slice | None

    @property
    def units(self) -> int:
        return self.lie.shape.numel() // self.lie.size("rows")

    @property
    def reads(self) -> int:
        """Numbers into a neuron."""
        return self.lie.size("rows") + (self.bias is not None)

    def squares(self, each: Params) -> Tensor:
        """Sums over what every neuron reads, (units,)."""
        total = self.lie.sums(each[self.weight])
        return total if self.bias is None else total + each[self.bias]


class NodeHorseshoePrior(Prior):
    """The horseshoe over a network's neurons, and the posterior of its factors."""

    gaussian = None
    quadratic = True

    def __init__(self, description: NodeHorseshoe, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self._layers = _layers(layout)
        if not self._layers:
            raise InputError(
                f"NodeHorseshoe shrinks neurons, and the random parameters ({', '.join(layout.names)}) have no weights:"
                " priors.Horseshoe() shrinks single numbers."
            )
        in_layers = {name for layer in self._layers for name in (layer.weight, layer.bias)}
        self._rest = {k: 1.0 if r.kind == "gain" else 0.0 for k, r in layout.roles.items() if k not in in_layers}
        widths = scales(layout, description.scale, 1.0)
        nodes = sum(layer.units for layer in self._layers if layer.factors is not None)
        log_b = [math.log(description.node_scale)] * nodes + [math.log(widths[s.weight]) for s in self._layers]
        first = layout.first()
        self.log_b: Tensor
        self.register_buffer("log_b", first.new_tensor(log_b))
        self.location = nn.Parameter(2 * self.log_b.clone())
        self.log_spread = nn.Parameter(torch.full_like(self.log_b, math.log(_FIRST_SPREAD)))

    def log_prob(self, params: Params) -> Tensor:
        """A lower bound of log p(w) in nats: E_q log p(w | factors) - KL(q(factors) || p)."""
        return -self._minus_log({k: self._offset(k, w).square() for k, w in params.items()})

    def cross_entropy(self, mean: Params, stddev: Params) -> Tensor:
        """-E log p under independent Gaussians, or any q with these moments; with the KL of the factors."""
        return self._minus_log({k: self._offset(k, mu).square() + stddev[k].square() for k, mu in mean.items()})

    def shrinkage(self) -> Params:
        """The median of tau upsilon for every neuron, by the weight's name: which neurons the data kept."""
        location = self.location.detach()
        found = {}
        for i, layer in enumerate(self._layers):
            of_layer = location[i - len(self._layers)].expand(layer.units)
            found[layer.weight] = ((of_layer + (0 if layer.factors is None else location[layer.factors])) / 2).exp()
        return found

    def sampled(self, q: Q) -> Q:
        """q itself, which must have a spread."""
        refuse_point_mass(q, "NodeHorseshoe()", "priors.Horseshoe(), a density of the weights alone")
        return q

    def sample(self, n: int, seed: int) -> Params:
        """n draws of the weights, with their factors drawn from the half-Cauchy; stacked in front."""
        like = self.layout.params()
        generator = torch.Generator(self.log_b.device).manual_seed(seed)
        factors = self.log_b.new_empty(n, len(self.log_b)).cauchy_(generator=generator).abs_() * self.log_b.exp()
        drawn = {k: p.new_empty(n, *p.shape).normal_(generator=generator) for k, p in like.items()}
        for k, rest in self._rest.items():
            drawn[k] += rest
        for i, layer in enumerate(self._layers):
            of_layer = factors[:, i - len(self._layers), None].expand(n, layer.units)
            scale = of_layer if layer.factors is None else of_layer * factors[:, layer.factors]
            drawn[layer.weight] *= torch.stack([layer.lie.along(s) for s in scale])
            if layer.bias is not None:
                drawn[layer.bias] *= scale
        return drawn

    def _minus_log(self, squares: Params) -> Tensor:
        """-E log p(w | factors) + KL(q(factors) || p), from E w^2."""
        inverse = (-self.location + (2 * self.log_spread).exp() / 2).exp()  # E(1/t)
        total = factor_kl(self.location, self.log_spread, self.log_b).sum() + self.layout.num_params * _HALF_LOG_2PI
        for i, layer in enumerate(self._layers):
            at = i - len(self._layers)
            each, logs = layer.squares(squares) * inverse[at], layer.units * self.location[at]
            if layer.factors is not None:
                each, logs = each * inverse[layer.factors], logs + self.location[layer.factors].sum()
            total = total + 0.5 * (each.sum() + layer.reads * logs)
        for name in self._rest:
            total = total + 0.5 * squares[name].sum()
        return total

    def _offset(self, name: str, w: Tensor) -> Tensor:
        return w - self._rest[name] if self._rest.get(name) else w


def factor_kl(location: Tensor, log_spread: Tensor, log_b: Tensor) -> Tensor:
    """KL of log t ~ N(location, spread^2), with the best q(a), to t the square of a half-Cauchy(0, b); elementwise."""
    log_inverse = -location + (2 * log_spread).exp() / 2
    entropy = 0.5 + _HALF_LOG_2PI + log_spread
    return math.log(math.pi) + log_b + torch.logaddexp(log_inverse, -2 * log_b) + location / 2 - entropy


def _layers(layout: Layout) -> list[_Layer]:
    """The random weights with their neurons; the network's last has no factors of its own for them."""
    found: list[_Layer] = []
    start, outputs = 0, layout.last_weight()
    for name, each in neurons(layout).items():
        units = each.shape.numel() // each.size("rows")
        last = name == outputs
        found.append(_Layer(name, _bias_of(layout, name, units), each, None if last else slice(start, start + units)))
        start += 0 if last else units
    return found


def _bias_of(layout: Layout, weight: str, units: int) -> str | None:
    """The random bias in the same module, as long as the layer has neurons."""
    stem, dot, attribute = weight.rpartition(".")
    name = f"{stem}{dot}{attribute.replace('weight', 'bias')}"
    same = name != weight and name in layout.roles and layout.roles[name].kind == "bias"
    return name if same and layout.shapes[name] == (units,) else None
