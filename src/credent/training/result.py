"""What a run gives."""

from dataclasses import dataclass
from pathlib import Path

from credent.families import Posterior
from credent.training.history import Row


@dataclass(frozen=True)
class Result:
    """The posterior, the run's history and how far it went."""

    posterior: Posterior
    history: list[Row]
    steps: int
    run_dir: Path | None
