"""Where a run is, and all that it takes to go on from there.

A run is a position (epoch, batch, step), the state of everything that moves, and the generators' states both now and
at the start of the epoch. To go on mid-epoch, the epoch is begun again as it was, the batches already done are passed
over, and the generators are set to where they were: the data order and every later draw are those of the
uninterrupted run.
"""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from credent.errors import CheckpointError, InputError, NonFiniteError
from credent.families import Draws, Posterior
from credent.families.draws import DrawFiles
from credent.network import Params
from credent.objectives import Objective
from credent.training import batches, checkpoint, generators
from credent.training.distributed import Group
from credent.training.history import History, Row
from credent.training.saving import save
from credent.training.thin import Thin


@dataclass(frozen=True)
class Result:
    """What a run gives: the posterior, its history and how far it went."""

    posterior: Posterior
    history: list[Row]
    steps: int
    run_dir: Path | None


class Run:
    """Where a run is, and all that it takes to go on from there."""

    def __init__(
        self,
        objective: Objective,
        optimizer: Optimizer,
        loader: Iterable[Any],
        scheduler: LRScheduler | None,
        epochs: int | None,
        steps: int | None,
        accumulate: int,
        thin: Thin | None,
        run_dir: str | Path | None,
    ) -> None:
        if (epochs is None) == (steps is None):
            raise InputError("fit needs to know how long: write epochs=10, or steps=5000, not both.")
        self.objective, self.optimizer, self.loader, self.scheduler = objective, optimizer, loader, scheduler
        self.epochs, self.accumulate, self.thin = epochs, accumulate, thin
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.device = next(iter(objective.layout.params().values())).device
        self.group = Group(self.device)
        self.first = self.group.rank == 0
        self.total = steps if epochs is None else _steps(loader, epochs, accumulate)
        self.history = History(self.run_dir / "history.jsonl" if self.run_dir is not None and self.first else None)
        self.generators = generators.of_loader(loader)
        self.draws: list[Params] | DrawFiles = [] if self.run_dir is None else DrawFiles(self.run_dir / "draws")
        self.epoch = self.batch = self.step = 0
        self.exhausted = False
        self._tally: dict[str, float] = {}
        self._epoch_start: dict[str, Any] | None = None
        self._position: dict[str, Any] | None = None
        if thin is not None:
            if self.total is None:
                raise InputError("keep= counts steps, and this loader has no length: say steps= instead of epochs=.")
            thin.check(self.total, sum(p.numel() * p.element_size() for p in objective.layout.params().values()))

    # -- beginning and end --------------------------------------------------------------------------------------------

    def begin(self, resume: bool) -> None:
        """Start, or go on with what the run directory holds."""
        self.objective.train()
        if self.run_dir is None:
            if resume:
                raise InputError("resume=True goes on with a run directory: name it with run_dir=.")
            generators.restore(self.group.agree(generators.capture(self.generators)), self.generators)
            return
        state = checkpoint.load(self.run_dir / "checkpoint") if resume else None
        if state is not None:
            self._resume(state)
            return
        files = ("history.jsonl", "checkpoint", "posterior.safetensors")
        taken = [name for name in files if (self.run_dir / name).exists()]
        if taken and not resume:
            raise InputError(
                f"{self.run_dir} already holds a run ({', '.join(taken)}): resume=True goes on with it; a new run wants"
                " another run_dir."
            )
        self.run_dir.mkdir(parents=True, exist_ok=True)
        if self.first:
            self.history.resume(0)
            self.draws.truncate(0)  # type: ignore[union-attr]  # files, since there is a run_dir
        generators.restore(self.group.agree(generators.capture(self.generators)), self.generators)

    def _fingerprint(self) -> dict[str, Any]:
        layout = self.objective.layout
        return {
            "objective": type(self.objective).__name__,
            "optimizer": type(self.optimizer).__name__,
            "num_data": self.objective.num_data,
            "total": self.total if self.thin is not None else None,
            "parameters": {k: [list(layout.shapes[k]), list(layout.strides[k])] for k in layout.names},
        }

    def _resume(self, state: dict[str, Any]) -> None:
        mine, theirs = self._fingerprint(), state["fingerprint"]
        for key, value in mine.items():
            if theirs[key] != value:
                raise CheckpointError(
                    f"{self.run_dir} holds another run: its {key} is {_short(theirs[key])}, this one's is"
                    f" {_short(value)}. Build everything as the run was begun, or choose another run_dir."
                )
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.epoch, self.batch, self.step = state["epoch"], state["batch"], state["step"]
        self._tally = dict(state["tally"])
        self._epoch_start, self._position = state["epoch_start"], state["position"]
        if self.first:
            self.history.resume(state["rows"])
            self.draws.truncate(state["draws"])  # type: ignore[union-attr]
        if self._epoch_start is None:  # between two epochs
            generators.restore(state["position"], self.generators)

    def save(self) -> None:
        """Write a checkpoint, unless a parameter has become infinite or NaN."""
        if self.run_dir is None or not self.first:
            return
        _raise_if_broken(self.objective, self.step, self.run_dir)
        state = {
            "fingerprint": self._fingerprint(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "epoch": self.epoch,
            "batch": self.batch,
            "step": self.step,
            "tally": self._tally,
            "epoch_start": self._epoch_start,
            "position": generators.capture(self.generators),
            "rows": len(self.history.rows),
            "draws": len(self.draws),
        }
        checkpoint.save(self.run_dir / "checkpoint", self.step, state)

    def end(self) -> Result:
        """The posterior, in the run directory too."""
        posterior: Posterior = self.objective.posterior if self.thin is None else Draws(self.draws)
        if self.run_dir is not None and self.first:
            self.save()
            drawn = posterior if isinstance(posterior, Draws) else None
            save(self.objective, self.run_dir / "posterior.safetensors", drawn)
        return Result(posterior, self.history.rows, self.step, self.run_dir)

    # -- the run ------------------------------------------------------------------------------------------------------

    def unfinished(self) -> bool:
        """Whether there are steps left."""
        return self.epoch < self.epochs if self.epochs is not None else self.step < (self.total or 0)

    def groups(self) -> Iterator[list[Any]]:
        """The batches of each optimiser step of this epoch, those already done passed over."""
        self.exhausted = False
        if self._epoch_start is None:
            self._epoch_start = generators.capture(self.generators)
        else:
            generators.restore(self._epoch_start, self.generators)
        iterator = iter(self.loader)
        passed = sum(1 for _ in islice(iterator, self.batch))
        if self._position is not None:
            generators.restore(self._position, self.generators)
            self._position = None
        while group := list(islice(iterator, self.accumulate)):
            passed += len(group)
            self.batch += len(group)
            yield group
        if passed == 0:
            raise InputError("the loader is empty: it gave no batch (a generator that was used up gives none again).")
        self.exhausted = True

    def close_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch, self.batch, self._epoch_start = self.epoch + 1, 0, None

    def train(self, wrapped: nn.Module, group: list[Any], clip: float | None, autocast: torch.dtype | None) -> Row:
        """One optimiser step on these batches; the gradient is that of their joined rows."""
        parts = [batches.split(batch) for batch in group]
        rows = sum(len(y) for _, y in parts)
        for x, y in parts:
            share = len(y) / rows
            x, y, weight = self.group.share(x, y, self.loader)
            x, y = batches.to(x, self.device), batches.to(y, self.device)
            with torch.autocast(self.device.type, dtype=autocast, enabled=autocast is not None):
                loss = wrapped(x, y)
            if not bool(loss.isfinite()):
                self._raise_non_finite(x, y)
            (loss * (share * weight)).backward()
            self._count(y, share)
        parameters = [p for g in self.optimizer.param_groups for p in g["params"]]
        if clip is not None and not bool(nn.utils.clip_grad_norm_(parameters, clip).isfinite()):
            self._raise_non_finite(None, None)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return self._means()

    def _count(self, y: Tensor, share: float) -> None:
        terms = self.objective.last
        assert terms is not None
        name, value = self.objective.likelihood.predictive([terms.outputs]).score(y)
        numbers = {"loss": terms.loss.item(), "nll": terms.nll.item(), "kl": terms.penalty.item(), "beta": terms.beta}
        for key, number in {**numbers, name: value, "count": 1.0}.items():
            self._tally[key] = self._tally.get(key, 0.0) + share * number

    def _means(self) -> Row:
        return {k: v / self._tally["count"] for k, v in self._tally.items() if k != "count"}

    def log(self, scores: Row) -> Row:
        """A row of means since the last one, with the validation's scores."""
        if not self._tally and not scores:
            return {}
        means = self._means() if self._tally else {}
        rates = {f"lr_{g.get('name', i)}": float(g["lr"]) for i, g in enumerate(self.optimizer.param_groups)}
        self.history.append({"step": self.step, "epoch": self.epoch + 1, **means, **scores, **rates})
        self._tally = {}
        return {**means, **scores}

    def keep(self) -> None:
        """Keep the weights as a draw where the plan says so."""
        if self.thin is not None and self.total is not None and self.thin.keeps(self.step, self.total) and self.first:
            self.draws.append({k: p.detach().clone() for k, p in self.objective.layout.params().items()})

    def _raise_non_finite(self, x: Any, y: Any) -> None:
        bad = batches.first_bad((x, y))
        if bad is not None:
            raise NonFiniteError(
                f"the loss is not finite at step {self.step + 1}, because the data are not: {bad} has NaN or infinity."
                f" Clean or drop such rows.{_kept(self.run_dir)}"
            )
        _raise_if_broken(self.objective, self.step + 1, self.run_dir)
        raise NonFiniteError(
            f"the loss or its gradient is not finite at step {self.step + 1}, though data and parameters are: the"
            f" network overflows. Scale the inputs, lower the learning rate, or clip=1.0.{_kept(self.run_dir)}"
        )


def _raise_if_broken(objective: Objective, step: int, run_dir: Path | None) -> None:
    for name, p in objective.named_parameters():
        if not bool(p.isfinite().all()):
            raise NonFiniteError(
                f"parameter {name} is no longer finite at step {step}: lower the learning rate, or clip=1.0."
                f"{_kept(run_dir)}"
            )


def _kept(run_dir: Path | None) -> str:
    return "" if run_dir is None else f" The last good checkpoint is in {run_dir / 'checkpoint'}."


def _steps(loader: Any, epochs: int, accumulate: int) -> int | None:
    return epochs * -(-len(loader) // accumulate) if isinstance(loader, Sized) else None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 60 else text[:57] + "..."
