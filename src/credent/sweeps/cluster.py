"""Where runs are run: in processes of this machine, or on a cluster that joblib knows, Dask's or Ray's.

A cluster's workers must see the sweep's directory under the same path, have credent and the data (the variable
CREDENT_DATA), and run one thing at a time: torch's seeds and threads belong to a process, not to a thread of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import joblib

from credent.errors import InputError

BACKENDS = ("dask", "ray")


def check(backend: str | None, address: str | None, jobs: int | None) -> None:
    """Refuse what cannot be, before anything is run."""
    if backend is not None and backend not in BACKENDS:
        raise InputError(f"backend={backend!r}: there are {' and '.join(BACKENDS)}; leave it out for this machine.")
    if address is not None and backend is None:
        raise InputError(f"address={address!r}: say whose it is, backend='dask' or backend='ray'.")
    if address is not None and jobs is not None:
        raise InputError(f"jobs={jobs}: the cluster at {address} has a size of its own; leave jobs out.")


@contextmanager
def workers(backend: str | None, address: str | None, jobs: int | None) -> Iterator[None]:
    """Inside, joblib uses the cluster; without an address one is started on this machine, with `jobs` workers."""
    if backend is None:
        yield
        return
    with _dask(address, jobs) if backend == "dask" else _ray(address, jobs), joblib.parallel_config(backend=backend):
        yield


@contextmanager
def _dask(address: str | None, jobs: int | None) -> Iterator[None]:
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise _missing("dask", "distributed") from error
    size: dict[str, Any] = {"n_workers": jobs or joblib.cpu_count(), "threads_per_worker": 1, "dashboard_address": None}
    try:
        client = distributed.Client(address, timeout=30) if address else distributed.Client(**size)
    except (OSError, ValueError) as error:
        raise _unreachable("dask", address, error) from error
    with client:
        threads = max(client.nthreads().values(), default=1)
        if threads > 1:
            raise InputError(
                f"a worker of {address} has {threads} threads, and torch's seeds belong to a process, so that runs in"
                " one would disturb each other: start workers with `dask worker --nthreads 1 --nworkers N`."
            )
        yield


@contextmanager
def _ray(address: str | None, jobs: int | None) -> Iterator[None]:
    try:
        ray, ray_joblib = import_module("ray"), import_module("ray.util.joblib")
    except ImportError as error:
        raise _missing("ray", "ray") from error
    size: dict[str, Any] = {} if address else {"num_cpus": jobs or joblib.cpu_count(), "include_dashboard": False}
    try:
        ray.init(address=address, **size)
    except Exception as error:  # a node that does not start in time is a bare one
        raise _unreachable("ray", address, error) from error
    ray_joblib.register_ray()
    try:
        yield
    finally:
        ray.shutdown()


def _missing(backend: str, package: str) -> InputError:
    return InputError(f"backend={backend!r} needs a package that is not installed: pip install {package}.")


def _unreachable(backend: str, address: str | None, error: Exception) -> InputError:
    if address is None:
        why = f"{type(error).__name__}: {error}"
        return InputError(
            f"no {backend} cluster could be started ({why}): leave backend out to use this machine's cores."
        )
    return InputError(f"no {backend} cluster answers at {address}: {error}. Start its scheduler, or mend the address.")
