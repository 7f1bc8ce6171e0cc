"""What is raced: for each kind of work, the contenders and what they are measured against.

A contender is a function that makes it and returns what is called in its turn, so that one that fails to be made
leaves the others alone.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import credent as cr
from bench.peers import Bayesian, Build, Task, credent, peers, plain
from bench.speed.networks import Setting
from credent.families.draws import DrawFiles, Draws

Turn = Callable[[], object]
FORWARDS = "as many forwards"


@dataclass(frozen=True)
class Race:
    """Contenders by name, and the ones that the others are measured against, the main one first."""

    bases: tuple[str, ...]
    contenders: dict[str, Callable[[], Turn]]
    cycle: int = 2
    """Calls after which work repeats itself: of training steps some is paid for at every other one alone."""

    def only(self, chosen: Callable[[str], bool]) -> "Race":
        """Without the contenders that are not chosen; what they are measured against stays."""
        kept = {name: make for name, make in self.contenders.items() if name in self.bases or chosen(name)}
        return replace(self, contenders=kept)


def vi(setting: Setting) -> Race:
    """A training step with one draw and its KL."""
    contenders: dict[str, Callable[[], Turn]] = {
        "plain, default Adam": partial(_step, plain.adam, setting, Task()),
        "plain, fused Adam": partial(_step, plain.adam, setting, Task(fused=True)),
    }
    for name, build in _all("VI", credent.VI):
        contenders[name] = partial(_step, build, setting, Task())
    for name, build in _all("FUSED", {}):
        contenders[f"{name}, fused Adam"] = partial(_step, build, setting, Task(fused=True))
    return Race(("plain, default Adam", "plain, fused Adam"), contenders)


def vl(setting: Setting) -> Race:
    """A training step of Variational Laplace, of the same network with softplus throughout."""
    smooth = replace(setting, build=lambda: cr.smooth(setting.build()))
    contenders: dict[str, Callable[[], Turn]] = {
        "plain, default Adam": partial(_step, plain.adam, smooth, Task()),
        "plain, fused Adam": partial(_step, plain.adam, smooth, Task(fused=True)),
    }
    contenders |= {name: partial(_step, build, smooth, Task()) for name, build in credent.VL.items()}
    return Race(("plain, default Adam", "plain, fused Adam", "credent MAP"), contenders)


def samplers(setting: Setting) -> Race:
    """A step of a chain, at a rate that leaves the weights where they are."""
    task = Task(lr=1e-9)
    contenders: dict[str, Callable[[], Turn]] = {
        "plain, default SGD": partial(_step, plain.sgd, setting, task),
        "plain, fused SGD": partial(_step, plain.sgd, setting, replace(task, fused=True)),
    }
    for name, build in _all("SAMPLERS", credent.SAMPLERS):
        contenders[name] = partial(_step, build, setting, task)
    return Race(("plain, default SGD", "plain, fused SGD", "credent SGLD"), contenders)


def prediction(setting: Setting) -> Race:
    """The average over draws: from a mean-field Gaussian, or from draws that were stored."""
    contenders: dict[str, Callable[[], Turn]] = {FORWARDS: partial(_forwards, setting, setting.draws)}
    for name, build in [("credent", credent.VI["credent"]), *_all("VI", {})]:
        contenders[name] = partial(_prediction, build, setting)
    contenders["credent, stored in memory"] = partial(_stored, setting, False)
    contenders["credent, stored on disk"] = partial(_stored, setting, True)
    return Race((FORWARDS,), contenders, cycle=1)


def laplace(setting: Setting) -> Race:
    """A prediction where only the last layer is random: one pass through the rest would do."""
    contenders: dict[str, Callable[[], Turn]] = {"one forward": partial(_forwards, setting, 1)}
    for name, build in _all("LAPLACE", credent.LAPLACE):
        contenders[name] = partial(_prediction, build, setting)
    return Race(("one forward",), contenders, cycle=1)


def fisher(setting: Setting) -> Race:
    """The trace of the Fisher information on one batch, labels drawn from the network."""
    return Race(
        ("forward and backward",),
        {
            "forward and backward": partial(_gradient, setting),
            "credent": partial(_trace, setting),
            "torch.func, a gradient for each example": partial(_each_gradient, setting),
        },
        cycle=1,
    )


def kl(setting: Setting) -> Race:
    """A VI step whose KL is estimated from M draws of its own: the time of 1 to 1,000 of them."""

    def made(draws: int | None) -> Callable[[], Turn]:
        build = credent.objective(cr.VI, prior=cr.priors.ScaleMixture(), estimator="path", kl_samples=draws)
        return partial(_step, build, setting, Task())

    named = {f"{m:,} draws" if m > 1 else "1 draw": made(m) for m in (1, 10, 100, 1000)}
    return Race(("the likelihood's own draw",), {"the likelihood's own draw": made(None), **named})


GROUPS: dict[str, Callable[[Setting], Race]] = {
    "vi": vi,
    "vl": vl,
    "samplers": samplers,
    "prediction": prediction,
    "laplace": laplace,
    "fisher": fisher,
    "kl": kl,
}


def _all(kind: str, ours: dict[str, Build]) -> Iterator[tuple[str, Build]]:
    yield from ours.items()
    for peer in peers()[0]:
        yield from vars(peer)[kind].items()


def _step(build: Build, setting: Setting, task: Task) -> Turn:
    bayesian = build(setting.net().train(), task)
    x, y = setting.batch()
    return lambda: bayesian.step(x, y)


def _trained(build: Build, setting: Setting) -> Bayesian:
    """After one step, so that everything that is made at first use is there."""
    bayesian = build(setting.net().train(), Task())
    bayesian.step(*setting.batch())
    bayesian.net.eval()
    return bayesian


def _prediction(build: Build, setting: Setting) -> Turn:
    bayesian, x = _trained(build, setting), setting.test_inputs()
    return lambda: bayesian.probabilities(x, setting.draws)


def _forwards(setting: Setting, times: int) -> Turn:
    net, x = setting.net().eval(), setting.test_inputs()

    @torch.no_grad()
    def turn() -> None:
        for _ in range(times):
            net(x).softmax(-1)

    return turn


def _stored(setting: Setting, on_disk: bool) -> Turn:
    net, x = setting.net().eval(), setting.test_inputs()
    drawn = [
        {k: (w + 0.01 * torch.randn_like(w)).detach() for k, w in net.named_parameters()} for _ in range(setting.draws)
    ]
    if not on_disk:
        posterior = Draws(drawn)
        return lambda: cr.predict(net, posterior, cr.likelihoods.Categorical(), x, samples=None)
    directory = tempfile.mkdtemp()
    files = DrawFiles(Path(directory))
    for draw in drawn:
        files.append(draw)
    kept = Draws(directory)

    def turn() -> object:
        return cr.predict(net, kept, cr.likelihoods.Categorical(), x, samples=None)

    weakref.finalize(turn, shutil.rmtree, directory)
    return turn


def _gradient(setting: Setting) -> Turn:
    net, (x, y) = setting.net().eval(), setting.batch()

    def turn() -> None:
        functional.cross_entropy(net(x), y).backward()
        net.zero_grad()

    return turn


def _trace(setting: Setting) -> Turn:
    net, (x, _) = setting.net().eval(), setting.batch()
    return lambda: cr.fisher.trace(net, cr.likelihoods.Categorical(), x).value


def _each_gradient(setting: Setting) -> Turn:
    net, (x, _) = setting.net().eval(), setting.batch()
    params = {k: p.detach() for k, p in net.named_parameters()}

    def loss(at: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(_call(net, at, one[None]), label[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def turn() -> float:
        with torch.no_grad():
            labels = torch.multinomial(net(x).softmax(-1), 1)[:, 0]
        found = gradients(params, x, labels)
        return sum(float(g.square().sum()) for g in found.values()) / len(x)

    return turn


def _call(net: nn.Module, params: dict[str, Tensor], x: Tensor) -> Tensor:
    outputs: Tensor = functional_call(net, params, (x,))
    return outputs
