"""What every attack is: from inputs, labels and a radius to inputs nearby that the averaged prediction gets wrong.

    x' = argmin log p(y | x')  over  ||x' - x|| <= epsilon, x' in the box

An attack is a frozen description, called as `attack(averaged, x, y, epsilon)`. The network is never changed: neither
its parameters, nor gradients, buffers or mode.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from torch import Tensor

from credent.attacks.averaged import Averaged
from credent.attacks.ball import PIXELS, Ball, Box, Norm
from credent.errors import InputError


class Attack(ABC):
    """An attack on an averaged prediction; `norm` says which ball it keeps to."""

    norm: Norm

    @abstractmethod
    def within(self, ball: Ball, averaged: Averaged, y: Tensor, gradient: Tensor) -> Tensor:
        """The attacked inputs of one ball, (n, ...), from the gradient of log p(y | x) at its centre."""

    def __call__(self, averaged: Averaged, x: Tensor, y: Tensor, epsilon: float, box: Box = PIXELS) -> Tensor:
        """Inputs within `epsilon` of x, in the box's pixels, that make y improbable, shaped as x."""
        return next(self.each(averaged, x, y, [epsilon], box))

    def each(
        self, averaged: Averaged, x: Tensor, y: Tensor, epsilons: Iterable[float], box: Box = PIXELS
    ) -> Iterator[Tensor]:
        """The same for several radii, in turn; the gradient at x itself is taken once for all."""
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2:
            came = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise InputError(
                f"an attack moves one tensor of real inputs, (n, ...), and x is {came}: word numbers and several inputs"
                " have no such neighbourhood; real ones become a tensor with torch.as_tensor(x).float()."
            )
        if len(x) == 0 or len(x) != len(y):
            raise InputError(f"an attack needs a label for each input: x has {len(x)} rows and y {len(y)}.")
        x = x.detach()
        balls = [Ball(x, epsilon, self.norm, box) for epsilon in epsilons]
        _, gradient = averaged.gradient(x, y)
        for ball in balls:
            yield self.within(ball, averaged, y, gradient)
