"""The tutorials and examples run, and the outputs that the notebooks show are those that they give."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


def tool():
    spec = importlib.util.spec_from_file_location("run_notebooks", ROOT / "tools" / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: dict) -> list[list[str]]:
    """What each cell of code shows, numbers left out, which other machines round otherwise; and no blanks, which they
    move."""
    texts = [
        ["".join(one.get("text") or one["data"]["text/plain"]) for one in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    return [[re.sub(r"\s+", " ", NUMBER.sub("#", text)) for text in cell] for cell in texts]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_show_what_they_say(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    found = shown(tool().executed(notebook))
    # Which edges are strongest may turn on a rounding error; how many are shown doesn't.
    edge = re.compile(r"\S+->\S+")
    assert [[edge.sub("edge", text) for text in cell] for cell in found] == [
        [edge.sub("edge", text) for text in cell] for cell in shown(notebook)
    ], "run tools/run_notebooks.py"
    assert sum(map(bool, found)) > 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_as_they_are(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.count("\n") > 1


def test_the_list_of_examples_has_them_all():
    assert len(NOTEBOOKS) == 2 and len(EXAMPLES) == 4
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"[{path.name}]({path.name})" in page for path in EXAMPLES)
