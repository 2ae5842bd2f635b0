"""The Ray engine: workers of a Ray cluster, or of one that starts on this machine."""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

from ..errors import InputError, unknown_name
from ..models import Model
from . import ENGINES
from .engine import Engine, ItemResults, PartResults, WorkItem, is_narrow_model, order_longest_first, run_item
from .local_engine import Local, ModelCopy, check_workers, make_model_copy

# How often an item is tried again when its worker, or its whole machine, is lost.
MAX_RETRIES = 5
# Seconds within which a cluster must answer.
CONNECT_SECONDS = 10
# Items sent to every worker in advance, so that none idles while the next one is on its way.
ITEMS_AHEAD = 2
# How often the processes of a cluster that was started here are checked.
# Ray may end this process itself soon after. Listing its processes takes longer, so that is done less often.
WATCH_SECONDS, CHECKS_PER_LIST = 0.05, 20


class Ray(Engine):
    """Runs items on a Ray cluster. Ray decides which item runs where, and runs again the items of lost workers.

    A worker is a process with an accelerator of its own, if the cluster has any, or else with its share of the CPUs. It
    loads the model once, from the same files as this process, which must be there on every machine.

    Parameters
    ----------
    address
        Of a cluster: 'HOST:PORT', or 'auto' for the one that this machine belongs to. None starts one here.
    workers
        How many items run at once; by default as many as accelerators, or else CPUs.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        check_workers(workers)
        if find_spec("ray") is None:
            raise InputError("--engine ray needs the package ray: pip install 'edgewise[ray]'")
        import ray

        self._is_connection_owner = not ray.is_initialized()
        if self._is_connection_owner:
            _connect(address, workers)
        elif address not in (None, "auto", connected := ray.get_runtime_context().gcs_address):
            raise InputError(
                f"this process is connected to the Ray cluster at {connected!r}, not {address!r}; leave the address "
                "out to use that one, or call ray.shutdown() first"
            )
        resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        counts = {kind: [int(node.get(kind, 0)) for node in resources] for kind in ("GPU", "CPU")}
        kind = next((kind for kind in counts if sum(counts[kind])), None)
        if kind is None:
            raise InputError("the Ray cluster has neither GPUs nor CPUs; add a node to it")
        # A worker takes the same number of GPUs, or else CPUs, on any node that has room for it.
        share = max(1, min(sum(counts[kind]) // (workers or sum(counts[kind])), max(counts[kind])))
        self._resources = {"num_cpus": 0} | {f"num_{kind.lower()}s": share}
        room = sum(count // share for count in counts[kind])
        self._workers = workers or room
        self._max_submitted = self._workers * (ITEMS_AHEAD if room <= self._workers else 1)
        self._copy: tuple[str, Any] | None = None

    def workers(self, model: Model) -> int:
        return self._workers

    def run(self, model: Model, items: Sequence[WorkItem], n_items_in_all: int | None = None) -> ItemResults:
        import ray
        from ray.exceptions import NodeDiedError, OutOfMemoryError, RayError, RayTaskError, WorkerCrashedError

        digest = model.digest
        if self._copy is None or self._copy[0] != digest:
            self._copy = (digest, ray.put(make_model_copy(model)))
        # In a list, Ray doesn't fetch the copy for workers that have the model already.
        copy = [self._copy[1]]
        sent_jobs = {key: ray.put(job) for key, job in {id(item.job): item.job for item in items}.items()}
        options: dict[str, Any] = {"max_retries": MAX_RETRIES, "max_calls": 0, **self._resources}
        remote: Any = ray.remote(**options)(_run_in_worker)
        threads = 1 if is_narrow_model(model) else max(1, self._resources["num_cpus"])
        waiting = order_longest_first(dict(enumerate(items)))[::-1]
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._max_submitted:
                    index = waiting.pop()
                    item = items[index]
                    running[remote.remote(digest, copy, sent_jobs[id(item.job)], item.examples, threads)] = index
                (reference,), _ = ray.wait(list(running), num_returns=1)
                try:
                    parts: PartResults = ray.get(reference)
                except RayTaskError as error:
                    raise error.cause or error from None  # as it was raised in the worker
                except RayError as error:
                    is_lost = isinstance(error, (WorkerCrashedError, NodeDiedError, OutOfMemoryError))
                    advice = "maybe because memory ran out; try fewer workers, or a smaller memory"
                    reason = advice if is_lost else (str(error).splitlines() or [""])[0]
                    raise InputError(
                        "a part of the work couldn't be done by any worker of the cluster "
                        f"({type(error).__name__}): {reason}"
                    ) from None
                yield running.pop(reference), parts
        finally:
            for reference in running:
                with suppress(Exception):
                    ray.cancel(reference, force=True)

    def watch(self, on_end: Callable[[str], None], finished: Event) -> None:
        """Until `finished` is set, call `on_end` when a process of a cluster that was started here has ended.

        The other processes of the cluster are killed before. `on_end` gets the name of the process.
        """
        import psutil  # Ray has its own copy
        from ray._private import worker  # Ray has no public way to ask

        node = getattr(worker, "_global_node", None) if self._is_connection_owner else None
        listed = getattr(node, "all_processes", {})
        processes = {name: listed[name][0].process for name in ("raylet", "gcs_server") if listed.get(name)}
        children: list[Any] = []
        n_checks = 0
        while processes and not finished.wait(WATCH_SECONDS):
            ended = next((name for name, process in processes.items() if process.poll() is not None), "")
            if ended or n_checks % CHECKS_PER_LIST == 0:
                # Workers are children of the raylet, so without it they are found only among the earlier ones.
                children = [*(children if ended else ()), *psutil.Process().children(recursive=True)]
            n_checks += 1
            if ended:
                for child in children:
                    with suppress(psutil.Error):
                        child.kill()
                on_end(ended)
                return

    def close(self) -> None:
        """Leave the cluster; a cluster that was started here ends."""
        import ray

        if self._is_connection_owner:
            ray.shutdown()


def _connect(address: str | None, workers: int | None) -> None:
    """Connect to a cluster, or start one."""
    import ray
    from ray.job_config import JobConfig

    if address not in (None, "auto", "local"):
        host, _, port = address.rpartition(":")
        try:  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, ValueError, OverflowError) as error:
            raise _connection_error(address, error) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Workers find custom modules where this process finds them.
    installed = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
    folders = [Path(folder).resolve() for folder in sys.path]
    custom = [str(folder) for folder in folders if not any(folder.is_relative_to(prefix) for prefix in installed)]
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(dict.fromkeys(custom))}} if custom else {}
    options: dict[str, Any] = {"runtime_env": environment}
    if address is None:
        options |= {"num_cpus": max(workers or 0, os.cpu_count() or 1), "include_dashboard": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            config = JobConfig()
            config._py_driver_sys_path = _NoWorkingDirectory()
            ray.init(address or "local", job_config=config, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _connection_error(address, error) from None


class _NoWorkingDirectory(list[str]):
    """The folders that Ray adds to the import path of workers, without the current one.

    Otherwise workers would import a folder `edgewise`, or any other module, that lies in the current directory.
    """

    def extend(self, folders: Iterable[str]) -> None:
        super().extend(folder for folder in folders if folder != os.getcwd())


def _connection_error(address: str | None, error: Exception) -> InputError:
    if "AuthenticationError" in type(error.__cause__).__name__ or "InvalidAuthToken" in f"{error} {error.__cause__}":
        return InputError(
            f"the Ray cluster at {address!r} asks for a token: set RAY_AUTH_MODE=token, and the token in "
            "~/.ray/auth_token or RAY_AUTH_TOKEN"
        )
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(
        f"there is no Ray cluster at {address!r} ({reason}); give HOST:PORT, as `ray start --head` says it, or leave "
        "the address out to start one here"
    )


# The model of a worker process, by its digest.
_MODELS: dict[str, Model] = {}


def _run_in_worker(digest: str, copy: list[Any], job: Any, examples: Sequence[Any], threads: int) -> PartResults:
    """Run an item in a worker, which loads the model if it has another one."""
    import ray

    if digest not in _MODELS:
        _MODELS.clear()
        model_copy: ModelCopy = ray.get(copy[0])
        _MODELS[digest] = model_copy.load()
    return run_item(_MODELS[digest], WorkItem(job, examples), threads)


def open_engine(name: str = "local", address: str | None = None, workers: int | None = None) -> Engine:
    """Return the engine called `name`: `Local`, or `Ray` at an address. Use it in a `with`, which ends its workers."""
    if name.lower() not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    if name.lower() == "ray":
        return Ray(address, workers)
    if address is not None:
        raise InputError(f"the engine local has no address, but {address!r} was given; did you mean engine='ray'?")
    return Local(workers)
