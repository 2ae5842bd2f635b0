"""Run the notebooks in docs/tutorials and save their outputs as text. Jupyter is not needed.

python tools/run_notebooks.py [NOTEBOOK...]
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
import tempfile
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with new outputs. The cells run in order in the current folder."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = cell | {"execution_count": count, "outputs": _outputs("".join(cell["source"]), namespace, count)}
        cells.append(cell)
    return notebook | {"cells": cells}


def _outputs(source: str, namespace: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell. Return what it prints, and the value of its last line if that is an expression."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


@contextmanager
def temporary_folder():
    """Work in an empty folder, which is deleted afterwards."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def main() -> None:
    """Run the given notebooks, or all."""
    for path in [Path(name).resolve() for name in sys.argv[1:]] or sorted(TUTORIALS.glob("*.ipynb")):
        with temporary_folder():
            notebook = execute(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
