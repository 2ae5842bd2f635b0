"""The tutorials and examples run, and the saved outputs of the notebooks are up to date."""

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


def load_run_notebooks():
    spec = importlib.util.spec_from_file_location("run_notebooks", ROOT / "tools" / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def output_texts(notebook: dict) -> list[list[str]]:
    """Return the outputs of each code cell without what depends on the machine or on the steps of learning.

    That is numbers and white space, which edges are strongest, and which recipe validation chooses.
    """
    texts = [
        ["".join(output.get("text") or output["data"]["text/plain"]) for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    texts = [[re.sub(r"\S+->\S+", "edge", NUMBER.sub("#", text)) for text in cell] for cell in texts]
    return [[re.sub(r"\s+", " ", re.sub(r"# +validation\b", "#", text)) for text in cell] for cell in texts]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_saved_outputs_are_those_of_a_new_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    outputs = output_texts(load_run_notebooks().execute(notebook))
    assert outputs == output_texts(notebook), "run tools/run_notebooks.py"
    assert sum(map(bool, outputs)) > 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("few_steps")
def test_examples_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.count("\n") > 1


def test_examples_page_lists_every_example():
    assert len(NOTEBOOKS) == 2 and len(EXAMPLES) == 4
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"[{path.name}]({path.name})" in page for path in EXAMPLES)
