"""The local engine: worker processes on this machine, where they are faster than this process alone."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from logging import getLogger
from multiprocessing import current_process, get_context
from typing import Any

import torch

from ..errors import InputError
from ..models import Model, ModelSource, load_source, wrap_model
from .engine import (
    Engine,
    ItemResults,
    PartResults,
    WorkItem,
    is_narrow_model,
    order_longest_first,
    run_item,
    thread_count,
    threads_for,
)

# Work of fewer seconds doesn't justify starting processes.
MIN_POOL_SECONDS = 2.0
# PR_SET_PDEATHSIG of Linux's prctl: the signal that a process gets when its parent ends.
SET_PARENT_DEATH_SIGNAL = 1
# How often in a row workers may die before one of them finishes an item.
MAX_DEATHS = 3


class Local(Engine):
    """Runs items in processes of this machine.

    A model on a CPU runs in up to one process per core (or as many as OMP_NUM_THREADS says), which share its weights.
    The first item runs in this process. Its time decides whether to start workers; they end again if they turn out
    to be slower. With several accelerators, each has a worker that loads the model. Items of a worker that dies
    run again.

    Parameters
    ----------
    workers
        How many processes. None decides as above, 1 uses this process only.
    devices
        The device of each worker, to which it loads the model. None takes all devices of the model's kind.
    """

    def __init__(self, workers: int | None = None, devices: Sequence[str] | None = None) -> None:
        check_workers(workers)
        self._n_workers, self._chosen_devices = workers, tuple(devices or ())
        if self._chosen_devices and workers not in (None, len(self._chosen_devices)):
            raise InputError(
                f"{workers} workers were asked for, but {len(self._chosen_devices)} devices to run them on"
            )
        self._pool: _Pool | None = None
        self._slower_in_pool: set[str] = set()

    def workers(self, model: Model) -> int:
        devices = self._devices(model)
        return len(devices) or self._n_workers or (thread_count() if model.transformer.device.type == "cpu" else 1)

    def run(self, model: Model, items: Sequence[WorkItem], n_items_in_all: int | None = None) -> ItemResults:
        """Yield results as they come. Items that are too quick for workers, or can't be sent, run in this process."""
        devices, workers = self._devices(model), self.workers(model)
        n_in_all = max(len(items), n_items_in_all or 0)
        at_once = min(workers, n_in_all)
        # A few items of a wide model are faster with all threads of this process than in processes of one thread.
        are_few = not devices and not is_narrow_model(model) and 2 * at_once <= workers
        in_process = at_once < 2 or (self._n_workers is None and are_few)
        threads = threads_for(model, 1 if in_process else workers)
        # A fork has the model without loading it. Threads don't survive a fork: it would wait forever for those of an
        # accelerator or of OpenMP.
        can_fork = sys.platform == "linux" and not devices and threads == 1 and not torch.accelerator.is_available()
        in_process = in_process or len(items) < 2 or model.digest in self._slower_in_pool or current_process().daemon
        in_process = in_process or not _can_send(items[0], can_fork)
        has_pool = self._pool is not None and self._pool.digest == model.digest
        must_use_pool = bool(devices) or self._n_workers is not None or has_pool
        n_here = len(items) if in_process else 0 if must_use_pool else 1
        started = time.perf_counter()
        for index in range(n_here):
            yield index, run_item(model, items[index], threads)
        seconds_per_item = (time.perf_counter() - started) / max(1, n_here)
        left = range(n_here, len(items))
        if not must_use_pool and seconds_per_item * (n_in_all - n_here) < MIN_POOL_SECONDS:
            for index in left:
                yield index, run_item(model, items[index], threads)
        elif left:
            if self._pool is None or not has_pool:
                self.close()
                self._pool = _Pool(model, workers, devices, can_fork)
            pool, started = self._pool, time.perf_counter()
            yield from pool.run({index: items[index] for index in left}, threads)
            seconds_in_pool = (time.perf_counter() - started) / len(left)
            if not must_use_pool and len(left) >= 2 * pool.size and seconds_in_pool > seconds_per_item:
                self._slower_in_pool.add(model.digest)
                self.close()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _devices(self, model: Model) -> tuple[str, ...]:
        """Return the devices that workers load the model to; none if workers share this process's memory."""
        kind = model.transformer.device.type
        if self._chosen_devices or kind == "cpu" or self._n_workers == 1 or len(model.transformer.devices) > 1:
            return self._chosen_devices
        count = min(self._n_workers or sys.maxsize, torch.accelerator.device_count())
        return tuple(f"{kind}:{index}" for index in range(count)) if count > 1 else ()


def check_workers(workers: int | None) -> None:
    """Raise InputError if a number of workers is below 1."""
    if workers is not None and workers < 1:
        raise InputError(f"there must be at least 1 worker, not {workers}")


@dataclass(frozen=True, eq=False)
class ModelCopy:
    """What another process needs to have the same model.

    content  hash of what the outputs depend on; tells whether the other process has the same files
    source   how to load the model; None if it was made or changed in memory: then `module` is sent
    """

    content: str
    name: str
    source: ModelSource | None = None
    module: Any = None
    bos: int | None = None

    def load(self, device: str | None = None) -> Model:
        """Return the model, on a device if one is given."""
        if self.source is None:
            module = self.module if device is None else self.module.to(device)
            return replace(wrap_model(module, name=self.name, bos="no"), bos=self.bos)
        model = load_source(replace(self.source, device=device or self.source.device))
        if model.content != self.content:
            raise InputError(
                f"a worker has other files of model {self.name!r} than this process; put the same where it runs, or "
                "give a folder that all machines share"
            )
        return model


def make_model_copy(model: Model) -> ModelCopy:
    """Return a copy that can be sent: the source if its files are the model, else the module itself."""
    if model.source is not None and model.content == model.source.content:
        return ModelCopy(model.content, model.name, model.source)
    return ModelCopy(model.content, model.name, None, model.module, model.bos)


class _Pool:
    """Worker processes that have a model. They start again when one of them dies."""

    def __init__(self, model: Model, size: int, devices: tuple[str, ...], forks: bool) -> None:
        self.digest, self.size = model.digest, size
        self._model, self._devices, self._forks = model, devices, forks
        self._executor = self._start()

    def _start(self) -> ProcessPoolExecutor:
        context: Any = get_context("fork" if self._forks else "spawn")
        if self._forks:
            return ProcessPoolExecutor(self.size, context, _start_worker, (os.getpid(), self._model))
        devices = context.SimpleQueue()
        for device in self._devices or ("cpu",) * self.size:
            devices.put(device)
        arguments = (os.getpid(), make_model_copy(self._model), devices)
        return ProcessPoolExecutor(self.size, context, _start_worker, arguments)

    def run(self, items: Mapping[int, WorkItem], threads: int) -> ItemResults:
        left, deaths = dict(items), 0
        while left:
            futures = {}
            try:
                with warnings.catch_warnings():  # about forks and threads: a fork uses none of its parent's threads
                    warnings.simplefilter("ignore", DeprecationWarning)
                    futures = {
                        self._executor.submit(_run_in_worker, left[index], threads): index
                        for index in order_longest_first(left)
                    }
                for future in as_completed(futures):
                    parts = future.result()
                    deaths = 0
                    del left[futures[future]]
                    yield futures[future], parts
            except BrokenProcessPool:
                deaths += 1
                self.close()
                if deaths >= MAX_DEATHS:
                    raise InputError(
                        f"worker processes died {deaths} times in a row, maybe because memory ran out; try fewer "
                        "workers or a smaller memory, or workers=1 to see why"
                    ) from None
                self._executor = self._start()
            finally:
                for future in futures:
                    future.cancel()

    def close(self) -> None:
        """Kill the workers: nobody waits for what they are doing."""
        for process in list((getattr(self._executor, "_processes", None) or {}).values()):
            process.kill()
        self._executor.shutdown(cancel_futures=True)


# The model of a worker process.
_MODEL: list[Any] = []


def _start_worker(parent: int, model: Model | ModelCopy, devices: Any = None) -> None:
    """Get the model, leave Ctrl-C to the parent, and end when the parent ends."""
    if isinstance(model, ModelCopy):
        _MODEL[:] = [model.load(devices.get())]
    else:
        torch.set_num_threads(1)  # also between items: sending results copies them
        _MODEL[:] = [model]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":  # at once, so that no inherited lock outlives the parent
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _run_in_worker(item: WorkItem, threads: int) -> PartResults:
    return run_item(_MODEL[0], item, threads)


def _can_send(item: WorkItem, forks: bool) -> bool:
    """Return whether a job can be sent to another process."""
    try:
        data = pickle.dumps(item.job)
    except Exception as error:  # a custom method may raise anything
        getLogger("edgewise").warning("this work can't be sent to other processes, so it runs in this one: %s", error)
        return False
    # A spawned process doesn't have the names that a script or a notebook defined.
    return forks or b"__main__" not in data
