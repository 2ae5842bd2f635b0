"""A Ray cluster: one that exists, or one that is begun on this machine."""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..models import Model
from .engine import Engine, PartResults, WorkItem, is_narrow_model, order_longest_first, run_item
from .local_engine import check_workers
from .model_copy import ModelCopy, make_model_copy

# How often a piece is tried again when its worker, or its whole machine, is lost.
MOST_RETRIES = 5
# Seconds within which a cluster must answer.
CONNECT = 10
# Pieces that wait at every worker, so that none idles while the next one is sent.
AHEAD = 2


class Ray(Engine):
    """Workers of a Ray cluster. Ray decides which piece runs where, and runs again what a lost worker was at.

    A worker is a process with an accelerator of its own, if the cluster has any, or else with its share of the CPUs. It
    loads the model once, from the same files as this process, which must be there on every machine.

    address  of a cluster: 'HOST:PORT', or 'auto' for one that this machine belongs to; None begins one here
    workers  how many pieces run at once; by default as many as accelerators, or else CPUs
    """

    name = "ray"

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        check_workers(workers)
        if find_spec("ray") is None:
            raise InputError("--engine ray needs the package ray: pip install 'edgewise[ray]'")
        import ray

        self._begun = not ray.is_initialized()
        if self._begun:
            _begin(address, workers)
        self._needs, room = _needs(ray.nodes(), workers)
        self._workers = workers or room
        self._most = self._workers * (AHEAD if room <= self._workers else 1)
        self._recipe: tuple[str, Any] | None = None

    def workers(self, model: Model) -> int:
        """As many as were asked for, or as there are."""
        return self._workers

    def run(self, model: Model, pieces: Sequence[WorkItem], of: int | None = None) -> Iterator[tuple[int, PartResults]]:
        """As they are done."""
        import ray

        # Never resolved by Ray itself: a worker that has the model needs no other.
        digest = model.digest
        recipe = [self._put(model, digest)]
        jobs = {id(piece.job): piece.job for piece in pieces}
        shared = {which: ray.put(job) for which, job in jobs.items()}
        options: dict[str, Any] = {"max_retries": MOST_RETRIES, "max_calls": 0, **self._needs}
        remote: Any = ray.remote(**options)(_do)
        threads = 1 if is_narrow_model(model) else max(1, self._needs["num_cpus"])
        waiting = order_longest_first(dict(enumerate(pieces)))[::-1]
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._most:
                    place = waiting.pop()
                    piece = pieces[place]
                    running[remote.remote(digest, recipe, shared[id(piece.job)], piece.examples, threads)] = place
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    yield running.pop(reference), _result(reference)
        finally:
            for reference in running:
                with suppress(Exception):
                    ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leave the cluster; one that was begun here ends."""
        import ray

        if self._begun:
            ray.shutdown()

    def _put(self, model: Model, digest: str) -> Any:
        """Where the cluster keeps a model's recipe."""
        import ray

        if self._recipe is None or self._recipe[0] != digest:
            self._recipe = (digest, ray.put(make_model_copy(model)))
        return self._recipe[1]


def _begin(address: str | None, workers: int | None) -> None:
    import ray

    if address not in (None, "auto", "local"):
        _check_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing of this leaves the machine
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    cpus = max(workers or 0, os.cpu_count() or 1)
    here: dict[str, Any] = {} if address else {"num_cpus": cpus, "include_dashboard": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            ray.init(
                address or "local", logging_level=logging.ERROR, log_to_driver=False, runtime_env=_own_modules(), **here
            )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise _no_cluster(address, error) from None


def _check_reachable(address: str) -> None:
    """Refuse an address where nobody answers: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(address, error) from None


def _no_cluster(address: str | None, error: Exception) -> InputError:
    if "AuthenticationError" in type(error.__cause__).__name__ or "InvalidAuthToken" in f"{error} {error.__cause__}":
        return InputError(
            f"the Ray cluster at {address!r} asks for a token: set RAY_AUTH_MODE=token, and the token in "
            "~/.ray/auth_token or RAY_AUTH_TOKEN"
        )
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(
        f"there is no Ray cluster at {address!r} ({reason}); give HOST:PORT, as `ray start --head` says it, or leave "
        "--address out to begin one here"
    )


def _own_modules() -> dict[str, Any]:
    """How workers find modules of the user's own, as scorers are in: where this process does, if that is there too."""
    installed = (Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
    folders = [Path(folder).resolve() for folder in sys.path]
    own = [str(folder) for folder in folders if not any(folder.is_relative_to(one) for one in installed)]
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(dict.fromkeys(own))}} if own else {}


def _needs(nodes: Sequence[Mapping[str, Any]], workers: int | None) -> tuple[dict[str, int], int]:
    """What one worker takes of the cluster's machines, as options of a Ray task, and how many there is room for."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    for kind, option in (("GPU", "num_gpus"), ("CPU", "num_cpus")):
        each = [int(node.get(kind, 0)) for node in alive]
        if sum(each):
            share = max(1, min(sum(each) // (workers or sum(each)), max(each)))
            return {"num_cpus": 0} | {option: share}, sum(count // share for count in each)
    raise InputError("the Ray cluster has neither GPUs nor CPUs; add a node to it")


def _result(reference: Any) -> PartResults:
    """What came of a piece; an error as it was raised where it ran."""
    import ray
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RayError, RayTaskError, WorkerCrashedError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause or error from None
    except RayError as error:
        lost = isinstance(error, (WorkerCrashedError, NodeDiedError, OutOfMemoryError))
        reason = (str(error).splitlines() or [""])[0]
        why = "maybe for want of memory; try fewer --workers, or a smaller --memory" if lost else reason
        raise InputError(
            f"a piece of the work couldn't be done by any worker of the cluster ({type(error).__name__}): {why}"
        ) from None


# What a worker process has: one model, by its digest. Nothing else outlives a piece.
_LOADED: dict[str, Model] = {}


def _do(digest: str, recipe: list[Any], job: Any, examples: Sequence[Any], threads: int) -> PartResults:
    """A piece, in a worker."""
    import ray

    if digest not in _LOADED:
        _LOADED.clear()
        found: ModelCopy = ray.get(recipe[0])
        _LOADED[digest] = found.load()
    return run_item(_LOADED[digest], WorkItem(job, examples), threads)
