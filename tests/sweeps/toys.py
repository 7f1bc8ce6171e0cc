"""Functions that a sweep calls; workers import them from here, so this directory must be on PYTHONPATH."""

import os
import signal
import time
from pathlib import Path


def bowl(x, y, log, wait=0.0, seed=0):
    """(x - 1)^2 + y^2, one line a call in `log`."""
    with open(log, "a") as file:
        file.write(f"{x} {y} {seed} {os.getpid()}\n")
    time.sleep(wait)
    return {"far": (x - 1.0) ** 2 + y**2 + seed, "pid": float(os.getpid())}


def brittle(x, log):
    """Raises at 2, and kills its process once at 3."""
    with open(log, "a") as file:
        file.write(f"{x}\n")
    if x == 2:
        raise ZeroDivisionError("one over\nnothing")
    if x == 3 and Path(log).read_text().split().count("3") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"far": x}
