"""Start other processes, and wait for conditions, however busy the machine is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

# Seconds that a test waits for another process, on a machine that is busy with other work.
PATIENCE = 300


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds. Fail with `what` was waited for if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.01)


def start_process(function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """Start a function in another process: on Linux a fork of this one, which need not import torch again."""
    process = get_context("fork" if sys.platform == "linux" else "spawn").Process(target=function, args=arguments)
    process.start()
    return process
