"""r(q): what an objective may add to the data's loss."""

from credent.penalties.penalty import Description, Penalty

__all__ = ["Description", "Penalty"]
