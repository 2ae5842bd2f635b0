"""README.md of result and study folders: lists every file and array, its examples run, names are escaped."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import test_cli
from conftest import build, random_task
from markdown_it import MarkdownIt

from edgewise import (
    CMD,
    CPR,
    InputError,
    Plan,
    Recipe,
    Settings,
    TopKLearner,
    discover,
    read_result,
    wrap_model,
    write_result,
)
from edgewise.evaluate import RatioFaithfulness
from edgewise.io.arrays import read_headers
from edgewise.io.atomic import README_MARK
from edgewise.recipes.recipe import GREEDY
from edgewise.report.formatting import markdown_code
from edgewise.report.readme import FolderFile, result_page, study_page, write_result_readme
from edgewise.study import Grid

edgewise = test_cli.edgewise
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
    assert {"learned.npz", "attention.npz", "viewer.html", "examples.json"} <= files(folder)
    return folder


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"README.md"}


def test_the_readme_lists_every_file_and_array_with_shape_and_dtype(folder):
    page = (folder / "README.md").read_text()
    for name in files(folder):
        assert f"`{name}`" in page, name
        if name.endswith(".npz") and not name.startswith("circuits/"):  # those are alike
            for array, held in np.load(folder / name).items():
                shape = " × ".join(f"{length:,}" for length in held.shape)
                assert re.search(rf"- `{array}`, {held.dtype}, {shape}: .{{9}}", page), (name, array)
    scores = np.load(folder / "scores" / "scores.npy")
    assert f"{scores.dtype}, {scores.shape[0]} × {scores.shape[1]:,}: `[example, edge]`" in page
    assert "integrated circuit performance ratio" in page and "integrated circuit-model distance" in page
    assert all(words in page for words in ("`tiny`", "eap-ig", "patching", "0.05, 0.3, 1", "5 examples", "4 of"))


def test_the_readme_explains_the_definition_of_faithfulness(folder):
    result = read_result(folder)
    ratio = replace(result, settings=replace(result.settings, faithfulness=RatioFaithfulness()))
    assert "MIB's, 0 for the empty circuit" in result_page(result, [])
    page = result_page(ratio, [])
    assert "not on MIB's scale" in page and "0 for the empty circuit" not in page


def test_the_readme_does_not_list_missing_files(folder):
    result = read_result(folder)
    page = result_page(result, [FolderFile("run.json", {})])
    assert "`run.json`" in page and "viewer.html" not in page and "attention.npz" not in page


def test_the_python_example_runs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S).group(1), names)
    assert names["scores"].values.shape == (5, names["result"].run.graph.n_edges)
    assert len(names["circuits"]) == len(names["result"].settings.sizes) and "low" in names["intervals"]


def test_the_readme_of_a_study_lists_its_files(edgewise, tmp_path):
    out = tmp_path / "s"
    words = (
        "study",
        "--examples",
        6,
        "--seeds",
        1,
        "--resamples-grid",
        "3",
        "--kappa-grid",
        "",
        "--pnr-grid",
        "",
        "--out",
    )
    assert edgewise(*words, out)[0] == 0
    page = (out / "README.md").read_text()
    assert all(f"`{name}`" in page for name in files(out) if not name.startswith("store/")) and "`store/`" in page
    assert "integrated circuit performance ratio" in page and "`demo`" in page and "`ioi`" in page
    (out / "README.md").unlink()
    assert edgewise("report", out)[0] == 0 and (out / "README.md").read_text() == page
    assert edgewise(*words, out, "--overwrite")[0] == 0  # the page is one of its own files


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_breaks_out_of_its_markdown(folder, name):
    """Rendered, the pages have the elements that they have for harmless names, and the name as text."""
    result = read_result(folder)

    def rendered(name):
        run = replace(result.run, model=name, task=name, train=replace(result.run.train, split=name))
        rows = tuple(replace(row, recipe=replace(row.recipe, alias=name or " ")) for row in result.outcomes)
        header = read_headers(folder / "learned.npz")["CMD"]
        pieces = [
            FolderFile("run.json", {}),
            FolderFile(f"circuits/{name}-0.1.npz", {}),
            FolderFile("learned.npz", {name or "x": header}),
        ]
        plan = Plan((name or "x",), (f"{name}.jsonl",), grid=Grid(tau=(), kappa=(), pnr=()))
        page = result_page(replace(result, run=run, outcomes=rows), pieces) + study_page(plan, pieces)
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
    model = wrap_model(build("gpt2"), name="tiny")
    found = discover(model, random_task(3), random_task(3, seed=1), Settings(sizes=(0.1, 1.0)))
    out = tmp_path / "r"
    write_result(found, out)
    (out / "README.md").write_text("my notes")
    assert edgewise("report", out)[0] == 0 and (out / "README.md").read_text() == "my notes"
    with pytest.raises(InputError, match=r"README\.md"):
        write_result(found, out, overwrite=True)
    (out / "README.md").unlink()
    (out / "README.md").symlink_to(tmp_path / "elsewhere")
    write_result_readme(out, read_result(out))
    assert not (tmp_path / "elsewhere").exists()
    (out / "README.md").unlink()
    assert edgewise("report", out)[0] == 0 and (out / "README.md").read_text().startswith(README_MARK)
    write_result(found, out, overwrite=True)


def test_damaged_arrays_give_a_clear_error(edgewise, folder, tmp_path):
    out = tmp_path / "r"
    shutil.copytree(folder, out)
    (out / "attention.npz").write_bytes(b"PK\x05\x06 no archive")
    code, _, err = edgewise("report", out)
    assert code == 2 and "attention.npz" in err and "Traceback" not in err
