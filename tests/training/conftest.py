"""Small problems to train on, and processes to train in."""

import multiprocessing
import runpy
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import credent as cr
from credent.objectives import Objective

SCENARIO = Path(__file__).with_name("scenario.py")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums over threads are not the same bits as sums in one, and children run in one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def scenario() -> SimpleNamespace:
    """scenario.py in this process."""
    return SimpleNamespace(**runpy.run_path(str(SCENARIO)))


@pytest.fixture(scope="session")
def start() -> Callable[..., ForkServerProcess]:
    """Start scenario.py in a process of its own, with its task; the imports are done once, in the fork server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["credent", "pytest", "_pytest.config", "torch._dynamo"])

    def start(**task: Any) -> ForkServerProcess:
        keywords = {"init_globals": {"TASK": task}, "run_name": "__main__"}
        process = context.Process(target=runpy.run_path, args=(str(SCENARIO),), kwargs=keywords)
        process.start()
        return process

    return start


@pytest.fixture(scope="session")
def child(start: Callable[..., ForkServerProcess]) -> Callable[..., int]:
    """Run scenario.py to its end in a process of its own: the exit code."""

    def run(**task: Any) -> int:
        process = start(**task)
        process.join(60)
        assert process.exitcode is not None, "the child hangs"
        return process.exitcode

    return run


@pytest.fixture
def rows() -> TensorDataset:
    """Thirty-two rows of five numbers in three classes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 5, generator=generator)
    return TensorDataset(x, (x @ torch.randn(5, 3, generator=generator)).argmax(-1))


@pytest.fixture
def build() -> Callable[..., Objective]:
    """An objective over a small classifier of five numbers into three classes; the seed decides all of it."""

    def build(kind: str = "VI", seed: int = 0, norm: bool = False, dropout: bool = False, **options: Any) -> Objective:
        torch.manual_seed(seed)
        middle = ([nn.BatchNorm1d(8)] if norm else []) + [nn.Tanh()] + ([nn.Dropout(0.3)] if dropout else [])
        net = nn.Sequential(nn.Linear(5, 8), *middle, nn.Linear(8, 3))
        options = {"num_data": 32} | options
        return {"VI": cr.VI, "MAP": cr.MAP}[kind](net, cr.likelihoods.Categorical(), **options)

    return build


@pytest.fixture
def by_hand() -> Callable[..., list[dict[str, Tensor]]]:
    """The loop of the tutorials: the weights after each step."""

    def loop(objective: Objective, optimizer: torch.optim.Optimizer, loader: Any, epochs: int) -> list[dict[str, Any]]:
        weights = []
        objective.train()
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                objective(x, y).backward()
                optimizer.step()
                weights.append({k: p.detach().clone() for k, p in objective.net.named_parameters()})
        return weights

    return loop


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], bool]:
    """Whether two states are equal to the bit, whatever they are made of."""

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, Tensor):
            return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
        if isinstance(a, list | tuple):
            return len(a) == len(b) and all(map(same, a, b))
        return bool(a == b)

    return same
