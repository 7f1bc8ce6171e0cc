"""r(q): what an objective may add to the data's loss."""

from credent.penalty import Description, Penalty

__all__ = ["Description", "Penalty"]
