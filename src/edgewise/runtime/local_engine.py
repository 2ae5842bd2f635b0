"""This machine: processes of its own, where they are faster than this one alone."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from logging import getLogger
from multiprocessing import current_process, get_context
from typing import Any

import torch

from ..errors import InputError
from ..models import Model
from .engine import (
    Engine,
    PartResults,
    WorkItem,
    is_narrow_model,
    order_longest_first,
    run_item,
    thread_count,
    threads_for,
)
from .model_copy import ModelCopy, make_model_copy

# Work of fewer seconds than this isn't worth processes; once they are there, all is.
WORTH = 2.0
# PR_SET_PDEATHSIG of Linux's prctl.
DIE_WITH_PARENT = 1
# How often in a row processes may die before any of them has finished a piece.
MOST_DEATHS = 3


class Local(Engine):
    """Processes of this machine.

    A model on a CPU runs in up to as many processes as there are cores (or as OMP_NUM_THREADS says), which share its
    weights. At first a piece runs in this process, which tells what the others would take: processes are begun where
    that pays, and let go where they turn out to be slower. Where there are several accelerators, each has a process
    that loads the model. The pieces of a process that is lost are done by others.

    workers  how many processes; None for what is said above, 1 for this process alone
    devices  one for each worker to load the model to; None for those of the model's kind
    """

    name = "local"

    def __init__(self, workers: int | None = None, devices: Sequence[str] | None = None) -> None:
        self._asked, self._given = check_workers(workers), tuple(devices or ())
        if self._given and workers not in (None, len(self._given)):
            raise InputError(f"{workers} workers were asked for, but {len(self._given)} devices to run them on")
        self._pool: _Pool | None = None
        self._slower: set[str] = set()

    def workers(self, model: Model) -> int:
        """As many as devices, or cores."""
        devices = self._devices(model)
        return len(devices) or self._asked or (thread_count() if model.transformer.device.type == "cpu" else 1)

    def run(self, model: Model, pieces: Sequence[WorkItem], of: int | None = None) -> Iterator[tuple[int, PartResults]]:
        """As they are done; here what isn't worth processes, or can't be sent to them."""
        devices, workers = self._devices(model), self.workers(model)
        at_once = min(workers, of or len(pieces))
        # For few pieces of a wide model, all threads of this process do more than a few processes of one thread.
        alone = at_once < 2 or (
            self._asked is None and not devices and not is_narrow_model(model) and 2 * at_once <= workers
        )
        threads = threads_for(model, 1 if alone else workers)
        forks = can_fork(devices, threads)
        alone = alone or len(pieces) < 2 or model.digest in self._slower or current_process().daemon
        alone = alone or not _can_be_sent(pieces[0], forks)
        asks = bool(devices) or self._asked is not None or self._has(model)
        here, began = range(len(pieces) if alone else 0 if asks else 1), time.perf_counter()
        for place in here:
            yield place, run_item(model, pieces[place], threads)
        each, left = (time.perf_counter() - began) / max(1, len(here)), range(len(here), len(pieces))
        if not asks and each * len(left) < WORTH:
            yield from ((place, run_item(model, pieces[place], threads)) for place in left)
        elif left:
            pool, began = self._open(model, devices, forks), time.perf_counter()
            yield from pool.run({place: pieces[place] for place in left}, threads)
            if not asks and len(left) >= 2 * pool.size and (time.perf_counter() - began) / len(left) > each:
                self._slower.add(model.digest)
                self.close()

    def close(self) -> None:
        """Let the processes go."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _devices(self, model: Model) -> tuple[str, ...]:
        """The devices that workers load the model to; none if they share this process's memory."""
        kind = model.transformer.device.type
        if self._given or kind == "cpu" or self._asked == 1 or len(model.transformer.devices) > 1:
            return self._given
        count = min(self._asked or sys.maxsize, torch.accelerator.device_count())
        return tuple(f"{kind}:{index}" for index in range(count)) if count > 1 else ()

    def _has(self, model: Model) -> bool:
        """Whether there are processes that have a model."""
        return self._pool is not None and self._pool.digest == model.digest

    def _open(self, model: Model, devices: tuple[str, ...], forks: bool) -> _Pool:
        """The processes that have a model; those that have another one go."""
        if self._pool is None or not self._has(model):
            self.close()
            self._pool = _Pool(model, self.workers(model), devices, forks)
        return self._pool


def check_workers(workers: int | None) -> int | None:
    """A number of workers, if there is one; refuses one that can't be."""
    if workers is not None and workers < 1:
        raise InputError(f"there must be at least 1 worker, not {workers}")
    return workers


def can_fork(devices: Sequence[str], threads: int) -> bool:
    """Whether a worker can be a copy of this process, which has the model as it is, without loading it.

    Threads don't survive a fork: neither those of an accelerator nor OpenMP's, for which a copy would wait forever.
    """
    return sys.platform == "linux" and not devices and threads == 1 and not torch.accelerator.is_available()


class _Pool:
    """Processes that have a model; begun again when one of them dies."""

    def __init__(self, model: Model, size: int, devices: tuple[str, ...], forks: bool) -> None:
        self.digest, self.size = model.digest, size
        self._model, self._devices, self._forks = model, devices, forks
        self._executor = self._start(model, size, devices, forks)

    @staticmethod
    def _start(model: Model, size: int, devices: tuple[str, ...], forks: bool) -> ProcessPoolExecutor:
        context: Any = get_context("fork" if forks else "spawn")
        if forks:
            return ProcessPoolExecutor(size, context, _inherit, (model, os.getpid()))
        places = context.SimpleQueue()
        for device in devices or ("cpu",) * size:
            places.put(device)
        return ProcessPoolExecutor(size, context, _load, (make_model_copy(model), places, os.getpid()))

    def run(self, pieces: Mapping[int, WorkItem], threads: int) -> Iterator[tuple[int, PartResults]]:
        """As they are done."""
        left, deaths = dict(pieces), 0
        while left:
            futures = {}
            try:
                with warnings.catch_warnings():  # of forks and threads: the child uses none that the parent has
                    warnings.simplefilter("ignore", DeprecationWarning)
                    futures = {
                        self._executor.submit(_do, left[place], threads): place for place in order_longest_first(left)
                    }
                for future in as_completed(futures):
                    found = future.result()
                    deaths = 0
                    del left[futures[future]]
                    yield futures[future], found
            except BrokenProcessPool:
                deaths += 1
                self.close()
                if deaths >= MOST_DEATHS:
                    raise InputError(
                        f"worker processes died {deaths} times in a row, maybe for want of memory; try fewer --workers "
                        "or a smaller --memory, or --workers 1 to see why"
                    ) from None
                self._executor = self._start(self._model, self.size, self._devices, self._forks)
            finally:
                for future in futures:
                    future.cancel()

    def close(self) -> None:
        """End the processes, whatever they are at: nobody waits for it."""
        processes = list((getattr(self._executor, "_processes", None) or {}).values())
        for process in processes:
            process.kill()
        self._executor.shutdown(cancel_futures=True)


# What a worker process has: its model. Nothing else outlives a piece.
_MODEL: list[Any] = []


def _inherit(model: Model, parent: int) -> None:
    torch.set_num_threads(1)  # also for what happens between pieces: sending results copies them
    _MODEL[:] = [model]
    _obey(parent)


def _load(recipe: ModelCopy, places: Any, parent: int) -> None:
    _MODEL[:] = [recipe.load(places.get())]
    _obey(parent)


def _obey(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":  # at once, so that no lock that was inherited outlives the parent
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _do(piece: WorkItem, threads: int) -> PartResults:
    return run_item(_MODEL[0], piece, threads)


def _can_be_sent(piece: WorkItem, forks: bool) -> bool:
    """Whether another process can be given a job: one's own method may be made of what has no name there."""
    try:
        sent = pickle.dumps(piece.job)
    except Exception as error:  # whatever a class of one's own raises
        getLogger("edgewise").warning("this work can't be sent to other processes, so it runs in this one: %s", error)
        return False
    # A process that wasn't forked doesn't know what a script or a notebook defined.
    return forks or b"__main__" not in sent
