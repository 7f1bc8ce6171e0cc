"""Run a converter on a network, and say what came of it.

right      no noise gives the network itself, draws obey its law, every weight is random
partial    right, but some weights stay deterministic without a word
wrong      it runs, and is not the network's posterior: outputs without noise differ, a tie or padding is lost,
BatchNorm's statistics do not move once a step, draws do not vary
error      it raises: when converting, in evaluation, or in training
"""

import copy
import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bench.peers import Bayesian, Build, Task
from bench.zoo.networks import CASES, Case

TOLERANCE = 1e-4
DRAWS = 3


@dataclass(frozen=True)
class Verdict:
    """The outcome in one word, and why."""

    outcome: str
    why: str


def judged(build: Build, case: Case) -> Verdict:
    """What this converter makes of this network."""
    torch.manual_seed(0)
    net, x = case.build(), case.inputs()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.randn_like(p))  # away from every default
        reference = copy.deepcopy(net).eval()(x)
    size = sum(p.numel() for p in net.parameters())
    y = torch.arange(len(x)) % reference.shape[1]
    printed = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(printed):
            warnings.simplefilter("ignore")
            verdict = _judged(lambda: build(net, Task(num_data=50, as_is=True)), case, x, y, reference, size)
    except _Raised as raised:
        return Verdict("error", str(raised))
    said = printed.getvalue().strip()
    return replace(verdict, why=f"{verdict.why}; it prints {said!r}") if said and verdict.why else verdict


class _Raised(Exception):
    """A converter's own error, with where it came."""


def _attempt(where: str, call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise _Raised(f"{where}: {type(error).__name__}: {said}"[:160]) from error


def _judged(make: Callable[[], Bayesian], case: Case, x: Tensor, y: Tensor, reference: Tensor, size: int) -> Verdict:
    bayesian = _attempt("converting", make)
    assert isinstance(bayesian, Bayesian)
    bayesian.net.eval()
    without_noise = _attempt("evaluating", lambda: bayesian.mean(x))
    assert isinstance(without_noise, Tensor)
    bayesian.net.train()
    _attempt("training", lambda: bayesian.step(x, y))
    before = _batches(bayesian.net)
    _attempt("training", lambda: bayesian.step(x, y))
    moved = [after - b for after, b in zip(_batches(bayesian.net), before, strict=True)]
    bayesian.net.eval()
    draws = _attempt("drawing", lambda: [bayesian.draw(x) for _ in range(DRAWS)])
    assert isinstance(draws, list)
    wrong = [*_structure(without_noise, reference), *_randomness(case, draws)]
    if bayesian.locations > size:
        wrong.append(f"{bayesian.locations} means for {size} weights: a tie is broken")
    if any(m != 1 for m in moved):
        wrong.append(f"BatchNorm's statistics move {moved[0]} times in a step")
    if wrong:
        return Verdict("wrong", "; ".join(wrong))
    if bayesian.random < size:
        return Verdict("partial", f"{bayesian.random} of {size} weights are random")
    return Verdict("right", "")


def _structure(without_noise: Tensor, reference: Tensor) -> list[str]:
    if without_noise.shape != reference.shape:
        return [f"outputs have shape {tuple(without_noise.shape)}, not {tuple(reference.shape)}"]
    off = float((without_noise - reference).abs().max())
    return [f"without noise its outputs differ from the network's, by {off:.2g}"] if off > TOLERANCE else []


def _randomness(case: Case, draws: list[Tensor]) -> list[str]:
    found = []
    if all(torch.equal(draws[0], draw) for draw in draws[1:]):
        found.append("its draws are all the same")
    if case.law is not None:
        off = max(float(case.law(draw).abs().max()) for draw in draws)
        if off > TOLERANCE:
            found.append(f"{case.broken} (its law is off by {off:.2g})")
    return found


def _batches(net: nn.Module) -> list[int]:
    counts = [m.num_batches_tracked for m in net.modules() if isinstance(m, _BatchNorm)]
    return [int(c) for c in counts if c is not None]


def zoo(converters: dict[str, Build]) -> dict[str, dict[str, Verdict]]:
    """Verdicts by network and converter."""
    return {name: {who: judged(build, case) for who, build in converters.items()} for name, case in CASES.items()}
