"""An experiment: a paper's table or figure as cells to run, a page to draw from them, and verdicts on its claims."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from credent.cells import Cell
from credent.papers.verdict import Verdict
from credent.report import Section

Results = Mapping[Cell, Mapping[str, Any]]


class Scale(str, Enum):
    """How much of it is run."""

    SMOKE = "smoke"
    """Seconds: everything runs once, small. Its numbers mean nothing."""
    CPU = "cpu"
    """Minutes to an hour or two on two cores: narrower networks, less data, several seeds."""
    PAPER = "paper"
    """The authors' setting, for a GPU."""


class Experiment(ABC):
    """One table or figure of a paper.

    Experiments of a paper that ask for equal cells share their results. `sections` and `verdicts` get the result of
    every cell by the cell; one that failed has an empty result, which `by_seed` leaves out.
    """

    name: str
    """Paper and table, such as "vl/table1"."""
    title: str
    about: str
    """What the paper claims, and where."""
    takes: ClassVar[Mapping[Scale, str]] = {}
    """About how long it takes, such as {Scale.CPU: "40 min on 2 cores"}."""

    @abstractmethod
    def setting(self, scale: Scale) -> str:
        """What is run at this scale, and how that differs from the paper."""

    @abstractmethod
    def cells(self, scale: Scale) -> Sequence[Cell]:
        """Everything that is to be run."""

    @abstractmethod
    def sections(self, scale: Scale, results: Results) -> tuple[Section, ...]:
        """Tables, with published numbers beside ours, and figures."""

    @abstractmethod
    def verdicts(self, scale: Scale, results: Results) -> tuple[Verdict, ...]:
        """Each of the paper's claims, tested."""

    def needs(self, scale: Scale) -> tuple[str, ...]:
        """Names of the data sets that are read."""
        return ()

    @property
    def paper(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]

    @property
    def part(self) -> str:
        """The part of the name after the slash."""
        return self.name.partition("/")[2]
