"""The architecture that the design promises: imports go one way, and the arithmetic needs no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import edgewise

SOURCE = Path(edgewise.__file__).parent
# Each line may import the lines above it, but not its neighbours.
LAYERS = [
    {"errors", "lazy", "progress", "version"},
    {"records", "reading"},
    {"methods", "disk"},
    {"graph"},
    {"formats"},
    {"circuit", "scores", "ranking"},
    {"statistics", "tasks", "store"},
    {"models"},
    {"engines"},
    {"score", "select", "evaluate"},
    {"learn"},
    {"study"},
    {"pipeline"},
    {"results"},
    {"report"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(("edgewise", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imports(path: Path, source: Path = SOURCE):
    """Every module of edgewise that a file imports: relative or absolute, inside functions, for type checkers too."""
    package = ["edgewise", *path.relative_to(source).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "edgewise")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module or "").split(".")] if node.module else base
            if base[:1] == ["edgewise"]:
                for alias in node.names:
                    whole = source.joinpath(*base[1:], alias.name)
                    is_module = whole.is_dir() or whole.with_suffix(".py").is_file()
                    yield ".".join([*base, alias.name] if is_module else base)


def wrong_imports(source: Path) -> list[str]:
    """Imports of a part by one that stands no higher."""
    wrong = []
    for path in sorted(source.rglob("*.py")):
        part = path.relative_to(source).with_suffix("").parts[0]
        for name in imports(path, source):
            other = name.split(".")[1] if "." in name else None
            if part == "__init__" or other == part:
                continue
            if other is None or HEIGHT[other] >= HEIGHT[part]:
                wrong.append(f"{path.relative_to(source)} imports {name}")
    return wrong


def cycle(source: Path) -> list[str]:
    """Modules that import each other in a circle, if there are any; the package itself, which offers all, left out."""
    graph = {
        module_name(path, source): {n for n in imports(path, source) if n != "edgewise"}
        for path in source.rglob("*.py")
        if path != source / "__init__.py"
    }
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done or name not in graph:
            return []
        for other in sorted(graph[name]):
            if found := visit(other, [*way, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


def test_imports_go_one_way_and_neighbours_do_not_know_each_other():
    assert not wrong_imports(SOURCE)


def test_no_module_imports_itself_in_a_circle():
    assert not cycle(SOURCE)


def test_these_tests_see_every_kind_of_import(tmp_path):
    """Absolute, in a function, for type checkers only, of a neighbour, and a circle within a package."""
    for number, (place, line) in enumerate(
        (
            ("select/one.py", "import edgewise.cli.run"),
            ("select/one.py", "from edgewise.score import Eap"),
            ("select/one.py", "def f():\n    from ..evaluate.curve import Curve"),
            ("tasks/one.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..models import Model"),
            ("graph.py", "from . import circuit"),
            ("study/one.py", "import edgewise"),
        )
    ):
        source = tmp_path / str(number)
        for name in ("select", "score", "evaluate", "cli", "models", "tasks", "study"):
            (source / name).mkdir(parents=True)
        (source / "circuit.py").write_text("")
        (source / place).write_text(line)
        assert len(wrong_imports(source)) == 1, line
    circle = tmp_path / "circle" / "models"
    circle.mkdir(parents=True)
    (circle / "one.py").write_text("from .two import a")
    (circle / "two.py").write_text("def f():\n    from .one import b")
    assert cycle(circle.parent) == ["edgewise.models.one", "edgewise.models.two", "edgewise.models.one"]


def test_every_module_has_its_place():
    parts = {p.stem for p in SOURCE.glob("*.py")} | {p.name for p in SOURCE.iterdir() if any(p.glob("*.py"))}
    assert parts - {"__init__", "__pycache__"} == set(HEIGHT)


def test_only_models_knows_the_transformer_library():
    knowing = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.split(".")[0] == "transformers" for name in names):
                knowing.add(path.relative_to(SOURCE).parts[0])
    assert knowing == {"models"}


def test_functions_are_short_but_for_declarations_of_options():
    long = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                # A command's options are its signature; what it does begins behind its docstring.
                first = node.body[1] if node.name == "command" and len(node.body) > 1 else node
                lines = node.end_lineno - first.lineno + 1
                long += [f"{path.relative_to(SOURCE)}: {node.name} has {lines} lines"] * (lines > 60)
    assert not long


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
from edgewise import CMD, Bootstrap, Circuit, Curve, EdgeScores, Graph, Ilp, SelectionProblem, solve, summarise
graph = Graph(2, 2, 4)
scores = EdgeScores(graph, np.random.default_rng(0).normal(size=(9, graph.n_edges)))
problem = SelectionProblem.of(summarise(scores, Bootstrap()).ranking, CMD.rank, 12, 0.5)
assert solve(problem, Ilp()).kept == 12
curve = Curve((0.1, 1.0), (1, 2), (1, 2), np.ones((2, 3)), np.ones(3), np.zeros(3))
assert curve.area(CMD) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_exist_and_say_what_they_promise():
    assert len(set(edgewise.__all__)) == len(edgewise.__all__)
    for name in edgewise.__all__:
        thing = getattr(edgewise, name)
        assert name == "SIZES" or thing.__doc__
