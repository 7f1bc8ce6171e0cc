"""Which numbers of a weight belong to which neuron, and how large they are together.

"rows" are what a neuron reads, its incoming weights; "columns" are what it sends on, its outgoing weights. In a
convolution a neuron is a channel. With g groups and kernel k, one row or column of

    Linear           (out, in)          is w[i]                              or w[:, j]
    Conv             (out, in/g, *k)    is w[i]                              or w[the outputs of j's group, j]
    ConvTranspose    (in, out/g, *k)    is w[the inputs of i's group, i]     or w[j]
    Embedding        (tokens, features) is a feature over all tokens         or a token's vector

so that a row holds fan_in numbers and a column fan_out (an embedding's row holds one for each token). The weights of
other layers, recurrent ones among them, are read as torch writes most of them, outputs first.

Shapes: `norms` has one vector for each weight, as long as the layer has neurons on that side.

>>> net = nn.Linear(2, 3, bias=False)
>>> _ = net.weight.data.copy_(torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 12.0]]))
>>> norms(net, over="rows")["weight"], norms(net, over="columns")["weight"]
(tensor([ 5.,  0., 12.]), tensor([ 3.0000, 12.6491]))
>>> dead(net, over="rows")
{'weight': tensor([False,  True, False])}
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from credent.errors import InputError
from credent.layout import Layout
from credent.network import Params

Over = Literal["rows", "columns"]

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class Neurons:
    """How a weight lies: its shape, its convolution's groups, and whether its first axis counts inputs."""

    shape: torch.Size
    groups: int
    inputs_first: bool

    def norms(self, w: Tensor, over: Over) -> Tensor:
        """Euclidean norm of every row or column, a vector; the gradient of a norm that is zero is zero."""
        by_first_axis = (over == "rows") != self.inputs_first
        w = w.reshape(self.groups, -1, *w.shape[1:])  # (g, first / g, second, *k)
        summed = [d for d in range(1, w.ndim) if d != (1 if by_first_axis else 2)]
        # torch's norm has gradient zero at zero, where sqrt(sum of squares) would have NaN
        each: Tensor = torch.linalg.vector_norm(w, dim=summed)
        return each.flatten()

    def sums(self, w: Tensor) -> Tensor:
        """The sum over every row, a vector."""
        kept = 2 if self.inputs_first else 1
        w = w.reshape(self.groups, -1, *w.shape[1:])
        return w.sum([d for d in range(1, w.ndim) if d != kept]).flatten()

    def along(self, values: Tensor) -> Tensor:
        """One number per row, in the place of all that the row holds: the shape of the weight."""
        rest = [1] * (len(self.shape) - 2)
        by_group = values.view(self.groups, *((1, -1) if self.inputs_first else (-1, 1)), *rest)
        return by_group.expand(self.groups, self.shape[0] // self.groups, *self.shape[1:]).reshape(self.shape)

    def size(self, over: Over) -> int:
        """Numbers in a row or column."""
        by_first_axis = (over == "rows") != self.inputs_first
        count = self.shape[0] if by_first_axis else self.groups * self.shape[1]
        return self.shape.numel() // count


def neurons(layout: Layout) -> dict[str, Neurons]:
    """The neurons of every random weight; biases and the gains of norm layers belong to one neuron each anyway."""
    return {k: _neurons(layout, k) for k, role in layout.roles.items() if role.kind == "weight"}


def norms(net: nn.Module, over: Over = "rows") -> Params:
    """The norm of every neuron's weights, by the weight's name."""
    check_over(over)
    layout = Layout(net)
    params = layout.params()
    return {k: each.norms(params[k].detach(), over) for k, each in neurons(layout).items()}


def dead(net: nn.Module, over: Over = "rows", tolerance: float = 1e-2) -> Params:
    """Which neurons of each weight have a norm of at most `tolerance` times the largest of that weight, as booleans.

    Relative to the largest, because a norm layer may undo the size of a whole layer; a layer of zeros is all dead.
    """
    if not 0 <= tolerance < 1:
        raise InputError(f"dead(tolerance={tolerance}): a share of the layer's largest norm, such as 0.01.")
    return {k: each <= tolerance * each.max() for k, each in norms(net, over).items()}


def check_over(over: str) -> None:
    """Rows or columns."""
    if over not in ("rows", "columns"):
        raise InputError(f"over={over!r}: write 'rows' (a neuron's inputs) or 'columns' (a neuron's outputs).")


def _neurons(layout: Layout, name: str) -> Neurons:
    # an embedding tied to a linear layer is grouped as the linear layer, as its fans are
    module = min((m for m, _ in layout._owners[name]), key=lambda m: isinstance(m, _EMBEDDINGS))
    # Hugging Face's Conv1D is a linear layer whose weight lies the other way round
    inputs_first = isinstance(module, (*_TRANSPOSED, *_EMBEDDINGS)) or type(module).__name__ == "Conv1D"
    groups = module.groups if isinstance(module, (*_CONVOLUTIONS, *_TRANSPOSED)) else 1
    return Neurons(layout.shapes[name], groups, inputs_first)
