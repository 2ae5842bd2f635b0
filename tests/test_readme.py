"""README.md of result and study folders: lists every file and array, its examples run, names are escaped."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import pytest
from conftest import build, random_task
from markdown_it import MarkdownIt

from edgewise import CMD, CPR, InputError, Plan, Recipe, Settings, TopKLearner, discover, read_result, wrap_model
from edgewise.evaluate import RatioFaithfulness
from edgewise.io.atomic import README_MARK
from edgewise.recipes.recipe import GREEDY
from edgewise.report.formatting import markdown_code
from edgewise.report.readme import result_page, study_page, write_readme
from edgewise.report.write_result import write_result
from edgewise.study import Grid

HOSTILE = (
    "`x` <script>alert(1)</script>", "``", "a`b", "](javascript:alert(1)) [x](http://evil)", "![x](http://evil/p.png)",
    "<img src=x onerror=y>", "x\n\n# heading\n", "x\n```\ncode", "| a | b |", "&lt;b&gt;", "--> <b>", "\\`x\\`",
    " ", "",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A result with every file that there can be."""
    model, train, test = wrap_model(build("gpt2"), name="tiny"), random_task(5), random_task(4, seed=1)
    recipes = {b: (GREEDY, Recipe(learner=TopKLearner(b, steps=2, batch=2))) for b in (CMD, CPR)}
    found = discover(model, train, test, Settings(sizes=(0.05, 0.3, 1.0)), recipes)
    folder = tmp_path_factory.mktemp("readme") / "r"
    write_result(found, folder)
    assert {"learned.npz", "learned.json", "attention.npz", "viewer.html", "examples.json"} <= files(folder)
    return folder


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"README.md"}


def undescribed_files(folder):
    """The files that a README has no line about, apart from those in folders that it describes as a whole."""
    patterns = re.findall(r"^- `([^`]+)`:", (folder / "README.md").read_text(), re.M)
    folders = tuple(pattern for pattern in patterns if pattern.endswith("/"))
    paths = [PurePosixPath(name) for name in files(folder) if not name.startswith(folders)]
    return [path for path in paths if not any(path.match(pattern) for pattern in patterns)]


def test_the_readme_describes_every_file_and_array(folder):
    page = (folder / "README.md").read_text()
    assert undescribed_files(folder) == []
    for name in files(folder):
        if name.endswith(".npz") and name != "learned.npz":
            assert all(f"`{array}`" in page for array in np.load(folder / name)), name
    assert "integrated circuit performance ratio" in page and "integrated circuit-model distance" in page
    assert all(words in page for words in ("`tiny`", "eap-ig", "patching", "0.05, 0.3, 1", "5 examples", "4 examples"))


def test_the_readme_explains_the_definition_of_faithfulness(folder):
    result = read_result(folder)
    ratio = replace(result, settings=replace(result.settings, faithfulness=RatioFaithfulness()))
    assert "MIB's, 0 for the empty circuit" in result_page(result, folder)
    page = result_page(ratio, folder)
    assert "not on MIB's scale" in page and "0 for the empty circuit" not in page


def test_the_readme_does_not_list_missing_files(folder, tmp_path):
    (tmp_path / "run.json").touch()
    page = result_page(read_result(folder), tmp_path)
    assert "`run.json`" in page and "`viewer.html`" not in page and "`attention.npz`" not in page


def test_the_python_example_runs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S).group(1), names)
    assert names["scores"].values.shape == (5, names["result"].run.graph.n_edges)
    assert names["circuit"] in names["result"].best("CMD").circuits and "low" in names["intervals"]


def test_the_readme_of_a_study_lists_its_files_and_its_example_runs(edgewise, tmp_path, monkeypatch):
    out = tmp_path / "s"
    grids = ("--resamples-grid", "3", "--kappa-grid", "", "--pnr-grid", "")
    words = ("study", "--examples", 6, "--seeds", 1, *grids, "--out", out)
    assert edgewise(*words)[0] == 0
    page = (out / "README.md").read_text()
    assert undescribed_files(out) == [] and "- `cells/`:" in page
    assert "integrated circuit performance ratio" in page and "`demo`" in page and "`ioi`" in page
    with monkeypatch.context() as patch:
        patch.chdir(out)
        names: dict = {}
        exec(re.search(r"```python\n(.*?)```", page, re.S).group(1), names)
    assert names["study"].plan.models == ("demo",) and len(names["entries"]) > 0
    (out / "README.md").unlink()
    assert edgewise("report", out)[0] == 0 and (out / "README.md").read_text() == page
    assert edgewise(*words, "--overwrite")[0] == 0  # the page is one of its own files


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_breaks_out_of_its_markdown(folder, name):
    """Rendered, the pages have the elements that they have for harmless names, and the name as text."""
    result = read_result(folder)

    def rendered(name):
        run = replace(result.run, model=name, task=name, train=replace(result.run.train, split=name))
        rows = tuple(replace(row, recipe=replace(row.recipe, alias=name or " ")) for row in result.outcomes)
        plan = Plan((name or "x",), (f"{name}.jsonl",), grid=Grid(tau=(), kappa=(), pnr=()))
        page = result_page(replace(result, run=run, outcomes=rows), folder) + study_page(plan, folder)
        return MarkdownIt("commonmark").enable("table").render(page)

    html = rendered(name)
    assert re.findall("<[^>]*>", html) == re.findall("<[^>]*>", rendered("harmless"))
    seen = html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    assert name.strip().replace("\n", r"\n")[:20] in seen


def test_markdown_code_is_one_line_of_bounded_length():
    assert [markdown_code(text) for text in ("a`b``c", "`", " ")] == ["```a`b``c```", "`` ` ``", "`(empty)`"]
    assert len(markdown_code("w" * 100_000)) < 300
    assert "\n" not in markdown_code("a\nb") and "\x1b" not in markdown_code("\x1b[31m")


def test_a_users_readme_is_not_replaced(edgewise, folder, tmp_path):
    out, result = shutil.copytree(folder, tmp_path / "r"), read_result(folder)
    (out / "README.md").write_text("my notes")
    assert edgewise("report", out)[0] == 0 and (out / "README.md").read_text() == "my notes"
    with pytest.raises(InputError, match=r"README\.md"):
        write_result(result, out, overwrite=True)
    (out / "README.md").unlink()
    (out / "README.md").symlink_to(tmp_path / "elsewhere")
    assert write_readme(out, "a page") == []
    assert not (tmp_path / "elsewhere").exists()
    (out / "README.md").unlink()
    assert edgewise("report", out)[0] == 0 and (out / "README.md").read_text().startswith(README_MARK)
    write_result(result, out, overwrite=True)


def test_damaged_arrays_give_a_clear_error(edgewise, folder, tmp_path):
    out = shutil.copytree(folder, tmp_path / "r")
    (out / "attention.npz").write_bytes(b"PK\x05\x06 no archive")
    code, _, err = edgewise("report", out)
    assert code == 2 and "attention.npz" in err and "Traceback" not in err
