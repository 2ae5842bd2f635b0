"""An edgewise command that pauses after some batches, so that tests stop it there."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from waiting import start_process, wait_for

from edgewise.__main__ import main
from edgewise.runtime.store import PartialUnit


def run_paused(n_batches: int, folder: Path, words: Sequence[str]) -> None:
    """Run a command. When it has stored so many batches, write the file `paused` and wait for the file `go`.

    Its messages are in the file `err`.
    """
    write_rows, finished = PartialUnit.write_rows, []

    def write_and_pause(*arguments, **arrays):
        write_rows(*arguments, **arrays)
        finished.append(1)
        if len(finished) == n_batches:
            (folder / "paused").touch()
            wait_for((folder / "go").exists, "the file go")

    PartialUnit.write_rows = write_and_pause
    # What a shell starts in the background ignores SIGINT, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["edgewise", *words]
    sys.stdout = sys.stderr = (folder / "err").open("w")
    main()


def start_paused(n_batches: int, folder: Path, *words: object):
    """Start a command in a process of its own; wait until it has paused after so many batches."""
    process = start_process(run_paused, n_batches, folder, list(map(str, words)))
    wait_for(lambda: (folder / "paused").exists() or not process.is_alive(), "the command to pause")
    assert process.is_alive(), (folder / "err").read_text()
    return process
