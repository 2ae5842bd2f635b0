"""Output of the commands in terminals, pipes and logs: nothing is cut; --quiet and --verbose."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from types import ModuleType

import pytest
from commands import refused, run_command, score_file
from rich.console import Console

from edgewise import CMD, read_result
from edgewise.cli import console
from edgewise.report.study_tables import markdown, terminal
from edgewise.runtime import Session
from edgewise.runtime.progress import can_draw, progress_bars
from edgewise.study import Entry, StudyTable, TableRow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run and what it printed at 60 columns."""
    place = tmp_path_factory.mktemp("run") / "result"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console.out, "_width", 60)
        code, out, err = run_command("run", "--examples", 12, "--stability", 0, "--out", place)
    assert code == 0, err
    (place.parent / "out").write_text(out)
    (place.parent / "err").write_text(err)
    return place


def test_a_run_prints_a_circuit_its_curve_and_the_files(folder):
    out = (folder.parent / "out").read_text()
    assert "…" not in out and "-0.0000" not in out
    table = out.split("CMD, lower is better")[1].split("best: ")[0]
    assert max(map(len, table.splitlines())) <= 60
    # Marks survive the pipe.
    areas = {outcome.name: outcome.area for outcome in read_result(folder).of(CMD)}
    best = min(areas, key=areas.get)
    assert re.search(rf"^{re.escape(best)} +{areas[best]:.4f}  best", table, re.M)
    assert "strongest edges" in out and "heads and MLPs" in out and re.search(r"^100 % +1.00  #", out, re.M)
    listed = re.search(r"^results in .*: (.*)$", out, re.M)[1].split(", ")
    assert {name.rstrip("/") for name in listed} == {path.name for path in folder.iterdir()}


def test_a_log_says_where_the_work_is(folder):
    lines = (folder.parent / "err").read_text().splitlines()
    for stage in ("score", "select", "evaluate (test)", "evaluate (validation)"):
        ours = [line for line in lines if line.startswith(f"{stage}: ")]
        assert re.fullmatch(rf"{re.escape(stage)}: 0 of [\d,]+", ours[0])
        assert re.fullmatch(rf"{re.escape(stage)}: ([\d,]+) of \1 in \d:\d\d:\d\d", ours[-1]) and len(ours) == 2


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "words",
    [("compare", "{}"), ("compare", "{}", "ILP + pnr", "GREEDY"), ("compare", "{}", "{}"),
     ("show", "{}"), ("show", "{}", "--measure", "cpr", "--recipe", "ilp"), ("select", "{}", "--size", "0.01,0.1"),
     ("select", "{}", "--size", "0.1", "--pnr", "0.6"), ("evaluate", "{}/circuits/cmd-0.05.npz", "--examples", "4"),
     ("compare", "{}/circuits/cmd-0.1.npz", "{}/circuits/cpr-0.1.npz"), ("models",), ("models", "demo"), ("tasks",)],
    ids=" ".join,
)  # fmt: skip
def test_no_number_is_cut_however_narrow_the_terminal(edgewise, folder, monkeypatch, words, columns):
    monkeypatch.setattr(console.out, "_width", columns)
    code, out, err = edgewise(*(word.replace("{}", str(folder)) for word in words))
    assert code == 0 and "…" not in out and "..." not in out.replace("mib/...", ""), err
    assert "-0.0000" not in out
    # An interval that a table breaks has only one of its brackets in its line.
    assert all(line.count("[") == line.count("]") for line in out.splitlines())
    for table in re.findall(r"^(?:[─┏┌].*|.*─{5}.*)\n(?:.+\n)*", out, re.M):
        body = table.split("\n\n")[0]
        assert max(map(len, body.splitlines()[:3])) <= columns


def test_text_and_json_show_the_same_circuit(edgewise, folder):
    words = ("show", folder, "--recipe", "greedy", "--size", 0.1, "--top", 3)
    code, out, _ = edgewise(*words)
    record = json.loads(edgewise(*words, "--json")[1])
    assert code == 0 and len(record["strongest"]) == len(record["nodes"]) == 3
    assert all(part["name"] in out for part in (*record["strongest"], *record["nodes"]))
    assert f"{record['edges']} of {record['of']} edges" in out and record["size"]["share"] == 0.1
    assert f"faithfulness: {record['size']['faithfulness']:.4f}" in out
    assert sum(record["kinds"].values()) == sum(record["signs"].values()) == record["edges"]


def test_show_and_compare_give_clear_errors(edgewise, folder, tmp_path):
    circuit = folder / "circuits" / "cmd-0.1.npz"
    for words, expected in (
        (("show", folder / "scores"), "edgewise select"),
        (("show", folder, "--size", 0.3), "0.001, 0.002"),
        (("show", circuit, "--recipe", "ILP"), "choose from a result folder"),
        (("show", circuit, "--size", "5%"), "choose from a result folder"),
        (("compare", circuit), "give another one"),
        (("compare", folder, folder, "Greedy"), "omit 'Greedy'"),
        (("compare", folder, tmp_path / "none"), "none"),
        (("compare", folder, "magic"), "unknown recipe 'magic'"),
        (("export", circuit), "no format was given"),
        (("export", circuit, "--to", "png"), "'dot', 'graphml', 'cytoscape'"),
        (("export", circuit, "--to", "dot", "--json"), "give --out"),
        (("export", circuit, "--to", "dot", "--out", circuit, "--overwrite"), "is an input"),
    ):
        assert expected in refused(edgewise, *words)


def test_export_is_atomic_and_does_not_overwrite(edgewise, folder, tmp_path):
    target = tmp_path / "circuit.graphml"
    words = ("export", folder, "--recipe", "ILP", "--size", "5%", "--out", target)
    code, out, _ = edgewise(*words, "--json")
    record = json.loads(out)
    assert code == 0 and record["format"] == "graphml" and target.read_text().count("<edge ") == record["edges"]
    assert "--overwrite" in refused(edgewise, *words[:-3], "10%", *words[-2:])
    assert edgewise(*words, "--overwrite")[0] == 0 and [path.name for path in tmp_path.iterdir()] == [target.name]
    assert edgewise(*words[:-2], "--to", "graphml")[1] == target.read_text()


@pytest.mark.parametrize("words", [("ILP", "Greedy", "--size", 0.1), ("ILP", "Greedy"), ("{}",)], ids=str)
def test_json_has_the_edges_that_the_terminal_shows(edgewise, folder, words):
    words = ("compare", folder, *(folder if word == "{}" else word for word in words))
    record, out = json.loads(edgewise(*words, "--json")[1]), edgewise(*words)[1]
    circuits = [pair["circuits"] for pair in record] if isinstance(record, list) else [record["circuits"]]
    lines = [f"shared: {c['shared']}; only here: {c['only_here']}; only there: {c['only_there']}" for c in circuits]
    assert [line.removeprefix("edges: ") for line in out.splitlines() if "only here: " in line] == lines


def test_rules_have_no_gap_and_names_may_be_in_any_case(edgewise, tmp_path):
    given = score_file(tmp_path / "scores.json")
    for sizes in ("20", "20,40"):
        for solver, has_gap in (("GREEDY", False), ("Top-N", False), ("Ilp", True)):
            words = ("select", given, "--edges", sizes, "--solver", solver, "--rank", "Absolute")
            code, out, err = edgewise(*words)
            assert code == 0, err
            assert bool(re.search(r"\bgap\b", out.split("total value")[0].split("heuristic:")[0])) == has_gap
            result = json.loads(edgewise(*words, "--json")[1])
            assert all("gap" in circuit for circuit in result.get("circuits", [result]))


def test_quiet_explains_nothing(edgewise, folder):
    loud, quiet = (edgewise(*words, "compare", folder, "ILP + pnr", "greedy")[1] for words in ((), ("--quiet",)))
    omitted = [line for line in loud.splitlines() if line not in quiet.splitlines()]
    explanations = ("excludes 0", "sorted by absolute score", "the best recipe")
    assert omitted and all(any(text in line for text in explanations) for line in omitted)
    assert "only here" in quiet and set(quiet.splitlines()) < set(loud.splitlines())


def test_quiet_does_not_change_results_and_verbose_says_more(edgewise, tmp_path):
    words = ("score", "--examples", 3, "--json", "--overwrite", "--out", tmp_path / "s")
    for before, after in ((["--quiet"], []), ([], ["-q"])):
        code, out, err = edgewise(*before, *words, *after)
        assert code == 0 and json.loads(out)["examples"] == 3 and err == ""
    for before, after in ((["--verbose"], []), ([], ["--verbose"])):
        code, out, err = edgewise(*before, *words, *after)
        assert code == 0 and json.loads(out)["examples"] == 3
        assert "torch 2" in err and "Python 3" in err and "loaded demo in" in err
    assert "opposites" in refused(edgewise, "--quiet", "--verbose", *words)
    assert "torch 2" not in edgewise("--verbose", *words, "--quiet")[2]  # the option nearer to the command counts
    assert "score: 0 of 3" in edgewise("--quiet", *words, "--verbose")[2]
    # Errors are printed even with --quiet.
    assert "mcqa" in refused(edgewise, "--quiet", "score", "--task", "no", "--out", tmp_path / "t")
    assert edgewise(*words)[2] != ""


def test_a_shell_completes_the_options_of_a_command():
    words = {"_EDGEWISE_COMPLETE": "complete_bash", "COMP_WORDS": "edgewise show --", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "edgewise"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | words)
    assert done.stdout.split()[:2] == ["--recipe", "--measure"] and done.stderr == ""


def test_progress_lines_report_the_start_the_end_and_the_time_left(monkeypatch):
    now, file = [0.0], io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with progress_bars(lambda: now[0]) as report:

        def after(seconds, *words):
            now[0] += seconds
            report(*words)
            text = file.getvalue()
            file.seek(0)
            file.truncate()
            return text

        assert after(0, "score", 0, 400) == "score: 0 of 400\n"
        assert after(0, "score", 0, 400) == ""
        assert after(4, "score", 100, 400) == ""  # too soon after the start
        assert after(8, "score", 300, 400) == "score: 300 of 400 in 0:00:12, about 0:00:04 left\n"
        assert after(8, "score", 310, 400) == ""
        assert after(380, "score: loss 0.1", 311, 400).endswith(" left, loss 0.1\n")
        assert after(50, "score", 312, 400) == ""  # less than a quarter of the time so far
        assert after(3150, "score", 400, 400) == "score: 400 of 400 in 1:00:00\n"
        assert after(0, "score", 400, 400) == ""  # reported twice
        assert after(1, "score", 100, 400) == "score: 100 of 400\n"  # it resumes what was stored
        assert after(30, "score", 300, 400).startswith("score: 300 of 400 in 0:00:30")
        assert after(1, "select", 5, 5) == "select: 5 of 5\n"


def test_bars_have_a_time_left_in_a_terminal_also_the_second_time(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    file = Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bars() as report:
        for _ in range(2):
            for done in range(3):
                report("learn: loss 0.5", done, 2)
        report("learn", 1, 2)
    plain = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", file.getvalue())
    last = [line for line in plain.splitlines() if "learn" in line][-1]
    assert "1/2" in last and "left -:--:--" in last  # another one began, whose speed isn't known yet


def test_a_notebook_without_ipywidgets_has_lines_instead_of_bars(monkeypatch, capsys, recwarn):
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr("edgewise.runtime.progress.find_spec", lambda name: None)
    with Session().reporting() as session:
        session.report("score", 0, 4)
        session.report("score", 4, 4)
    assert capsys.readouterr().err == "score: 0 of 4\nscore: 4 of 4 in 0:00:00\n" and not recwarn.list
    monkeypatch.setattr("edgewise.runtime.progress.find_spec", lambda name: name)
    assert can_draw()


def study_table(is_difference: bool) -> StudyTable:
    numbers = {"p": 0.5 if is_difference else None, "spread": 0.1}
    rows = []
    for label, value, note, verdict in (
        ("Greedy", 0.5, "", ""), ("ILP", -0.4, "tau 5, PNR 0.5", "better"),
        ("None", -0.00001, "a_b", "no significant difference"), ("Top-n", 0.7, "", "worse"),
    ):  # fmt: skip
        ends = {"low": value - 0.2, "high": value + 0.2}
        entry = Entry("CMD", label, "ioi", "demo", value, note=note, verdict=verdict, **numbers, **ends)
        rows.append(TableRow(label, (entry,)))
    table = StudyTable("main", "caption", (("ioi", "demo"),), tuple(rows))
    return table if is_difference else table.mark_best()


@pytest.mark.parametrize("is_difference", [False, True])
def test_study_tables_have_minus_signs_and_name_the_chosen_recipe(is_difference):
    page = markdown(study_table(is_difference))
    assert "−0.4000" in page and "[" in page and not re.search(r"-\d", page) and "tau 5, PNR 0.5" in page
    assert ("better −0.4000" if is_difference else "best better **−0.4000**") in page and "−0.0000" not in page


@pytest.mark.parametrize("width", [40, 60, 100])
def test_study_tables_mark_entries_with_words(width):
    def text(table):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        for part in terminal(table, width):
            console.print(part)
        return console.file.getvalue()

    areas, differences = text(study_table(False)), text(study_table(True))
    assert "best better -0.4000" in areas and re.search(r"^Greedy +0\.5000", areas, re.M)
    assert "best" not in differences
    for words in (areas, differences.replace("+", "")):
        assert "worse 0.7000" in words and re.search(r"^None +-?0\.0000", words, re.M)
    assert "better -0.4000" in differences and "[-0.6000, -0.2000]" in differences
    assert max(map(len, (areas + differences).splitlines())) <= width
