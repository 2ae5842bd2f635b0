"""Studies: the paper's tables from one command, which can be killed at any moment."""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import test_cli
from rich.console import Console
from test_cli import refused
from test_tasks import write

from edgewise import CMD, CPR, Bootstrap, Curve, Greedy, Ilp, InputError, Shrinkage, Store, TopN, load_model, load_task
from edgewise.recipes import curves
from edgewise.recipes.recipe import GREEDY, Recipe, paper_recipes
from edgewise.recipes.settings import Settings, as_published
from edgewise.recipes.stability import mean_overlap, recipe_overlap
from edgewise.report.study_tables import latex, markdown, terminal
from edgewise.runtime.session import Session
from edgewise.runtime.store import Unit, write_unit_record
from edgewise.study import (
    Entry,
    Grid,
    Plan,
    Repeats,
    StudyTable,
    TableRow,
    open_study,
    read_study,
    run,
    run_study,
    study_tables,
)
from edgewise.study.folder import read_plan
from edgewise.tasks import load_third

# The same fixture: a command in this process.
edgewise = test_cli.edgewise
SMALL = ("--examples", "8", "--pnr-grid", ".5,.8", "--resamples-grid", "5,10", "--kappa-grid", "1")
TABLES = ("tables.md", "tables.csv", "tables.tex", "tables.json", "curves.csv", "figure.png", "figure.svg")
PAPER = ["Greedy", "ILP", "Bootstrapping", "PNR", "ILP + Bootstrapping", "ILP + PNR", "Bootstrapping + PNR",
         "ILP + Bootstrapping + PNR"]  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def test_recipes_have_the_names_of_the_papers_tables():
    found = paper_recipes(Bootstrap(), 0.5)
    assert [recipe.name for recipe in found[CMD]] == PAPER
    assert [recipe.name for recipe in found[CPR]] == [name for name in PAPER if "PNR" not in name]
    assert Recipe(Greedy(), pnr=0.5).name == "Greedy + PNR" and Recipe(TopN()).name == "Top-n"
    assert Recipe(Ilp(), Shrinkage(2), 0.4).name == "ILP + Shrinkage + PNR"
    assert Recipe(Ilp(), Shrinkage(2), 0.4).parameter_text == "kappa 2, PNR 0.4"
    recipe = Recipe(Ilp(), Bootstrap(15))
    assert recipe.parameter_text == "tau 15" and recipe.parameters == {"tau": 15}


def test_the_grid_is_the_papers_times_the_filters():
    grid, bootstrap = Grid(), Bootstrap(seed=4)
    cmd, cpr = grid.recipes(CMD, bootstrap), grid.recipes(CPR, bootstrap)
    assert cmd[0] == cpr[0] == GREEDY and len(set(cmd)) == len(cmd) == 3 * 7 * 10 and len(cpr) == 3 * 7
    assert {recipe.filter.seed for recipe in cmd if isinstance(recipe.filter, Bootstrap)} == {4}
    assert not any(recipe.has_pnr for recipe in cpr)
    paper = Grid(kappa=())
    assert {recipe.name for recipe in paper.recipes(CMD, bootstrap)} > set(PAPER)


def test_seeds_share_the_examples_of_a_data_set_but_not_of_a_generator():
    plan = Plan(("demo",), ("ioi", "mib/ioi", "own.csv"), 3)
    assert plan.data_seeds("ioi") == {0: (0,), 1: (1,), 2: (2,)}
    assert plan.data_seeds("mib/ioi") == plan.data_seeds("own.csv") == {0: (0, 1, 2)}


def test_plans_that_make_no_sense_are_refused():
    for wrong, words in (
        ({"seeds": 0}, "at least 1"),
        ({"models": ()}, "at least one"),
        ({"tasks": ("a", "a")}, "once"),
    ):
        with pytest.raises(InputError, match=words):
            Plan(**({"models": ("demo",), "tasks": ("ioi",)} | wrong))
    with pytest.raises(InputError, match="from 0 to 1"):
        Grid(pnr=(1.5,))
    for wrong, words in (((Greedy(), "magic"), "not 'magic'"), ((Ilp(),), "begin with it"), ((Greedy,), "not Greedy")):
        with pytest.raises(InputError, match=words):
            Grid(solvers=wrong)


def test_a_study_fills_the_papers_tables_and_goes_on_without_a_model(edgewise, tmp_path, monkeypatch):
    calls = {"score": 0, "evaluate": 0}
    for name, verb in (("score", curves.score_edges), ("evaluate", curves.evaluate_circuits)):

        def counted(*given, name=name, verb=verb, **more):
            calls[name] += 1
            return verb(*given, **more)

        monkeypatch.setattr(curves, verb.__name__, counted)
    folder = tmp_path / "study"
    words = ("study", *SMALL, "--seeds", 2, "--task", "ioi,greater-than", "--out", folder)
    code, out, _ = edgewise(*words)
    assert code == 0 and "ILP + Bootstrapping + PNR" in out
    # Two tasks and two draws of data: one scoring pass each, and one evaluation on each of validation and test, which
    # says how well the model does the task as well.
    assert calls == {"score": 4, "evaluate": 8}

    rows = list(csv.DictReader((folder / "tables.csv").open()))
    names = {name: {row["method"] for row in rows if row["table"] == name} for name in {row["table"] for row in rows}}
    assert names["main"] == {
        f"{metric} {kind}" for metric, papers in (("CMD", "ILP + PNR"), ("CPR", "ILP + Bootstrapping"))
        for kind in ("Baseline (Greedy)", f"({papers})", "(chosen on validation)")
    }  # fmt: skip
    assert names["ablation-cmd"] > set(PAPER) and names["tau"] == {"Bootstrapping 5", "Bootstrapping 10"}
    assert names["pnr"] == {"ILP + PNR 0.5", "ILP + PNR 0.8"}
    for row in rows:
        if row["table"] not in ("overlap", "kept", "test-cmd", "test-cpr"):
            assert float(row["low"]) <= float(row["high"]) and float(row["spread"]) >= 0
    ablation = [row for row in rows if row["table"] == "ablation-cmd" and row["task"] == "ioi"]
    best = min(float(row["value"]) for row in ablation)
    chosen = next(v for v in json.loads((folder / "tables.json").read_text())["verdicts"] if v["benchmark"] == "CMD")
    assert float(next(row["value"] for row in ablation if row["method"] == chosen["chosen"])) == best

    before = contents(folder)
    for name in TABLES:
        (folder / name).unlink()
    monkeypatch.setattr("edgewise.models.load._load_module", lambda *_: pytest.fail("a finished study needs no model"))
    code, _, err = edgewise(*words)
    assert code == 0 and "resuming" in err and contents(folder) == before
    line = refused(edgewise, *words, "--steps", 3)
    assert "settings differ" in line and "--overwrite" in line


def test_a_finished_study_is_reported_and_its_methods_compared_without_a_model(edgewise, tmp_path, monkeypatch):
    folder = tmp_path / "study"
    assert edgewise("study", *SMALL, "--seeds", 2, "--out", folder)[0] == 0
    monkeypatch.setattr("edgewise.models.load._load_module", lambda *_: pytest.fail("a finished study needs no model"))
    before = contents(folder)
    (folder / "tables.md").unlink()
    assert edgewise("report", folder)[0] == 0 and contents(folder) == before

    entries = json.loads(before["tables.json"])["entries"]
    known = {e["method"]: e for e in entries if e["table"] == "test-cmd"}
    found = {pair["method"]: pair for pair in json.loads(edgewise("compare", folder, "Greedy", "--json")[1])
             if pair["benchmark"] == "CMD"}  # fmt: skip
    assert set(found) == set(known)
    for name, pair in found.items():
        assert [pair[key] for key in ("difference", "low", "high", "p")] == [
            known[name][key] for key in ("value", "low", "high", "p")
        ]
    # Any two methods: the difference of differences, and its mirror image.
    (one,), (other,) = (
        json.loads(edgewise("compare", folder, *pair, "--json")[1])
        for pair in (("ILP + PNR", "PNR"), ("PNR", "ILP + PNR"))
    )
    assert one["difference"] == pytest.approx(known["ILP + PNR"]["value"] - known["PNR"]["value"], abs=1e-12)
    assert (one["low"], one["high"]) == pytest.approx((-other["high"], -other["low"])) and one["p"] == other["p"]
    assert "choose one of: Greedy" in refused(edgewise, "compare", folder, "Magic")

    shutil.rmtree(next(folder.rglob("cell-*")))
    assert "isn't finished" in refused(edgewise, "compare", folder)
    assert "isn't finished" in refused(edgewise, "report", folder)


def test_a_plan_survives_its_file(tmp_path):
    settings = as_published(Settings(bootstrap=Bootstrap(7, "normal")))
    solvers = (Greedy(), Ilp(2.0))
    plan = Plan(("demo",), ("ioi",), 2, 9, Grid((5,), (), (0.5,), solvers), settings, dtype="float64")
    with open_study(tmp_path / "study", plan) as opened:
        assert read_plan(opened.folder) == plan
    for changed in ({"batch_size": 3}, {"memory": 5}):  # these decide the last digits
        assert replace(plan, settings=replace(settings, **changed)).record() != plan.record()


def began(folder, plan, overwrite=False):
    """Whether a study goes on; a unit of it is finished."""
    with open_study(folder, plan, overwrite) as opened:
        Store(opened.folder / "store").save("values-1", Unit(about=1))
        return opened.resumes


OWN = """
from dataclasses import dataclass
from edgewise import Eap
class Base(Eap):
    def score(self, batch, metric):
        return super().score(batch, metric) if FACTOR else None
@dataclass(frozen=True)
class Own(Base):
    factor: float = 1.0
"""


def test_a_study_knows_when_the_text_of_ones_own_methods_or_their_bases_has_changed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for number, text in enumerate((OWN, OWN, OWN.replace("FACTOR", "factor"))):
        path = tmp_path / "own_methods.py"
        path.write_text(text)
        sys.modules.pop("own_methods", None)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        plan = Plan(seeds=1, settings=Settings(importlib.import_module("own_methods").Own()))
        if number < 2:
            assert began(tmp_path / "study", plan) == bool(number)
        else:
            with pytest.raises(InputError, match=r"\(methods differ\)"):
                began(tmp_path / "study", plan)


def test_tables_too_wide_for_the_terminal_become_several():
    columns = tuple((f"task{i}", "model") for i in range(7))
    row = TableRow("CMD", -1, "Greedy + Bootstrapping + PNR", tuple(Entry(i / 10, 0.01) for i in range(7)))
    table = StudyTable("main", "caption", columns, (row,))
    console = Console(width=80, file=io.StringIO())
    console.print(*terminal(table, 80), sep="\n")
    shown = console.file.getvalue()
    assert "…" not in shown and all(f"0.{i}000 ±0.0100" in shown and f"task{i}" in shown for i in range(7))
    assert len(terminal(table, 80)) == 3 and len(terminal(table, 200)) == 1


def units(folder: Path) -> int:
    """How many files a study has finished, by a walk that doesn't mind folders which are renamed meanwhile."""
    return sum(not name.startswith(".") for _, _, files in os.walk(folder) for name in files)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_study_killed_at_random_ends_with_the_same_tables(tmp_path):
    """Killed by SIGKILL at seeded moments, then left alone: bit for bit those of one that was never stopped."""
    words = [sys.executable, "-m", "edgewise", "study", *SMALL, "--seeds", "2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*words, "--out", str(whole)], check=True, **quiet)
    rng, kills = random.Random(0), 0
    for _ in range(3):
        process = subprocess.Popen([*words, "--out", str(cut)], **quiet)
        # After the next one to three units of work: a time alone might fall into the imports.
        enough = units(cut) + rng.randint(1, 3)
        while process.poll() is None and units(cut) < enough:
            time.sleep(0.002)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert kills
    subprocess.run([*words, "--out", str(cut)], check=True, **quiet)
    assert contents(cut) == contents(whole)
    assert units(cut) == units(whole) and not [path for path in cut.rglob(".*")]


def table(values, baseline=True):
    rows = tuple(
        TableRow("CMD", -1, name, (Entry(value, 0.1, value - 1, value + 1),)) for name, value in values.items()
    )
    return StudyTable("t", "A 5 % table_", (("ioi", "org/model_1"),), rows, baseline)


def test_the_best_is_bold_and_what_beats_greedy_underlined_as_far_as_the_eye_sees():
    shown = table({"Greedy": 0.5, "ILP": 0.40001, "PNR": 0.40004, "Top-n": 0.49999})
    assert [shown.marks(row, 0) for row in shown.rows] == [(False, False), (True, True), (True, True), (False, False)]
    assert [shown.marks(row, 0)[1] for row in table({"A": 2, "B": 1}, baseline=False).rows] == [False, False]


def test_tables_are_written_for_pages_and_for_papers():
    shown = table({"Greedy": 0.5, "ILP": 0.4})
    page, paper = markdown([shown], []), latex([shown])
    assert "| ILP | **<ins>0.4000</ins>** ±0.1000 [−0.6000, 1.4000] |" in page and "ioi, model_1" in page
    assert (
        r"\underline{$\mathbf{0.4000}$} {\scriptsize $\pm0.1000$ $[-0.6000, 1.4000]$}" in paper
        and r"A 5 \% table\_" in paper
        and r"\bottomrule" in paper
    )
    assert r"\multicolumn{1}{c}{ioi}" in paper and r"model\_1" in paper
    assert paper.count("{") == paper.count("}")


def own_rows(splits):
    names = [("Mary", "John"), ("Anna", "Paul"), ("Jane", "Mark"), ("Lucy", "Adam")]
    prompt = "When {a} and {b} went to the store, {c} gave a drink to"
    return [
        {"clean": prompt.format(a=a, b=b, c=b), "corrupted": prompt.format(a=a, b=b, c=a), "correct": f" {a}",
         "incorrect": f" {b}"} | ({"split": split} if split else {})
        for one, two in names for a, b in ((one, two), (two, one)) for split in splits
    ]  # fmt: skip


def test_a_file_without_splits_is_split_into_thirds(edgewise, tmp_path):
    path = write(tmp_path / "own.jsonl", own_rows([None]))
    model = load_model("demo")
    parts = {
        seed: [load_third(path, model, split, None, seed).examples for split in ("train", "validation", "test")]
        for seed in (0, 1)
    }
    for three in parts.values():
        assert sorted(map(len, three)) == [2, 3, 3] and len(set().union(*map(set, three))) == 8
    assert parts[0] != parts[1]
    words = ("study", *SMALL, "--seeds", 2, "--task", path, "--out", tmp_path / "study", "--json")
    code, out, err = edgewise(*words)
    assert code == 0 and "no `split` column" in err
    assert json.loads(out)["cells"][0]["examples"] == {"train": 3, "validation": 3, "test": 2}
    assert len(list((tmp_path / "study" / "store").glob("scores-*"))) == 1
    assert edgewise("report", tmp_path / "study")[0] == 0


def test_a_missing_split_is_found_before_the_work(edgewise, tmp_path, monkeypatch):
    path = write(tmp_path / "own.jsonl", own_rows(["train", "test"]))
    monkeypatch.setattr(curves, "score_edges", lambda *given, **more: pytest.fail("scored in vain"))
    assert "no rows of split 'validation'" in refused(edgewise, "study", "--task", path, "--out", tmp_path / "study")


def test_a_study_of_a_file_scores_once_and_knows_when_the_file_has_changed(edgewise, tmp_path, monkeypatch):
    """The examples of a file are the same for every seed: one scoring pass, and resamples that differ."""
    rows = own_rows(["train", "validation", "test"])
    path, calls = write(tmp_path / "own.jsonl", rows), []
    scoring = curves.score_edges
    monkeypatch.setattr(curves, "score_edges", lambda *given, **more: (calls.append(given), scoring(*given, **more))[1])
    (tmp_path / "study").mkdir()
    words = ("study", *SMALL, "--seeds", 2, "--task", path, "--out", tmp_path / "study", "--json")
    code, out, err = edgewise(*words)
    assert code == 0 and len(calls) == 1, err
    entries = json.loads(out)["entries"]
    assert all(one["spread"] == 0 for one in entries if one["method"] == "Greedy" and one["table"] == "ablation-cmd")
    write(tmp_path / "own.jsonl", rows[:-1])
    assert "files differ" in refused(edgewise, *words)


def test_a_study_as_published_resamples_the_evaluated_splits(edgewise, tmp_path):
    words = ("study", *SMALL, "--seeds", 1, "--as-published", "--out", tmp_path / "study")
    code, out, _ = edgewise(*words)
    assert code == 0 and "as published: the bootstrap resamples the evaluated split" in out
    assert "As published: size 0 joins" in (tmp_path / "study" / "tables.md").read_text()
    # Of train, validation and test.
    assert len(list((tmp_path / "study" / "store").glob("scores-*"))) == 3
    found = json.loads((tmp_path / "study" / "tables.json").read_text())
    assert set(found["as_published"]) == {
        "faithfulness",
        "sizes",
        "drop_failed",
        "pnr_after_absolute",
        "filter_on_test",
    }
    same = {one["value"] for one in found["entries"] if one["table"] == "pnr"}
    assert len(same) == 1 and found["plan"]["settings"]["sizes"][0] == 0


def test_several_models_and_tasks_are_the_columns_tasks_first(edgewise, tmp_path):
    import edgewise as package

    copy = tmp_path / "copy"
    shutil.copytree(Path(package.__file__).parent / "demo", copy)
    words = ("--examples", 6, "--pnr-grid", ".5", "--resamples-grid", "5", "--kappa-grid", "", "--seeds", 1, "--json")
    code, out, err = edgewise("study", "--model", f"demo,{copy}", "--task", "ioi", "--task", "mcqa", *words,
                              "--out", tmp_path / "study")  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    columns = [(cell["task"], cell["model"]) for cell in found["cells"]]
    assert columns == [("ioi", "demo"), ("ioi", str(copy)), ("mcqa", "demo"), ("mcqa", str(copy))]
    greedy = {(e["task"], e["model"]): e["value"] for e in found["entries"]
              if e["table"] == "ablation-cpr" and e["method"] == "Greedy"}  # fmt: skip
    assert greedy["ioi", "demo"] == greedy["ioi", str(copy)] != greedy["mcqa", "demo"]
    assert (
        r"\multicolumn{2}{c}{mcqa} \\\cmidrule(lr){2-3}\cmidrule(lr){4-5}"
        in (tmp_path / "study" / "tables.tex").read_text()
    )


def test_the_command_explains_itself(edgewise):
    code, out, _ = edgewise("study", "--help")
    assert code == 0 and "Usage" in out and "--json" in out


def test_only_our_own_drafts_are_swept_away(tmp_path):
    folder, one, other = tmp_path / "study", Plan(seeds=1), Plan(seeds=2)
    assert not began(folder, one)
    for path in (folder / ".gitignore", folder / ".tables.md.0123456789abcdef.draft.md"):
        path.write_text("")
    (folder / "store" / ".values-2.0123456789abcdef.draft").mkdir()
    assert began(folder, one)
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "store", "study.json"]
    assert sorted(path.name for path in (folder / "store").iterdir()) == ["store.json", "values-1"]
    with pytest.raises(InputError, match="seeds differ"):
        began(folder, other)
    with pytest.raises(InputError, match=r"isn't part of it: .*\.gitignore"):
        began(folder, other, overwrite=True)
    (folder / ".gitignore").unlink()
    assert not began(folder, other, overwrite=True) and read_plan(folder) == other


def test_overwriting_keeps_the_old_study_until_the_new_one_is_done_and_goes_on_after_a_stop(tmp_path):
    folder, old, new = tmp_path / "study", Plan(seeds=1), Plan(seeds=2)
    began(folder, old)
    before = sorted(path.name for path in folder.rglob("*"))
    for resumes in (False, True):
        with pytest.raises(KeyboardInterrupt), open_study(folder, new, overwrite=True) as opened:
            assert opened.resumes == resumes and opened.folder != folder
            Store(opened.folder / "store").save("values-2", Unit(about=1))
            raise KeyboardInterrupt
        assert read_plan(folder) == old and sorted(path.name for path in folder.rglob("*")) == before
    assert began(folder, new, overwrite=True)
    assert read_plan(folder) == new and {"values-1", "values-2"} <= {path.name for path in (folder / "store").iterdir()}
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


def test_a_study_that_is_refused_leaves_the_one_that_replaces_another_alone(tmp_path):
    folder, plans = tmp_path / "study", [Plan(seeds=seeds) for seeds in (1, 2, 3)]
    began(folder, plans[0])
    with open_study(folder, plans[1], overwrite=True) as opened:
        Store(opened.folder / "store").save("values-2", Unit(about=1))
        for overwrite in (False, True):
            with pytest.raises(InputError, match="another process"):
                began(folder, plans[2], overwrite)
        assert Store(opened.folder / "store").find("values-2").about == 1
    assert read_plan(folder) == plans[1]


@pytest.mark.parametrize("place", ["study/store/mine.txt", "study/store/sub/mine.txt", ".study.partial/study/mine.txt",
                                   ".study.partial/mine.txt", "study/mine.txt"])  # fmt: skip
def test_what_is_the_users_stays_wherever_it_lies(tmp_path, place):
    folder, plans = tmp_path / "study", [Plan(seeds=seeds) for seeds in (1, 2, 3)]
    began(folder, plans[0])
    with pytest.raises(KeyboardInterrupt), open_study(folder, plans[1], overwrite=True) as opened:
        Store(opened.folder / "store").save("values-2", Unit(about=1))
        raise KeyboardInterrupt
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("mine")
    with pytest.raises(InputError, match=r"isn't part of it: .*mine\.txt"):
        began(folder, plans[2], overwrite=True)
    assert (tmp_path / place).read_text() == "mine"


def test_two_processes_do_not_work_on_one_study(tmp_path):
    with open_study(tmp_path / "study", Plan()):
        for overwrite in (False, True):
            with pytest.raises(InputError, match="another process"):
                began(tmp_path / "study", Plan(), overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


@pytest.mark.parametrize("words", [("--model", "typo"), ("--device", "bogus"), ("--dtype", "int3"), ("--bos", "maybe"),
                                   ("--task", "typo.jsonl"), ("--task", "typo")])  # fmt: skip
def test_a_study_that_is_refused_leaves_the_old_one_whole(edgewise, tmp_path, words):
    began(tmp_path / "study", Plan(seeds=1))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    refused(edgewise, "study", *words, "--out", tmp_path / "study", "--overwrite")
    refused(edgewise, "study", *words, "--out", tmp_path / "new" / "er")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


def test_a_folder_that_is_no_study_is_left_alone(edgewise, tmp_path):
    (tmp_path / "own.txt").write_text("mine")
    assert "isn't part of it: " in refused(edgewise, "study", "--out", tmp_path, "--overwrite")
    assert "list of numbers" in refused(edgewise, "study", "--pnr-grid", "half", "--out", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.txt"]


def test_differences_to_greedy_are_bold_where_the_interval_is_on_the_better_side():
    rows = tuple(
        TableRow("CMD", -1, str(low), (Entry((low + high) / 2, None, low, high),))
        for low, high in ((-2, -1), (-2, 1), (1, 2))
    )
    shown = StudyTable("d", "", (("ioi", "demo"),), rows, False, True)
    assert [shown.marks(row, 0) for row in rows] == [(True, True), (False, True), (False, False)]
    assert np.isfinite([row.entries[0].value for row in rows]).all()


def test_a_study_that_finished_nothing_does_not_block_the_corrected_command(edgewise, tmp_path):
    folder = tmp_path / "study"
    assert "can't be read" in refused(edgewise, "study", "--model", str(tmp_path / "dmeo"), "--out", folder)
    code, _, err = edgewise("study", *SMALL, "--seeds", 1, "--out", folder, "--json")
    assert code == 0 and "resuming" not in err
    for words in (
        ("--resamples-grid", 1), ("--kappa-grid", -1), ("--examples", 0), ("--metric", "accuracy"),
        ("--model", f"demo,{tmp_path / 'dmeo'}"), ("--task", "ioi,oio"),
    ):  # fmt: skip
        refused(edgewise, "study", *words, "--out", tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_a_hidden_folder_above_a_study_hides_nothing(tmp_path):
    folder = tmp_path / ".cache" / "study"
    assert not began(folder, Plan(seeds=1)) and began(folder, Plan(seeds=1))
    with pytest.raises(InputError, match="seeds differ"):
        began(folder, Plan(seeds=2))


def test_folders_of_others_are_never_emptied(edgewise, tmp_path):
    (tmp_path / "study.json").write_text('{"title": "my clinical study"}')
    (tmp_path / "thesis.txt").write_text("mine")
    assert "this edgewise reads edgewise-study" in refused(edgewise, "study", "--out", tmp_path, "--overwrite")
    assert (tmp_path / "thesis.txt").exists()


def test_seeds_that_share_examples_share_resamples():
    """Equal curves of two seeds on the same examples: their mean is as uncertain as one of them, not less."""
    rng = np.random.default_rng(0)
    full, empty, values = rng.normal(3, 1, 20), rng.normal(0, 1, 20), rng.normal(2, 1, (3, 20))
    curve = Curve((0.1, 0.5, 1.0), (1, 5, 10), (1, 5, 10), values, full, empty)
    one, two = Repeats(CMD, GREEDY, (curve,), (0,)), Repeats(CMD, GREEDY, (curve, curve), (0, 0))
    np.testing.assert_allclose(two.resampled.draws, one.resampled.draws)
    other = Repeats(CMD, GREEDY, (curve, curve), (0, 1))
    assert other.resampled.draws.std() < 0.9 * one.resampled.draws.std()


def test_the_overlap_and_kept_tables_are_of_the_methods_they_name(edgewise, tmp_path):
    folder = tmp_path / "study"
    assert edgewise("study", *SMALL, "--seeds", 1, "--out", folder)[0] == 0
    study = read_study(folder)
    cell, settings = study.cells[0], study.plan.settings
    model = load_model("demo")
    task = load_task("ioi", model, "train", 8, 0)
    scores = curves.score_task(model, task, settings, Session(Store(folder / "store")))
    for measure in (CMD, CPR):
        for who, recipe in (("greedy", GREEDY), ("chosen", cell.chosen(measure))):
            by_size = recipe_overlap(scores, recipe, measure, settings, run.OVERLAP_RESAMPLES)
            assert cell.overlap[measure][who] == (mean_overlap(by_size, settings.sizes),)
    rows = [row for row in csv.DictReader((folder / "tables.csv").open()) if row["table"] == "kept"]
    lines = list(csv.DictReader((folder / "curves.csv").open()))
    for row in rows:
        same = [c for c in lines if f"{c['benchmark']} {c['method']}" == row["method"] and float(c["share"]) < 1]
        shares = [int(c["edges_kept"]) / int(c["edges_asked"]) for c in same if int(c["edges_asked"])]
        assert float(row["value"]) == pytest.approx(np.mean(shares))


def test_a_study_learns_on_every_draw_and_compares_what_it_learned(edgewise, tmp_path):
    words = ("study", *SMALL, "--seeds", 2, "--learned", "--learn-steps", 6, "--out", tmp_path / "study", "--json")
    code, out, err = edgewise(*words)
    assert code == 0, err
    methods = {entry["method"] for entry in json.loads(out)["entries"] if entry["table"] == "ablation-cmd"}
    assert {"Learned", "ILP + Learned", "Greedy", "ILP"} <= methods
    # For two goals and two draws of data.
    assert len(list((tmp_path / "study" / "store").glob("learned-*"))) == 4
    assert Plan.from_record(json.loads(out)["plan"]) == read_plan(tmp_path / "study")
    found = json.loads(edgewise("compare", tmp_path / "study", "learned", "greedy", "--json")[1])
    assert {pair["method"] for pair in found} == {"Learned"} and len(found) == 2


def test_a_cell_that_can_not_have_come_of_the_plan_is_refused(tmp_path):
    """Whoever changes a record can change its digest: tables are made of what is right, or it is refused."""
    grid = Grid(tau=(5,), kappa=(), pnr=(0.5,), solvers=(Greedy(),))
    folder = tmp_path / "study"
    run_study(Plan(seeds=2, examples=6, grid=grid), folder)
    (unit,) = (folder / "store").glob("cell-*/unit.json")
    whole = unit.read_text()

    def refused(change, words):
        record = json.loads(whole)
        change(record["about"])
        write_unit_record(unit.parent, record["about"])
        with pytest.raises(InputError, match=words) as refusal:
            study_tables(read_study(folder))
        assert str(unit.parent) in str(refusal.value)

    for change, words in (
        (lambda a: a.pop("overlap"), "lacks overlap"), (lambda a: a.update(task="mcqa"), "another model or task"),
        (lambda a: a.update(more=1), "more"), (lambda a: a["competence"].update(top="1"), "competence.top"),
        (lambda a: a["competence"].update(top=1.5), "no share"), (lambda a: a["overlap"].pop("CMD"), "overlap"),
        (lambda a: a["overlap"]["CMD"].update(greedy=["a"]), r"greedy\[0\]"),
        (lambda a: a["test"].pop(), "other recipes"),
        (lambda a: a["validation"].reverse(), "other recipes"),
        (lambda a: a["examples"].update(test=7), "other shapes"),
        (lambda a: a["test"][0]["recipe"].update(solver="ilp"), "other recipes"),
        (lambda a: a["test"][0].update(data_seeds=[0, -1]), "seeds"), (lambda a: a["test"][0]["kept"].pop(), "seeds"),
        (lambda a: a["test"][0]["asked"].pop(), "numbers of edges"), (lambda a: a["test"][0].update(kept=3), "a list"),
        (lambda a: a["test"][0].update(asked=[-1] * 10), "more edges than"),
        (lambda a: a["examples"].clear(), "how many"),
    ):  # fmt: skip
        refused(change, words)
    unit.write_text(whole)
    assert study_tables(read_study(folder))


@pytest.mark.parametrize(
    "change, words",
    [(lambda p: p.pop("models"), "lacks models"), (lambda p: p.update(seeds="2"), "seeds must be"),
     (lambda p: p.update(seeds=True), "seeds must be"), (lambda p: p.update(models="demo"), "a list"),
     (lambda p: p["grid"].update(tau=[5.5]), r"tau\[0\]"), (lambda p: p["grid"].update(solvers=[3]), "name of one"),
     (lambda p: p["grid"].update(tau=[5] * 9000, pnr=[0.5] * 9000), "at most 100 values"),
     (lambda p: p["settings"].pop("scorer"), "lacks scorer"), (lambda p: p.update(settings=[]), "an object"),
     (lambda p: p["settings"]["scorer"].update(steps="5"), "steps must be"),
     (lambda p: p.update(learner="x"), "learner"),
     (lambda p: p["settings"]["bootstrap"].pop("seed"), "lacks seed"), (lambda p: p.update(own=1), "own"),
     (lambda p: p["settings"].update(scorer="eapp"), "unknown scorer"),
     (lambda p: p["settings"].update(fill=0), "fill")],
)  # fmt: skip
def test_a_plan_of_a_strange_kind_is_refused(tmp_path, change, words):
    began(tmp_path / "study", Plan(seeds=2))
    path = tmp_path / "study" / "study.json"
    record = json.loads(path.read_text())
    change(record["plan"])
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=words) as refusal:
        read_study(tmp_path / "study")
    assert "study.json" in str(refusal.value)


@pytest.mark.parametrize("change", [{"threads": "2"}, {"threads": None}, {"plan": 3}, {"more": 1}])
def test_a_study_without_its_plan_or_threads_is_refused(tmp_path, change):
    plan = Plan(seeds=2)
    began(tmp_path / "study", plan)
    path = tmp_path / "study" / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for look in (read_study, lambda folder: run_study(plan, folder)):
        with pytest.raises(InputError, match=r"study\.json.*(threads|plan|more)"):
            look(tmp_path / "study")
