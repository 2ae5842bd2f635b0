"""What the tests of Ray run in its workers. A module of its own: every worker imports it, and only what it needs."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import ray
from waiting import wait_for

from edgewise import Eap, InputError
from edgewise.runtime import ray_engine


@dataclass(frozen=True)
class Slow(Eap):
    """Writes a file for every batch, named after its node and process. After `free` batches, waits for the file `go`.

    Its name starts with "waiting" from the time it waits: the batch of such a process is not finished.
    """

    folder: str = ""
    free: int = 0

    def score(self, batch, metric):
        marks, node = Path(self.folder), ray.get_runtime_context().get_node_id()
        mark = marks / f"free-{node}-{os.getpid()}-{time.time_ns()}"
        mark.touch()
        if len(list(marks.iterdir())) > self.free:
            mark.rename(marks / mark.name.replace("free", "waiting"))
            wait_for((marks.parent / "go").exists, "the file go")
        return super().score(batch, metric)


def count_models(model, examples):
    """Return how many models this worker process has."""
    return len(ray_engine._MODELS)


def fail(model, examples):
    raise InputError("as they are")
