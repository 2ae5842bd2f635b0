"""Commands in this process, as a user types them, and small files for them."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from conftest import random_task

from edgewise import Circuit, Graph
from edgewise.cli import main

DEMO = Graph(4, 4, 64)
# A row of a task file.
GOOD = {
    "clean": "When Mary and John went to the store, John gave a drink to",
    "corrupted": "When Mary and John went to the store, Mary gave a drink to",
    "correct": " Mary",
    "incorrect": " John",
}


def run_command(*words) -> tuple[int, str, str]:
    """Run a command; return its exit code, stdout and stderr."""
    code = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        patch.setattr(sys, "argv", ["edgewise", *map(str, words)])
        # Learning takes seconds: only with --learned. So does selecting: forecasts select with one recipe.
        patch.setattr("edgewise.cli.run.LEARN_MINUTES", 0)
        patch.setattr("edgewise.recipes.forecast.SELECT_SECONDS", 0)
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except KeyboardInterrupt:
            code = 130
    return code, out.getvalue(), err.getvalue()


def run_json(*words):
    """Run a command with --json; return what it printed."""
    code, out, err = run_command(*words, "--json")
    assert code == 0, err
    return json.loads(out)


def refused(edgewise, *words) -> str:
    """Return the one line with which a command is refused."""
    code, out, err = edgewise(*words)
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(lines) == 1 and "Traceback" not in err and not out, (code, out, err)
    return lines[0]


def interrupt(*_, **__):
    """Stand in for a function that the user interrupts."""
    raise KeyboardInterrupt


def write(path: Path, rows) -> str:
    """Write rows as JSON lines, texts as they are; return the path."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def score_file(path: Path, score=None) -> Path:
    """Write a circuit file with scores of the edges of the demo model; return its path."""
    score = np.random.default_rng(0).normal(size=DEMO.n_edges) if score is None else score
    Circuit.full(DEMO).save(path, score)
    return path


def as_tokens(example) -> dict:
    """Return an example as a row of a task file, in token ids."""
    names = ("clean_ids", "corrupted_ids", "correct_id", "incorrect_id")
    return dict(zip(names, (example.clean, example.corrupted, example.correct, example.incorrect), strict=True))


def write_tokens(path: Path) -> str:
    """Write a task file of six examples as token ids, without splits; return its path."""
    return write(path, map(as_tokens, random_task(6).examples))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
