"""Run many cells, each once and side by side, and keep what they return.

A cell is one run of an experiment or of a sweep: a frozen dataclass of plain values and a `run`. What it returns goes
into a file of its own the moment it ends, so that a stopped experiment goes on where it was.

>>> import tempfile
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Square(Cell):
...     of: int
...     def run(self):
...         return {"square": self.of**2}
>>> with tempfile.TemporaryDirectory() as folder:
...     done = finish([Square(2), Square(3), Square(2)], folder, jobs=1, progress=False)
>>> done.results
{Square(of=2): {'square': 4}, Square(of=3): {'square': 9}}
"""

from credent.cells.cell import Cell
from credent.cells.finish import Finished, Watch, finish
from credent.cells.record import Record

__all__ = ["Cell", "Finished", "Record", "Watch", "finish"]
