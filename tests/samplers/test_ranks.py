"""Two processes with the halves of a batch know what one with the whole of it knows."""

import multiprocessing
import runpy
from pathlib import Path

import torch

RANK = Path(__file__).with_name("rank.py")


def test_statistics_are_those_of_the_joined_batch(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["credent", "pytest", "_pytest.config", "torch._dynamo"])
    processes = []
    for rank in (0, 1):
        keywords = {"init_globals": {"TASK": {"directory": str(tmp_path), "rank": rank}}, "run_name": "__main__"}
        processes.append(context.Process(target=runpy.run_path, args=(str(RANK),), kwargs=keywords))
        processes[-1].start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    here = runpy.run_path(str(RANK))
    whole = here["statistics"](here["inputs"]())
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, value in whole.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value)
