"""The architecture that the design promises: imports go one way, and the arithmetic needs no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import edgewise

SOURCE = Path(edgewise.__file__).parent
# Each line may import the lines above it, and itself.
LAYERS = [
    {"errors", "lazy"},
    {"graph"},
    {"scores", "circuit"},
    {"tasks"},
    {"models"},
    {"score", "statistics", "select", "evaluate"},
    {"recipes"},
    {"stability"},
    {"pipeline", "tune"},
    {"formats"},
    {"study"},
    {"report"},
    {"cli"},
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}


def imports(path: Path):
    """The top-level parts of edgewise that a file imports, imports for type checkers left out."""
    tree = ast.parse(path.read_text())
    hidden = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    package = ["edgewise", *path.relative_to(SOURCE).with_suffix("").parts][:-1]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node in hidden or node.level == 0:
            continue
        base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
        names = [base] if len(base) > 1 else [[*base, alias.name] for alias in node.names]
        yield from (name[1] for name in names)


def test_imports_go_one_way():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).with_suffix("").parts[0]
        if part == "__init__":
            continue
        wrong += [
            f"{path.relative_to(SOURCE)} imports {other}" for other in imports(path) if HEIGHT[other] > HEIGHT[part]
        ]
    assert not wrong


def test_every_module_has_its_place():
    parts = {p.stem for p in SOURCE.glob("*.py")} | {p.name for p in SOURCE.iterdir() if any(p.glob("*.py"))}
    assert parts - {"__init__", "__pycache__"} == set(HEIGHT)


def test_only_models_and_the_command_line_know_the_transformer_library():
    knowing = {p.relative_to(SOURCE).parts[0] for p in SOURCE.rglob("*.py") if "import transformers" in p.read_text()}
    assert knowing <= {"models", "cli"}


def test_the_arithmetic_needs_no_torch():
    code = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ImportError(name)
sys.meta_path.insert(0, NoTorch())
import numpy as np
import edgewise
from edgewise import Bootstrap, Circuit, Curve, EdgeScores, Graph, SelectionProblem, solve, summarise
from edgewise.evaluate.curve import area
graph = Graph(2, 2, 4)
scores = EdgeScores(graph, np.random.default_rng(0).normal(size=(9, graph.n_edges)))
problem = SelectionProblem.build(graph, summarise(scores, Bootstrap()).score, "absolute", 12, 0.5)
assert solve(problem).kept == 12
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_exist_and_say_what_they_promise():
    for name in edgewise.__all__:
        thing = getattr(edgewise, name)
        assert name == "SIZES" or thing.__doc__
