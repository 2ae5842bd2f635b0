"""Untrusted text: names, paths and prompts are shown as plain text everywhere."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import edgewise as library
from edgewise import CMD, CPR, Bootstrap, EapIg, InputError, Settings, Shrinkage
from edgewise.cli.console import check_arguments, err, print_error_line, print_json, say
from edgewise.core.statistics import z_value
from edgewise.evaluate import MIB, Curve, resample
from edgewise.learn import TopKLearner
from edgewise.recipes import Outcome, Recipe
from edgewise.recipes.run_info import ModelAccuracy
from edgewise.report.comparisons import RecipeAreas, compare_recipes, recipe_pair_tables
from edgewise.report.formatting import one_line, safe_text, shorten
from edgewise.report.study_tables import markdown, terminal, write_study
from edgewise.report.tables import area_table, key_value_table, list_table
from edgewise.runtime import Session
from edgewise.score import MaskIg
from edgewise.study import Cell, Entry, Grid, Plan, Repeats, Study, StudyTable, TableRow

# The same fixture: a command in this process.
ESCAPES = "\x1b[31mred", "\x1b]0;title\x07", "back\rover", "\x9b31m", "bidi\u202egnp.exe", "\x00", "lone\udcff"
MARKUP = (
    "[bold]x", "[/]", "[/bold]", r"\[bold]", "end\\", "end\\\\", "[link=file:///x]", "[red", ":warning:",
    "[@click=x()]",
)  # fmt: skip
MATHS = "a$b$", "$x_1", "$$", r"\$", r"$\frac{1}$", "$x^$ and $y_$", "_hidden", "%s {0}", "名前 ☃", "e\u0301\u0302"
NAMES = [*ESCAPES, *MARKUP, *MATHS, "two\nlines", "", " ", "w" * 100_000]
STEERING = set(map(chr, range(32))) | set(map(chr, range(127, 160))) | {"\u202e"}
COUNTS = (3, 30, 60, 100)


def curve(seed: int) -> Curve:
    rng = np.random.default_rng(seed)
    full, empty = rng.normal(3, 0.1, 12), rng.normal(1, 0.1, 12)
    values = np.vstack([empty + share * (full - empty) + rng.normal(0, 0.05, 12) for share in (0.1, 0.6, 0.9, 1.0)])
    return Curve((0.1, 0.3, 0.6, 1.0), COUNTS, COUNTS, values, full, empty)


def rows(names: list[str]) -> list[Outcome]:
    curves = [(name, b, curve(n)) for n, name in enumerate(names) for b in (CMD, CPR)]
    return [Outcome(b, Recipe(alias=name), (), values) for name, b, values in curves]


def printed(*things: object, width: int = 200) -> str:
    """What a terminal gets, colours left out."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=True)
    for thing in things:
        console.print(thing)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A result of the smallest run there is."""
    model = library.load_model("demo")
    train, test = (library.load_task("ioi", model, split, 4) for split in ("train", "test"))
    result = library.discover(model, train, test, learn_budget=0, session=Session(progress=lambda *_: None))
    library.write_result(result, tmp_path_factory.mktemp("words") / "result")
    return tmp_path_factory.getbasetemp() / "words0" / "result"


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_tables_show_names_as_plain_text(name):
    about = ("CMD", name, name, name)
    entries = (Entry(*about, 0.5, 0.1, 0.4, 0.6, name), Entry(*about, 0.4, None, 0.3, 0.5, name))
    ours = TableRow(name, entries), TableRow(name, entries)
    table = StudyTable("main", name, ((name, name), ("ioi", "demo")), ours)
    group = RecipeAreas(name, name, CMD, MIB, {"Greedy": resample(curve(0), CMD), name: resample(curve(1), CMD)})
    tables = [
        *area_table(rows(["Greedy", name])[::2], CMD, 300),
        key_value_table(name, {name: name}),
        *recipe_pair_tables(compare_recipes([group], name, "Greedy"), 300),
        list_table([name, "b"], [(name, 1)]),
        *terminal(table, 300),
    ]
    text = printed(*tables, width=300)
    assert not (STEERING - {"\n"}) & set(text)
    if len(name) < 40 and name.strip() and "\n" not in name and name.isprintable():
        assert text.count(name) >= 8
    page = markdown(table)
    assert not (STEERING - {"\n"}) & set(page) and "<b" not in page.replace("<br>", "")
    page.encode("utf-8")


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_messages_are_one_line_of_plain_text(name, capsys):
    say(f"a {name} b", heading=name)
    print_error_line(name)
    with err.status(safe_text(name)):
        pass
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not (STEERING - {"\n"}) & set(text) and text.count("\n") == 1
    if name and name.isprintable():
        assert captured.out == f"{name}: a {name} b\n" and captured.err == f"{name}\n"


def test_figures_replace_links_and_never_write_through_them(edgewise, folder, tmp_path):
    mine, precious = tmp_path / "result", tmp_path / "precious"
    shutil.copytree(folder, mine)
    precious.write_text("mine")
    for kind in ("png", "svg"):
        (mine / "figures" / f"faithfulness.{kind}").unlink()
        (mine / "figures" / f"faithfulness.{kind}").symlink_to(precious)
    assert edgewise("report", mine)[0] == 0
    assert precious.read_text() == "mine" and not (mine / "figures" / "faithfulness.png").is_symlink()
    shutil.rmtree(mine / "figures")
    (tmp_path / "elsewhere").mkdir()
    for target in (tmp_path / "elsewhere", tmp_path / "nowhere"):
        (mine / "figures").symlink_to(target)
        code, _, words = edgewise("report", mine)
        assert code == 2 and "is a link" in words and not any((tmp_path / "elsewhere").iterdir())
        (mine / "figures").unlink()
    (mine / "figures").write_text("")
    assert "is not a folder" in edgewise("report", mine)[2]


def study(name: str) -> Study:
    plan = Plan((name,), (name,), seeds=1, grid=Grid((5,), (1.0,), (0.5,)))
    repeats = {
        b: tuple(
            Repeats(b, recipe.name, recipe, (curve(n),), (0,))
            for n, (goal, recipe) in enumerate(plan.recipes(0))
            if goal == b
        )
        for b in (CMD, CPR)
    }
    overlap = {b: {"greedy": (0.5,), "chosen": (0.6,)} for b in (CMD, CPR)}
    return Study(plan, (Cell(name, name, 20, {"test": 12}, ModelAccuracy(0.5, 0.5), repeats, repeats, overlap),))


@pytest.mark.parametrize("name", [r"[/]\e$x_1$|<b>{a}~^&%", "two\nlines\x1b[31m\udcff"])
def test_study_files_may_contain_any_name(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_study(study(name), tmp_path / "study")
    text = (tmp_path / "study" / "tables.md").read_text(encoding="utf-8")
    assert not (STEERING - {"\n"}) & set(text) and "<b>" not in text
    assert json.loads((tmp_path / "study" / "tables.json").read_text())["cells"][0]["task"] == name


def test_long_text_is_shortened_in_figures_only():
    assert shorten("w" * 99) == "w" * 14 + "…" + "w" * 14 and shorten("w" * 30) == "w" * 30
    assert one_line("a\nb\x1b") == r"a\nb\x1b" and safe_text("w" * 99).plain == "w" * 99


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 10**5000], ids=["nan", "inf", "huge"])
def test_numbers_without_json_form_raise_before_anything_is_printed(wrong, capsys):
    with pytest.raises(InputError, match="JSON can't represent"):
        print_json({"fine": [1] * 10_000, "wrong": [wrong]})
    assert capsys.readouterr().out == ""


def test_arguments_that_are_not_text_raise_an_error(edgewise):
    code, out, err = edgewise("tasks", "caf\udce9")
    assert (code, out) == (2, "") and err.startswith("error: argument 2, caf\\udce9, isn't text")
    check_arguments(["naïve", "名前"])


def run(*words: str, env: dict[str, str] | None = None, out: object = subprocess.PIPE) -> subprocess.CompletedProcess:
    start = "import sys; sys.argv[0] = 'edgewise'; from edgewise.cli import main; main()"
    given = {**os.environ, "PYTHONPATH": str(Path(library.__file__).parents[1]), **(env or {})}
    return subprocess.run([sys.executable, "-c", start, *words], stdout=out, stderr=subprocess.PIPE, env=given)


@pytest.mark.parametrize("words", [("tasks",), ("tasks", "--json")])
def test_a_closed_pipe_ends_a_command_silently(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = run(*words, out=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_unwritable_output_gives_a_one_line_error():
    with open("/dev/full", "w") as full:
        done = run("tasks", out=full)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"No space left" in done.stderr


def test_characters_missing_from_the_encoding_are_escaped(tmp_path):
    (tmp_path / "ioi_gpt2 é").mkdir()
    done = run("check", str(tmp_path), env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1 and rb"ioi_gpt2 \xe9" in done.stdout and done.stderr == b""


# Numbers that are far from any use, in the words of the value that they are given to.
FAR = [
    (lambda: Bootstrap(10**12), "at most 10000, not 1000000000000"),
    (lambda: Bootstrap(seed=10**30), "below 2\\^63"),
    (lambda: resample(curve(0), CMD, 10**12), "at most 10000"),
    (lambda: Shrinkage(1e308), "at most 1,000,000, but 1e\\+308"),
    (lambda: Shrinkage(float("nan")), "at least 0"),
    (lambda: EapIg(10**9), "at most 1,000, not"),
    (lambda: MaskIg(10**9), "at most 1,000, not"),
    (lambda: TopKLearner(steps=10**9), "from 1 to 1,000,000, not"),
    (lambda: TopKLearner(resamples=10**9), "at most 1,000, not"),
    (lambda: TopKLearner(seed=10**30), "below 2\\^63"),
    (lambda: Plan(seeds=10**9), "at most 1,000, not"),
    (lambda: Grid(pnr=tuple(np.linspace(0, 1, 10**6))), "at most 100 values of pnr, each once, but 1000000"),
    (lambda: Grid(tau=(5, 5)), "each once, but 2 were given, 1 of them"),
    (lambda: Grid(kappa=(float("nan"),)), "at least 0"),
    (lambda: Settings(memory="1e300GB"), "is not an amount of memory"),
]


@pytest.mark.parametrize("make, words", FAR, ids=range(len(FAR)))
def test_absurdly_large_numbers_raise_at_once(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("level", [0.9999999999999999, 1 - 1e-15, 5e-324, 0.5])
@pytest.mark.parametrize("interval", ["paper", "normal", "percentile"])
def test_any_level_between_0_and_1_has_an_interval(level, interval):
    graph = library.Graph(1, 1, 2)
    scores = library.EdgeScores(graph, np.random.default_rng(0).normal(size=(9, graph.n_edges)))
    statistics = library.summarise(scores, Bootstrap(20, interval, level))
    assert np.isfinite(statistics.low).all() and (statistics.low <= statistics.high).all()
    assert resample(curve(0), CMD).interval(level).low >= 0


def test_quantiles_of_the_normal_distribution_come_from_its_tail():
    """From tables: 1.645 at 90 %, 2.576 at 99 %; at 1 - 2^-53 the tail is 5.55e-17, beyond which 8.29 sd lie."""
    assert [round(z_value(level), 3) for level in (0.9, 0.99, 0.95)] == [1.645, 2.576, 1.96]
    assert z_value(1 - 2**-53) == pytest.approx(8.2924, abs=1e-3)
