"""Code on the documentation pages runs, and the pages list everything that exists."""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
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


def python_blocks(page: str) -> list[str]:
    """Return the Python code blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)


def docs_pages():
    """Import tools/docs_pages.py."""
    spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "tools" / "docs_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_custom_methods_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = python_blocks("docs/how-to-extend.md")
    assert len(blocks) == 7
    for block in blocks:
        exec(block, names)
    for kind in ("Halfway", "LogitsFirst", "LogProbability", "Blend"):
        body = next(block for block in blocks if f"class {kind}" in block).split("@dataclass")[1].split("\n\n\n")[0]
        assert len(body.strip().splitlines()) <= 14, kind

    model, train, circuit = (names[name] for name in ("model", "train", "circuit"))
    assert names["scores"].values.shape == (20, model.graph.n_edges) and circuit.n_edges <= 60
    gim = edgewise.score_edges(model, train, edgewise.score.Gim()).values
    np.testing.assert_allclose(names["gim_scores"].values, gim, rtol=1e-5, atol=1e-6 * np.abs(gim).max())
    # Halfway is the gradient of EAP-IG with two steps minus the gradient at the corrupted end.
    two, one = (edgewise.score_edges(model, train, edgewise.EapIg(steps)).values for steps in (2, 1))
    np.testing.assert_allclose(names["scores"].values, 2 * two - one, rtol=1e-3, atol=1e-4)
    result = edgewise.read_result("results/mine")
    assert [row.name for row in result.outcomes] == ["Greedy", "LogitsFirst + Shrinkage"]
    assert result.settings.scorer.name == "Halfway"
    assert result.settings.ablation.record() == {"name": "Blend", "share": 0.25}


@pytest.mark.usefixtures("few_steps")
def test_readme_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in python_blocks("README.md"):
        exec(block.replace("model, split)", "model, split, 20)"), {})
    assert "->" in capsys.readouterr().out


FAMILIES = [("scorers", SCORERS), *(
    ("how-to-choose", family) for family in (SOLVERS, METRICS, ABLATIONS, FAITHFULNESS, INTERVALS, MEASURES)
)]  # fmt: skip


@pytest.mark.parametrize(("page", "known"), FAMILIES)
def test_the_page_of_a_family_lists_every_name(page, known):
    page = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").lower()
    assert [name for name in known if f"`{name.lower()}`" not in page and f"**{name.lower()}**" not in page] == []


def test_assumptions_page_lists_every_scorer_and_ablation():
    page = (ROOT / "docs" / "assumptions.md").read_text(encoding="utf-8")
    assert [name for name in (*SCORERS, *ABLATIONS) if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))])
def test_measures_are_spelled_out_where_they_first_appear(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for measure in (edgewise.CMD, edgewise.CPR):
        first = re.search(rf"\b{measure.name}\b", text)
        assert first is None or measure.full_name in text[: first.end() + 120], measure


@pytest.mark.parametrize("page", ["docs/get-started.md", "docs/files.md", "docs/coming-from.md", "docs/positions.md"])
@pytest.mark.usefixtures("few_steps")
def test_python_of_pages_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in python_blocks(page):
        exec(block, {})
    assert capsys.readouterr().out.count("\n") > 1


API_PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))


def test_api_pages_have_every_public_name():
    overview = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    pages = "".join(path.read_text(encoding="utf-8") for path in API_PAGES)
    assert [n for n in edgewise.__all__ if f"::: edgewise.{n}\n" not in pages and f"`{n}`" not in overview] == []
    described = [name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", pages, re.M)]
    assert [name for name in described if f"`{name}`" not in overview] == []
    assert len(described) == len(set(described))


@pytest.mark.parametrize("page", API_PAGES, ids=lambda page: page.name)
def test_described_functions_list_their_parameters(page):
    for name in re.findall(r"^::: edgewise\.(\S+)", page.read_text(encoding="utf-8"), re.M):
        path, _, last = f"edgewise.{name}".rpartition(".")
        function = getattr(pkgutil.resolve_name(path), last)
        if inspect.isfunction(function) and len(inspect.signature(function).parameters) > 1:
            returns = inspect.signature(function).return_annotation
            assert "Parameters\n" in function.__doc__, name
            assert "Returns\n" in function.__doc__ or returns == "None", name


REFERENCE = ("api", "cli", "glossary")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_pages_are_short(page):
    """Reference pages and result tables may be longer."""
    assert page.stem in REFERENCE or len(page.read_text(encoding="utf-8").split()) <= 1500


def test_navigation_lists_exactly_the_pages():
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    generated = {"cli.md", *(f"tutorials/{name}.md" for name in docs_pages().TUTORIALS)}
    assert listed == pages | generated
    assert {f"tutorials/{path.stem}.md" for path in (ROOT / "docs" / "tutorials").glob("*.ipynb")} == generated - {
        "cli.md"
    }


def test_command_line_page_has_every_command_and_option():
    from edgewise.cli import COMMANDS, load_command

    page = docs_pages().command_line()
    for name in COMMANDS:
        command = load_command(name)
        part = page.split(f"\n## edgewise {name}\n")[1].split("\n## ")[0]
        assert all(f"`{option}`" in part for param in command.params for option in param.opts if option[0] == "-"), name
    assert "<" not in re.sub("`[^`]*`", "", page)


def test_aligned_names_of_a_docstring_become_a_list():
    text = "A summary.\n\nname      what it is,\n          at length\nother, more  two\n\nThe end."
    page = docs_pages().format_name_lists(text)
    assert "- `name`: what it is,\n    at length\n- `other`, `more`: two\n\nThe end." in page
    text = "Plain words. And more.\n\n    code  here"
    assert docs_pages().format_name_lists(text) == text


def test_viewer_page_lists_the_keys():
    source = (ROOT / "src/edgewise/report/viewer/assets/controls.js").read_text(encoding="utf-8")
    keys = dict(re.findall(r'\["(.+?)", "(.+?)"\],', source.partition("KEYS = [")[2].partition("];")[0]))
    assert len(keys) > 10
    listed = dict(re.findall(r"\| (.+?) \| (.+?) \|", (ROOT / "docs/viewer.md").read_text(encoding="utf-8")))
    assert {key: listed.get(key) for key in keys} == keys | {"?": "help"}
