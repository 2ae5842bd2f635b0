"""What the pages show is run, and what they list exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import edgewise
from edgewise.core.statistics import INTERVALS
from edgewise.evaluate import ABLATIONS, FAITHFULNESS, MEASURES
from edgewise.score import SCORERS
from edgewise.select import SOLVERS
from edgewise.tasks import METRICS

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    """The Python of a page, one piece per heading's block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)


def docs_pages():
    """The tool that makes pages of the code."""
    spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "tools" / "docs_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_methods_of_ones_own_run_straight_from_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    pieces = blocks("docs/how-to-extend.md")
    assert len(pieces) == 6
    for piece in pieces:
        exec(piece, names)
    for kind in ("Halfway", "LogitsFirst", "LogProbability", "Blend"):
        body = next(piece for piece in pieces if f"class {kind}" in piece).split("@dataclass")[1].split("\n\n\n")[0]
        assert len(body.strip().splitlines()) <= 14, kind

    model, train, circuit = (names[name] for name in ("model", "train", "circuit"))
    assert names["scores"].values.shape == (20, model.graph.n_edges) and circuit.n_edges <= 60
    # Halfway is the gradient of EAP-IG with two steps less that at the corrupted end.
    two, one = (edgewise.score_edges(model, train, edgewise.EapIg(steps)).values for steps in (2, 1))
    np.testing.assert_allclose(names["scores"].values, 2 * two - one, rtol=1e-3, atol=1e-4)
    result = edgewise.read_result("results/mine")
    assert [row.name for row in result.outcomes] == ["Greedy", "LogitsFirst + Shrinkage"]
    assert result.settings.scorer.name == "Halfway"
    assert result.settings.ablation.record() == {"name": "Blend", "share": 0.25}


def test_the_readmes_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for piece in blocks("README.md"):
        exec(piece.replace('"train")', '"train", 20)').replace('"test")', '"test", 20)'), {})
    assert "->" in capsys.readouterr().out


FAMILIES = [SCORERS, SOLVERS, METRICS, ABLATIONS, FAITHFULNESS, INTERVALS, MEASURES]


@pytest.mark.parametrize("known", FAMILIES, ids=lambda known: next(iter(known)))
def test_how_to_choose_knows_every_name(known):
    page = (ROOT / "docs" / "how-to-choose.md").read_text(encoding="utf-8").lower()
    assert [name for name in known if f"`{name.lower()}`" not in page and f"**{name.lower()}**" not in page] == []


def test_the_assumptions_page_knows_every_scorer_and_ablation():
    page = (ROOT / "docs" / "assumptions.md").read_text(encoding="utf-8")
    assert [name for name in (*SCORERS, *ABLATIONS) if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))])
def test_names_of_the_metrics_are_spelled_out_where_they_first_appear(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for measure in (edgewise.CMD, edgewise.CPR):
        first = re.search(rf"\b{measure.name}\b", text)
        assert first is None or measure.full_name in text[: first.end() + 120], measure


@pytest.mark.parametrize("page", ["docs/get-started.md", "docs/files.md"])
def test_the_python_of_pages_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for piece in blocks(page):
        exec(piece, {})
    assert capsys.readouterr().out.count("\n") > 1


def test_every_public_name_is_on_the_api_page():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [n for n in edgewise.__all__ if f"::: edgewise.{n}\n" not in page and f"`{n}`" not in page] == []


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    held = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    made = {"cli.md", *(f"tutorials/{name}.md" for name in docs_pages().TUTORIALS)}
    assert listed == held | made
    assert {f"tutorials/{path.stem}.md" for path in (ROOT / "docs" / "tutorials").glob("*.ipynb")} == made - {"cli.md"}


def test_the_command_lines_page_has_every_command_and_option():
    import typer

    from edgewise.cli import app

    page = docs_pages().command_line()
    for name, command in typer.main.get_command(app).commands.items():
        part = page.split(f"\n## edgewise {name}\n")[1].split("\n## ")[0]
        assert all(f"`{option}`" in part for param in command.params for option in param.opts if option[0] == "-"), name
    assert "<" not in re.sub("`[^`]*`", "", page)


def test_names_that_a_docstring_explains_become_a_list():
    text = "A promise.\n\nname      what it is,\n          at length\nother, more  two\n\nThe end."
    explained = docs_pages().explained(text)
    assert "- `name`: what it is,\n    at length\n- `other`, `more`: two\n\nThe end." in explained
    assert (
        docs_pages().explained("Plain words. And more.\n\n    code  here") == "Plain words. And more.\n\n    code  here"
    )


def test_the_viewers_keys_are_those_of_its_page():
    source = (ROOT / "src/edgewise/report/viewer/assets/controls.js").read_text(encoding="utf-8")
    keys = dict(re.findall(r'\["(.+?)", "(.+?)"\],', source.partition("KEYS = [")[2].partition("];")[0]))
    assert len(keys) > 10
    listed = dict(re.findall(r"\| (.+?) \| (.+?) \|", (ROOT / "docs/viewer.md").read_text(encoding="utf-8")))
    assert {key: listed.get(key) for key in keys} == keys | {"?": "help"}
