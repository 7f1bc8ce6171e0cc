"""Which weights of a run are kept as draws.

    steps t with  t > after * T  and  (t - ceil(after * T)) divisible by `every`,   t = 1 ... T

>>> [t for t in range(1, 11) if Thin(after=0.5, every=2).keeps(t, total=10)]
[7, 9]
>>> Thin(after=0.5, every=2).count(total=10)
2
"""

import math
from dataclasses import dataclass

from credent.errors import BudgetError, InputError


@dataclass(frozen=True)
class Thin:
    """Keep the weights after a share of the run, then after every so many steps; refuse more than `max_bytes`."""

    after: float = 0.5
    every: int = 100
    max_bytes: int = 4 * 2**30

    def __post_init__(self) -> None:
        if not 0 <= self.after < 1 or self.every < 1:
            raise InputError(f"Thin(after={self.after}, every={self.every}): needs a share in [0, 1) and every >= 1.")

    def keeps(self, step: int, total: int) -> bool:
        """Whether the weights after this step (counted from 1) are a draw."""
        beyond = step - math.ceil(self.after * total)
        return beyond > 0 and beyond % self.every == 0

    def count(self, total: int) -> int:
        """How many draws a run of `total` steps gives."""
        return (total - math.ceil(self.after * total)) // self.every

    def check(self, total: int, bytes_per_draw: int) -> None:
        """Refuse, before anything runs, what would give no draw or too many bytes of them."""
        count = self.count(total)
        if count == 0:
            raise InputError(
                f"Thin(after={self.after}, every={self.every}) keeps no draw of a run of {total} steps: run longer,"
                f" or write every={max(1, (total - math.ceil(self.after * total)) // 10)}."
            )
        if count * bytes_per_draw > self.max_bytes:
            fewer = math.ceil(count * bytes_per_draw / self.max_bytes) * self.every
            raise BudgetError(
                f"{count} draws of {bytes_per_draw:,} bytes are {count * bytes_per_draw:,} bytes, and Thin allows"
                f" {self.max_bytes:,}: write Thin(every={fewer}), or allow more with max_bytes=."
            )
