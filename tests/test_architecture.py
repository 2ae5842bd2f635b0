"""The architecture: imports go one way, only models/ knows the transformer library, the arithmetic needs no torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from fuzz import valid

import edgewise

SOURCE = Path(edgewise.__file__).parent
GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
# "a, b < c": c may import a and b, which may not import each other.
ORDER = re.search(r"^    (errors .* < cli)$", GUIDE, re.M)
LEVEL = {name: level for level, names in enumerate(ORDER[1].split(" < ")) for name in names.split(", ")}
LEVEL |= {"version": -1, "__main__": len(LEVEL)}


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(("edgewise", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imported_modules(path: Path, source: Path = SOURCE):
    """Yield every module of edgewise that a file imports, in functions and for type checkers too."""
    package = ["edgewise", *path.relative_to(source).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "edgewise")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module or "").split(".")] if node.module else base
            if base[:1] == ["edgewise"]:
                for alias in node.names:
                    target = source.joinpath(*base[1:], alias.name)
                    is_module = target.is_dir() or target.with_suffix(".py").is_file()
                    yield ".".join([*base, alias.name] if is_module else base)


def wrong_imports(source: Path) -> list[str]:
    """Return imports of a part by a part that isn't on a higher level."""
    wrong = []
    for path in sorted(source.rglob("*.py")):
        part = path.relative_to(source).with_suffix("").parts[0]
        for name in imported_modules(path, source):
            other = name.split(".")[1] if "." in name else None
            if part == "__init__" or other == part:
                continue
            if other is None or LEVEL[other] >= LEVEL[part]:
                wrong.append(f"{path.relative_to(source)} imports {name}")
    return wrong


def find_cycle(source: Path) -> list[str]:
    """Return modules that import each other in a circle, if there are any."""
    graph = {
        module_name(path, source): {name for name in imported_modules(path, source) if name != "edgewise"}
        for path in source.rglob("*.py")
        if path != source / "__init__.py"
    }
    visited: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in visited or name not in graph:
            return []
        for other in sorted(graph[name]):
            if cycle := visit(other, [*path, name]):
                return cycle
        visited.add(name)
        return []

    return next((cycle for name in sorted(graph) if (cycle := visit(name, []))), [])


def test_imports_follow_the_order_in_the_contributing_guide():
    assert not wrong_imports(SOURCE)


def test_no_modules_import_each_other_in_a_circle():
    assert not find_cycle(SOURCE)


def test_these_tests_find_every_kind_of_import(tmp_path):
    """Absolute, in a function, for type checkers only, of the same level, and a circle within a package."""
    for number, (place, line) in enumerate(
        (
            ("select/a.py", "import edgewise.cli.run"),
            ("select/a.py", "from edgewise.score import Eap"),
            ("select/a.py", "def f():\n    from ..evaluate.curve import Curve"),
            ("tasks/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..models import Model"),
            ("graph.py", "from . import pipeline"),
            ("study/a.py", "import edgewise"),
        )
    ):
        source = tmp_path / str(number)
        for name in ("select", "score", "evaluate", "cli", "models", "tasks", "study"):
            (source / name).mkdir(parents=True)
        (source / "pipeline.py").write_text("")
        (source / place).write_text(line)
        assert len(wrong_imports(source)) == 1, line
    package = tmp_path / "circle" / "models"
    package.mkdir(parents=True)
    (package / "a.py").write_text("from .b import x")
    (package / "b.py").write_text("def f():\n    from .a import y")
    assert find_cycle(package.parent) == ["edgewise.models.a", "edgewise.models.b", "edgewise.models.a"]


def test_the_order_names_every_part():
    parts = {p.stem for p in SOURCE.glob("*.py")} | {p.name for p in SOURCE.iterdir() if any(p.glob("*.py"))}
    assert parts - {"__init__", "__pycache__"} == set(LEVEL)
    listed = set(re.findall(r"^  (\w+)(?:/|\.py)", GUIDE.split("## Where things are")[1], re.M))
    assert parts - {"__init__", "__main__", "__pycache__", "version"} <= listed


def test_only_models_imports_the_transformer_library():
    importing = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.split(".")[0] == "transformers" for name in names):
                importing.add(path.relative_to(SOURCE).parts[0])
    assert importing == {"models"}


# Torch takes seconds to import. An ImportError might be caught on the way, an AssertionError is not.
WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise AssertionError(f"{sys.argv} loads {name}")
sys.meta_path.insert(0, NoTorch())
import numpy as np
from edgewise import CMD, Bootstrap, Circuit, Discovery, EdgeScores, Graph, Ilp, SelectionProblem, solve, summarise
from edgewise.evaluate import Curve
assert not {"pandas", "matplotlib"} & set(sys.modules)
graph = Graph(2, 2, 4)
scores = EdgeScores(graph, np.random.default_rng(0).normal(size=(9, graph.n_edges)))
problem = SelectionProblem.of(summarise(scores, Bootstrap()).ranking, CMD.rank, 12, 0.5)
assert solve(problem, solver=Ilp()).n_kept == 12
curve = Curve((0.1, 1.0), (1, 2), (1, 2), np.ones((2, 3)), np.ones(3), np.zeros(3))
assert curve.area(CMD) == 0

from edgewise.cli import COMMANDS, main
from edgewise.report import figures
figures.FIGURES = dict([*figures.FIGURES.items()][:1])
for words in ["--help", *(f"{name} --help" for name in COMMANDS), *sys.argv[1:]]:
    sys.argv = ["edgewise", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
"""


def test_what_needs_no_model_imports_no_torch(tmp_path):
    """Selection and measures, every page of help, and commands that read files."""
    for name, held in {"run": valid.result(), "study": valid.study(), "scores": valid.scores()}.items():
        for path, data in held.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_bytes(data)
    commands = [
        "tasks", "show run", "view run", "report run", "compare run", "compare run Learned Greedy", "report study",
        "compare study", "select scores --edges 9 --out circuit.json", "convert scores scores.json",
        "convert scores.json again", "export circuit.json --out circuit.dot",
    ]  # fmt: skip
    words = [sys.executable, "-c", WITHOUT_TORCH, *commands]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--ablation" in done.stdout and "--edges" in done.stdout


def test_public_names_are_unique_and_documented():
    assert len(set(edgewise.__all__)) == len(edgewise.__all__)
    assert all(getattr(edgewise, name).__doc__ for name in edgewise.__all__)
