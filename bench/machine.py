"""Where numbers come from: the machine, the versions, and the memory of a process."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from credent import native
from credent.cells.record import Origin

PACKAGES = tuple(
    line.split("==")[0]
    for line in Path(__file__).with_name("peers.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def here() -> dict[str, Any]:
    """This machine and what is installed on it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "compiled loops": native.kernels is not None,
        **vars(Origin.here()),
        "peers": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


_KEEPING = {"MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_MMAP_THRESHOLD_": str(2**33)}  # glibc's, in bytes


def keep_memory(module: str) -> None:
    """Begin this process anew with an allocator that keeps what is freed.

    Otherwise large blocks go back to the kernel, and who pays for getting them again is a matter of whose turn came
    before: on ResNet-20 it moved ratios by up to 10 %.
    """
    if any(name not in os.environ for name in _KEEPING):
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, **_KEEPING})


def resident(which: str) -> int:
    """Bytes of this process: "VmRSS" now, "VmHWM" at its peak (rusage's peak begins with the parent's)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    """Let the peak begin here."""
    Path("/proc/self/clear_refs").write_text("5")


def available() -> int:
    """Bytes that a process may still take."""
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024
