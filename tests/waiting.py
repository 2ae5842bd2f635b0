"""Wait for a condition, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds that a test waits for another process, on a machine that is busy with other work.
PATIENCE = 300


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds. Fail with `what` was waited for if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.01)
