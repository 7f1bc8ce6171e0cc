"""Where a run is, and all that it takes to go on from there.

A run is a position (epoch, batch, step), the state of everything that moves, and the generators' states both now and
at the start of the epoch. To go on mid-epoch, the epoch is begun again as it was, the batches already done are passed
over, and the generators are set to where they were: the data order and every later draw are those of the
uninterrupted run.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from credent.errors import CheckpointError, InputError
from credent.families import Draws, Posterior
from credent.objectives import Objective
from credent.optim.average import Average
from credent.training import batches, checkpoint, generators
from credent.training.distributed import Group
from credent.training.fingerprint import changed, fingerprint
from credent.training.finite import Watch
from credent.training.history import History, Row
from credent.training.mixing import posterior_of
from credent.training.monitor import Monitor, Monitors
from credent.training.result import Result
from credent.training.sampling import noises
from credent.training.saving import recall_temperature, save
from credent.training.tally import Tally
from credent.training.thin import Kept, Thin


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
        monitors: Sequence[Monitor] = (),
        average: Average | None = None,
    ) -> None:
        if (epochs is None) == (steps is None):
            raise InputError("fit needs to know how long: write epochs=10, or steps=5000, not both.")
        self.objective, self.optimizer, self.loader, self.scheduler = objective, optimizer, loader, scheduler
        self.epochs, self.accumulate, self.average = epochs, accumulate, average
        self.run_dir = None if run_dir is None else Path(run_dir)
        if self.run_dir is not None and self.run_dir.exists() and not self.run_dir.is_dir():
            raise InputError(f"run_dir={str(run_dir)!r} is a file, and a run is a directory: choose another name.")
        self.monitors = Monitors(monitors)
        self.device = objective.layout.first().device
        self.group = Group(self.device)
        self.first = self.group.rank == 0
        self.total = steps if epochs is None else batches.steps(loader, epochs, accumulate)
        self.history = History(self.run_dir / "history.jsonl" if self.run_dir is not None and self.first else None)
        self.generators = generators.of_loader(loader)
        self.kept = None if thin is None else Kept(thin, self.total, objective.layout, self.run_dir)
        self.watch = Watch(objective, optimizer, self.run_dir, () if self.kept is None else self.kept.draws)
        self.epoch = self.batch = self.step = 0
        self.exhausted = False
        self._resumed_at: int | None = None
        self._tally = Tally()
        what = (objective, optimizer, scheduler, loader, accumulate, self.generators, thin, average)
        self._fingerprint = fingerprint(*what)  # as it is begun: rates and counters move
        self._epoch_start: dict[str, Any] | None = None
        self._position: dict[str, Any] | None = None

    # -- beginning and end --------------------------------------------------------------------------------------------

    def begin(self, resume: bool) -> None:
        """Start, or go on with what the run directory holds."""
        self.objective.train()
        self.optimizer.zero_grad()  # whatever was left by code before
        if self.run_dir is None:
            if resume:
                raise InputError("resume=True goes on with a run directory: name it with run_dir=.")
            self.group.agree_on_randomness(noises(self.objective, self.optimizer), self.generators)
            return
        state = checkpoint.load(self.run_dir / "checkpoint") if resume else None
        if state is not None:
            self._resume(state)
            return
        files = ("history.jsonl", "checkpoint/step-*[1-9]*.pt", "draws", "posterior.safetensors")
        taken = [name.split("/")[0] for name in files if any(self.run_dir.glob(name))]  # step 0 holds no work
        if taken and not resume:
            raise InputError(
                f"{self.run_dir} already holds a run ({', '.join(taken)}): resume=True goes on with it; a new run wants"
                " another run_dir."
            )
        if taken:
            raise CheckpointError(
                f"{self.run_dir} holds a run ({', '.join(taken)}) without its checkpoints, so that it cannot go on: a"
                " new run wants another run_dir."
            )
        if self.kept is not None:
            self.kept.check_disk(0, checkpoint.size_of(self._state()))
        self.group.agree_on_randomness(noises(self.objective, self.optimizer), self.generators)
        self.group.wait()  # until all have looked, or one would see what another has begun to write
        self.save()  # however early it is stopped, it goes on from its own beginning

    def _resume(self, state: dict[str, Any]) -> None:
        different = changed(state["fingerprint"], self._fingerprint)
        if different is not None:
            what, was, now = different
            raise CheckpointError(
                f"{self.run_dir} holds another run: its {what} is {was}, this one's is {now}. Build everything as the"
                " run was begun, or choose another run_dir."
            )
        if self.kept is not None:
            assert self.run_dir is not None
            self.kept.check_plan(state["plan"], state["step"])
            self.kept.check_disk(state["step"], checkpoint.size(self.run_dir / "checkpoint"))
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.epoch, self.batch, self.step = state["epoch"], state["batch"], state["step"]
        self._resumed_at = self.step
        self._tally = Tally(state["tally"])
        self.monitors.recall(state["monitors"])
        generators.restore(state["position"], self.generators)
        self._epoch_start = state["epoch_start"]
        self._position = None if self._epoch_start is None else state["position"]
        if self.first:
            self.history.resume(state["rows"])

    def save(self) -> None:
        """Write a checkpoint, unless a parameter has become infinite or NaN."""
        if self.run_dir is None or not self.first:
            return
        self.watch.parameters(self.step)
        checkpoint.save(self.run_dir / "checkpoint", self.step, self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "fingerprint": self._fingerprint,
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "epoch": self.epoch,
            "batch": self.batch,
            "step": self.step,
            "tally": self._tally.sums,
            "monitors": self.monitors.memory(),
            "epoch_start": self._epoch_start,
            "position": generators.capture(self.generators),
            "rows": len(self.history.rows),
            "plan": None if self.kept is None else self.kept.plan,
        }

    def end(self) -> Result:
        """The posterior, in the run directory too; checkpoints have the last iterate, from which a run may go on."""
        self.watch.parameters(self.step)
        if self.run_dir is not None and self.first:
            if self.kept is not None:
                self.kept.end()
            self.save()
        if self.average is not None:
            self.average.apply()
            self.watch.parameters(self.step)
        if self.run_dir is not None and self.first:
            path = self.run_dir / "posterior.safetensors"
            if self.step == self._resumed_at:
                recall_temperature(self.objective, path)
            save(self.objective, path, None if self.kept is None else Draws(self.kept.draws))
        self.group.wait()  # until the files are there for all
        posterior: Posterior = self.objective.posterior
        if self.kept is not None:
            posterior = posterior_of(self.objective, self.kept.draws)
        return Result(posterior, self.history.rows, self.step, self.run_dir)

    # -- the run ------------------------------------------------------------------------------------------------------

    def unfinished(self) -> bool:
        """Whether there are steps left."""
        return self.epoch < self.epochs if self.epochs is not None else self.step < (self.total or 0)

    def last_epoch(self) -> bool:
        """Whether nothing comes after the epoch under way."""
        return self.epoch + 1 == self.epochs or self.step == self.total

    def groups(self) -> Iterator[list[Any]]:
        """The batches of each optimiser step of this epoch, those already done passed over."""
        self.exhausted = False
        if self._epoch_start is None:
            self._epoch_start = generators.capture(self.generators)
        else:
            generators.restore(self._epoch_start, self.generators)
        self.group.begin_epoch(self.loader, self.epoch)
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
            with self.group.own_stream(), torch.autocast(self.device.type, autocast, enabled=autocast is not None):
                loss = _paid(wrapped, x, y)
            if not bool(loss.isfinite()):
                self.watch.bad_loss((x, y), self.step + 1)
            torch.autograd.backward(loss * (share * weight))
            self._tally.add(self.objective, y, share)
        parameters = [p for g in self.optimizer.param_groups for p in g["params"]]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if not bool(norm.isfinite()):
            self.watch.bad_gradient(parts, self.step + 1)
        if clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, clip, norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        self.step += 1
        if self.first and (seen := self.monitors.look(self.objective, self.step)):
            self.history.append({"step": self.step, "epoch": self.epoch + 1, **seen})
        self.optimizer.zero_grad()
        return self._tally.means() | self.monitors.cost()

    def log(self, scores: Row) -> Row:
        """A row of means since the last one, with the validation's scores."""
        means = self._tally.means()
        if not means and not scores:
            return self.history.rows[-1] if self.history.rows else {}
        rates = {f"lr_{g.get('name', i)}": float(g["lr"]) for i, g in enumerate(self.optimizer.param_groups)}
        self.history.append({"step": self.step, "epoch": self.epoch + 1, **means, **scores, **rates})
        self._tally = Tally()
        return {**means, **scores}

    def keep(self) -> None:
        """Keep the weights as a draw where the plan says so."""
        if self.kept is None or not self.kept.due(self.step):
            return
        self.watch.parameters(self.step)
        if self.first or self.run_dir is None:  # in memory every process keeps its own
            self.kept.add(self.step)


def _paid(wrapped: nn.Module, x: Any, y: Any) -> Tensor:
    """The loss of a batch."""
    try:
        loss: Tensor = wrapped(x, y)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise InputError(
            "a batch of one row leaves BatchNorm nothing to normalise by, and the last batch of an epoch may be that"
            " small: cr.data.batches(..., drop_last=True), or DataLoader(..., drop_last=True)."
        ) from error
    return loss
