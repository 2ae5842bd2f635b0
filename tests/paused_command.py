"""Run an edgewise command that pauses after some batches: python paused_command.py BATCHES FOLDER COMMAND ...

It writes the file FOLDER/paused when it pauses, and continues when FOLDER/go exists. Tests stop it in between.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def pause_after(n_batches: int, folder: Path) -> None:
    """Make the process pause when it has stored so many batches."""
    from edgewise.runtime.partial_unit import PartialUnit

    write_rows, finished = PartialUnit.write_rows, []

    def write_and_pause(*arguments, **arrays):
        write_rows(*arguments, **arrays)
        finished.append(1)
        if len(finished) == n_batches:
            (folder / "paused").touch()
            while not (folder / "go").exists():
                time.sleep(0.01)

    PartialUnit.write_rows = write_and_pause


if __name__ == "__main__":
    from edgewise.__main__ import main

    pause_after(int(sys.argv[1]), Path(sys.argv[2]))
    sys.argv = ["edgewise", *sys.argv[3:]]
    main()
