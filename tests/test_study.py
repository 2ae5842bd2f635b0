"""Studies: the paper's tables from one command, which can be killed at any moment."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import refused, run_command, write
from paused_command import start_paused
from rich.console import Console

from edgewise import (
    CMD,
    CPR,
    Bootstrap,
    Eap,
    Greedy,
    Ilp,
    InputError,
    Shrinkage,
    Store,
    TopKLearner,
    TopN,
    load_model,
    load_task,
)
from edgewise.evaluate import Curve
from edgewise.models import load_source
from edgewise.recipes import stages
from edgewise.recipes.recipe import GREEDY, Recipe, paper_recipes
from edgewise.recipes.settings import Settings, as_published
from edgewise.recipes.stability import mean_overlap, recipe_overlap
from edgewise.report.study_tables import markdown, terminal
from edgewise.runtime.session import Session
from edgewise.study import Entry, Grid, Plan, Repeats, StudyTable, TableRow, read_study, run, run_study, study_tables
from edgewise.tasks import load_unsplit

# The smallest study.
FEW = ("--examples", "8", "--pnr-grid", ".5", "--resamples-grid", "5", "--kappa-grid", "")
# The smallest study with every kind of recipe, as options and as a plan.
SMALL = ("--examples", "8", "--pnr-grid", ".5,.8", "--resamples-grid", "5,10", "--kappa-grid", "1")
PLAN = Plan(("demo",), ("ioi",), 2, 8, Grid((5, 10), (1.0,), (0.5, 0.8)))
TABLES = ("tables.md", "tables.csv", "tables.json", "curves.csv", "figure.png", "figure.svg")
PAPER = ["Greedy", "ILP", "Bootstrapping", "PNR", "ILP + Bootstrapping", "ILP + PNR", "Bootstrapping + PNR",
         "ILP + Bootstrapping + PNR"]  # fmt: skip


def quiet(*_):
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished study with two seeds. Tests must not change it."""
    folder = tmp_path_factory.mktemp("study") / "study"
    code, _, err = run_command("study", *SMALL, "--seeds", 2, "--out", folder)
    assert code == 0, err
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "study")


@pytest.fixture
def no_model(monkeypatch):
    monkeypatch.setattr("edgewise.study.run.load_source", lambda *_: pytest.fail("a finished study needs no model"))


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def test_recipes_have_the_names_of_the_papers_tables():
    recipes = paper_recipes(Bootstrap(), 0.5)
    assert [recipe.name for recipe in recipes[CMD]] == PAPER
    assert [recipe.name for recipe in recipes[CPR]] == [name for name in PAPER if "PNR" not in name]
    assert Recipe(Greedy(), pnr=0.5).name == "Greedy + PNR" and Recipe(TopN()).name == "Top-n"
    assert Recipe(Ilp(), Shrinkage(2), 0.4).name == "ILP + Shrinkage + PNR"
    assert Recipe(Ilp(), Shrinkage(2), 0.4).parameter_text == "kappa 2, PNR 0.4"
    assert Recipe(Ilp(), Bootstrap(15)).parameters == {"tau": 15}


def test_the_grid_combines_all_solvers_filters_and_pnrs():
    grid, bootstrap = Grid(), Bootstrap(seed=4)
    cmd, cpr = grid.recipes(CMD, bootstrap), grid.recipes(CPR, bootstrap)
    assert cmd[0] == cpr[0] == GREEDY and len(set(cmd)) == len(cmd) == 3 * 7 * 10 and len(cpr) == 3 * 7
    assert {recipe.filter.seed for recipe in cmd if isinstance(recipe.filter, Bootstrap)} == {4}
    assert not any(recipe.pnr is not None for recipe in cpr)
    assert {recipe.name for recipe in Grid(kappa=()).recipes(CMD, bootstrap)} > set(PAPER)


def test_seeds_share_the_examples_of_a_data_set_but_not_of_a_generator():
    plan = Plan(("demo",), ("ioi", "mib/ioi", "own.csv"), 3)
    assert plan.data_seeds("ioi") == (0, 1, 2)
    assert plan.data_seeds("mib/ioi") == plan.data_seeds("own.csv") == (0, 0, 0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Plan(seeds=0), "at least 1"),
        (lambda: Plan(models=()), "at least one"),
        (lambda: Plan(tasks=("a", "a")), "once"),
        (lambda: Grid(pnr=(1.5,)), "from 0 to 1"),
        (lambda: Grid(solvers=(Greedy(), "magic")), "not 'magic'"),
        (lambda: Grid(solvers=(Ilp(),)), "begin with it"),
        (lambda: Grid(solvers=(Greedy,)), "not Greedy"),
    ],
)
def test_impossible_plans_raise(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_study_fills_the_papers_tables(finished):
    rows = list(csv.DictReader((finished / "tables.csv").open()))
    names = {name: {row["row"] for row in rows if row["table"] == name} for name in {row["table"] for row in rows}}
    assert names["main"] == {
        f"{measure} {kind}" for measure, paper in (("CMD", "ILP + PNR"), ("CPR", "ILP + Bootstrapping"))
        for kind in ("Baseline (Greedy)", f"({paper})", "(chosen on validation)")
    }  # fmt: skip
    assert names["ablation-cmd"] > set(PAPER) and names["tau"] == {"Bootstrapping 5", "Bootstrapping 10"}
    assert names["pnr"] == {"ILP + PNR 0.5", "ILP + PNR 0.8"}
    for row in rows:
        if row["table"] not in ("overlap", "kept", "test-cmd", "test-cpr"):
            assert float(row["low"]) <= float(row["high"]) and float(row["spread"]) >= 0
    ablation = [row for row in rows if row["table"] == "ablation-cmd"]
    best = min(float(row["value"]) for row in ablation)
    main = {row["row"]: row["note"] for row in rows if row["table"] == "main"}
    chosen = main["CMD (chosen on validation)"]
    assert float(next(row["value"] for row in ablation if row["row"] == chosen.partition(" (")[0])) == best


def test_a_finished_study_is_shown_without_a_model(edgewise, copied, no_model):
    words = ("study", *SMALL, "--seeds", 2, "--out", copied)
    before = contents(copied)
    code, out, err = edgewise(*words)
    assert code == 0 and "ILP + Bootstrapping + PNR" in out and contents(copied) == before
    assert "nothing is computed again" in err and "resuming" not in err
    line = refused(edgewise, *words, "--steps", 3)
    assert "steps was 5, is 3" in line and "--overwrite" in line


def test_one_scoring_pass_per_draw_serves_validation_and_test_and_a_finished_cell_is_not_run_again(tmp_path, no_model):
    plan = replace(PLAN, grid=Grid((), (), (), (Greedy(),)))
    session = Session(Store(tmp_path / "work"), progress=quiet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgewise.study.run.load_source", load_source)
        study = run_study(plan, session=session)
    assert len(list((tmp_path / "work").glob("scores-*"))) == 2
    again = run_study(plan, session=session)
    for measure in (CMD, CPR):
        areas = [[row.areas.tolist() for row in each.cells[0].test[measure]] for each in (study, again)]
        assert areas[0] == areas[1]


def test_a_finished_study_is_reported_and_compared_without_a_model(edgewise, copied, no_model):
    before = contents(copied)
    (copied / "tables.md").unlink()
    assert edgewise("report", copied)[0] == 0 and contents(copied) == before

    entries = json.loads(before["tables.json"])["entries"]
    known = {e["row"]: e for e in entries if e["table"] == "test-cmd"}
    pairs = json.loads(edgewise("compare", copied, "Greedy", "--json")[1])
    compared = {pair["recipe"]: pair for pair in pairs if pair["measure"] == "CMD"}
    assert set(compared) == set(known)
    for name, pair in compared.items():
        numbers = [known[name][key] for key in ("value", "low", "high", "p")]
        assert [pair[key] for key in ("difference", "low", "high", "p")] == numbers
    # Any two recipes: the difference of differences, and its mirror image.
    (one,), (other,) = (
        json.loads(edgewise("compare", copied, *pair, "--json")[1])
        for pair in (("ILP + PNR", "PNR"), ("PNR", "ILP + PNR"))
    )
    assert one["difference"] == pytest.approx(known["ILP + PNR"]["value"] - known["PNR"]["value"], abs=1e-12)
    assert (one["low"], one["high"]) == pytest.approx((-other["high"], -other["low"])) and one["p"] == other["p"]
    assert "choose one of: Greedy" in refused(edgewise, "compare", copied, "Magic")
    # Without a recipe, all are compared with the one that the study chose on validation.
    (cell,) = read_study(copied).cells
    chosen = {measure.name: cell.chosen(measure).name for measure in (CMD, CPR)}
    pairs = json.loads(edgewise("compare", copied, "--json")[1])
    assert {pair["measure"]: pair["other"] for pair in pairs} == chosen
    assert f"{chosen['CMD']} for CMD was chosen on validation." in edgewise("compare", copied)[1]

    shutil.rmtree(next(copied.rglob("cell-*")))
    assert "missing or damaged" in refused(edgewise, "compare", copied)
    assert "missing or damaged" in refused(edgewise, "report", copied)


def test_overlap_and_kept_tables(finished):
    study = read_study(finished)
    cell, settings = study.cells[0], study.plan.settings
    model = load_model("demo")
    for measure in (CMD, CPR):
        for who, recipe in (("greedy", GREEDY), ("chosen", cell.chosen(measure).recipe)):
            means = []
            for seed in range(2):
                if isinstance(recipe.filter, Bootstrap):
                    recipe = replace(recipe, filter=replace(recipe.filter, seed=seed))
                task = load_task("ioi", model, "train", 8, seed)
                scores = stages.score_task(model, task, settings, Session(progress=quiet))
                by_size = recipe_overlap(scores, recipe, measure, settings, run.OVERLAP_RESAMPLES)
                means.append(mean_overlap(by_size, settings.sizes))
            assert cell.overlap[measure][who] == tuple(means)
    rows = [row for row in csv.DictReader((finished / "tables.csv").open()) if row["table"] == "kept"]
    lines = list(csv.DictReader((finished / "curves.csv").open()))
    for row in rows:
        same = [c for c in lines if f"{c['measure']} {c['row']}" == row["row"] and float(c["share"]) < 1]
        shares = [int(c["edges_kept"]) / int(c["edges_asked"]) for c in same if int(c["edges_asked"])]
        assert float(row["value"]) == pytest.approx(np.mean(shares))


def test_a_plan_survives_its_record():
    settings = as_published(Settings(bootstrap=Bootstrap(7, "normal")))
    grid = Grid((5,), (), (0.5,), (Greedy(), Ilp(2.0)))
    plan = Plan(("demo",), ("ioi",), 2, 9, grid, settings, dtype="float64", scorers=(Eap(), TopKLearner(steps=3)))
    assert Plan.from_record(json.loads(json.dumps(plan.record()))) == plan
    for changed in ({"batch_size": 3}, {"memory": 5}):  # these change rounding
        assert replace(plan, settings=replace(settings, **changed)).record() != plan.record()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_study_ends_with_the_same_tables(edgewise, finished, tmp_path):
    """Killed after some batches, then resumed: bit for bit the tables of a study that was never stopped."""
    folder = tmp_path / "results" / "study"
    words = ("study", *SMALL, "--seeds", 2, "--out", folder)
    process = start_paused(7, tmp_path, *words)
    process.kill()
    process.join()
    assert not folder.exists() and any(folder.with_name(".study.partial").glob("scores-*"))
    code, _, err = edgewise(*words)
    assert code == 0 and "resuming a stopped command" in err
    assert contents(folder) == contents(finished)
    assert [path.name for path in folder.parent.iterdir()] == ["study"]


def example_rows(splits):
    names = [("Mary", "John"), ("Anna", "Paul"), ("Jane", "Mark"), ("Lucy", "Adam")]
    prompt = "When {a} and {b} went to the store, {c} gave a drink to"
    return [
        {"clean": prompt.format(a=a, b=b, c=b), "corrupted": prompt.format(a=a, b=b, c=a), "correct": f" {a}",
         "incorrect": f" {b}"} | ({"split": split} if split else {})
        for one, two in names for a, b in ((one, two), (two, one)) for split in splits
    ]  # fmt: skip


def test_a_file_without_splits_is_split_into_thirds_and_bad_rows_are_left_out_on_request(edgewise, tmp_path):
    path = write(tmp_path / "own.jsonl", example_rows([None]))
    model = load_model("demo")
    thirds = {
        seed: [load_unsplit(path, model, split, None, seed).examples for split in ("train", "validation", "test")]
        for seed in (0, 1)
    }
    for three in thirds.values():
        assert sorted(map(len, three)) == [2, 3, 3] and len(set().union(*map(set, three))) == 8
    assert thirds[0] != thirds[1]
    write(tmp_path / "own.jsonl", [*example_rows([None]), "{", {"clean": "When"}])
    words = ("study", *FEW, "--seeds", 2, "--task", path, "--out", tmp_path / "study")
    assert "--skip-bad leaves out such rows" in refused(edgewise, *words)
    code, out, err = edgewise(*words, "--skip-bad", "--json")
    assert code == 0 and "no `split` column" in err and "2 of the 10 rows" in err
    assert json.loads(out)["cells"][0]["examples"] == {"train": 3, "validation": 3, "test": 2}
    assert "skip bad was True, is False" in refused(edgewise, *words)


def test_a_changed_data_set_in_a_folder_is_another_study(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    plan = Plan("demo", (f"hub:{folder}:default", "hub:a/data-set-of-the-hub"))
    digests = []
    for text in ("one", "other"):
        (folder / "train.jsonl").write_text(text)
        digests.append(plan.files())
    assert digests[0] != digests[1] and set(digests[0]) == {"demo", str(folder)}


def test_tasks_of_a_study_are_read_as_the_plan_says(monkeypatch):
    calls = []
    monkeypatch.setattr("edgewise.study.run.load_task", lambda *_, **how: calls.append(how))
    plan = Plan("demo", ("ioi", "hub:a"), spans="token", chat=True, skip_bad=True, columns=(("clean", "b"),))
    for task in plan.tasks:
        run.load_splits(plan, None, task, 0)
    how = {"spans": "token", "chat": True}
    read = [how | {"skip_bad": False, "columns": None}, how | {"skip_bad": True, "columns": {"clean": "b"}}]
    assert calls[::3] == read  # a generator has no bad rows
    with pytest.raises(InputError, match="skip_bad=True is for task files"):
        Plan("demo", "ioi", skip_bad=True)
    with pytest.raises(InputError, match="columns are for task files and data sets"):
        Plan("demo", "ioi", columns=(("clean", "b"),))


def test_a_missing_split_raises_before_the_work(edgewise, tmp_path, monkeypatch):
    path = write(tmp_path / "own.jsonl", example_rows(["train", "test"]))
    monkeypatch.setattr(stages, "score_edges", lambda *_, **__: pytest.fail("scored in vain"))
    assert "no rows of split 'validation'" in refused(edgewise, "study", "--task", path, "--out", tmp_path / "study")


def test_seeds_share_the_scores_of_a_file_and_a_changed_file_is_noticed(edgewise, tmp_path):
    rows = example_rows(["train", "validation", "test"])
    path = write(tmp_path / "own.jsonl", rows)
    (tmp_path / "study").mkdir()
    words = ("study", *FEW, "--seeds", 2, "--task", path, "--out", tmp_path / "study", "--json")
    code, out, err = edgewise(*words)
    assert code == 0, err
    entries = [entry for entry in json.loads(out)["entries"] if entry["table"] == "ablation-cmd"]
    assert all(entry["spread"] == 0 for entry in entries if entry["row"] == "Greedy")
    write(tmp_path / "own.jsonl", rows[:-1])
    assert "other files" in refused(edgewise, *words)


def test_as_published_the_evaluated_splits_are_resampled(edgewise, copied, tmp_path):
    """The new study replaces another one, with its tables."""
    folder = copied
    words = ("study", *FEW, "--pnr-grid", ".5,.8", "--seeds", 1, "--as-published", "--out", folder, "--overwrite")
    code, out, _ = edgewise(*words)
    assert code == 0 and f"results in {folder}" in out.replace("\n", " ")
    assert {path.name for path in folder.iterdir()} == {*TABLES, "study.json", "cells", "README.md"}
    assert [path.name for path in tmp_path.iterdir()] == ["study"]
    assert "as published: the bootstrap resamples the evaluated split" in out
    assert "As published: size 0 joins" in (folder / "tables.md").read_text()
    record = json.loads((folder / "tables.json").read_text())
    names = {"faithfulness", "sizes", "drop_failed", "pnr_after_absolute", "filter_on_test"}
    assert set(record["as_published"]) == names and record["plan"]["settings"]["sizes"][0] == 0
    assert len({entry["value"] for entry in record["entries"] if entry["table"] == "pnr"}) == 1


def test_columns_are_tasks_and_models_tasks_first(edgewise, tmp_path):
    import edgewise as package

    copy = tmp_path / "copy"
    shutil.copytree(Path(package.__file__).parent / "demo", copy)
    words = ("study", "--model", f"demo,{copy}", "--task", "ioi", "--task", "mcqa", *FEW, "--seeds", 1, "--json")
    code, out, err = edgewise(*words, "--out", tmp_path / "study")
    assert code == 0, err
    record = json.loads(out)
    columns = [(cell["task"], cell["model"]) for cell in record["cells"]]
    assert columns == [("ioi", "demo"), ("ioi", str(copy)), ("mcqa", "demo"), ("mcqa", str(copy))]
    greedy = {(e["task"], e["model"]): e["value"] for e in record["entries"]
              if e["table"] == "ablation-cpr" and e["row"] == "Greedy"}  # fmt: skip
    assert greedy["ioi", "demo"] == greedy["ioi", str(copy)] != greedy["mcqa", "demo"]


def test_rankings_are_learned_on_every_draw_and_compared(edgewise, tmp_path):
    folder = tmp_path / "study"
    words = ("study", *FEW, "--seeds", 2, "--learned", "--learn-steps", 3, "--out", folder, "--json")
    code, out, err = edgewise(*words)
    assert code == 0, err
    recipes = {entry["row"] for entry in json.loads(out)["entries"] if entry["table"] == "ablation-cmd"}
    assert {"Learned", "ILP + Learned", "Greedy", "ILP"} <= recipes
    assert Plan.from_record(json.loads(out)["plan"]) == read_study(folder).plan
    pairs = json.loads(edgewise("compare", folder, "learned", "greedy", "--json")[1])
    assert {pair["recipe"] for pair in pairs} == {"Learned"} and len(pairs) == 2


def make_table(values, verdict=""):
    rows = tuple(
        TableRow(name, (Entry("CMD", name, "ioi", "org/model_1", value, 0.1, value - 1, value + 1, verdict=verdict),))
        for name, value in values.items()
    )
    return StudyTable("t", "A 5 % table_", (("ioi", "org/model_1"),), rows)


def test_the_best_entries_are_those_of_the_best_number_as_rounded():
    table = make_table({"Greedy": 0.5, "ILP": 0.40001, "PNR": 0.40004, "Top-n": 0.49999})
    assert [entry.best for entry in table.mark_best().entries] == [False, True, True, False]
    assert not any(entry.best for entry in table.mark_best({}).entries)
    equal = make_table({"Greedy": 0.4, "ILP": 0.40001})  # as the legend says: none if all are equal
    assert not any(entry.best for entry in equal.mark_best().entries)


def test_marks_mean_the_same_in_every_file_and_the_legend_is_there_once(edgewise, copied):
    """The oracle of every mark is `compare`, which compares on the same examples of test."""
    folder, shown = copied, edgewise("report", copied)[1]
    pairs = json.loads(edgewise("compare", folder, "greedy", "--json")[1])
    verdicts = {(pair["measure"], pair["recipe"]): pair["verdict"] for pair in pairs}
    with (folder / "tables.csv").open() as file:
        entries = list(csv.DictReader(file))
    differences = [entry for entry in entries if entry["table"].startswith("test-")]
    assert {(entry["quantity"], entry["row"]): entry["verdict"] for entry in differences} == verdicts
    main = [entry for entry in entries if entry["table"] == "main"]
    for measure in ("CMD", "CPR"):
        baseline, *others = [entry for entry in main if entry["quantity"] == measure]
        chosen = others[-1]["note"].split(" (")[0]
        assert baseline["verdict"] == "" and others[-1]["verdict"] == verdicts.get((measure, chosen), "")
    assert {"better", "worse"} & set(verdicts.values())  # otherwise this test says nothing
    for text in (shown, (folder / "tables.md").read_text()):
        assert text.count("no mark: no significant difference") == 1
        words = {word for word in ("better", "worse") if word in verdicts.values()}
        assert all(len(re.findall(rf"\b{word}\b", text)) > 1 for word in words)
        assert "<ins>" not in text and "underline" not in text


def test_tables_as_markdown():
    page = markdown(make_table({"Greedy": 0.5, "ILP": 0.4}, "better").mark_best())
    assert "| ILP | best better **0.4000** ±0.1000 [−0.6000, 1.4000] |" in page and "ioi, model_1" in page


def test_wide_tables_are_split_in_the_terminal():
    columns = tuple((f"task{i}", "model") for i in range(7))
    entries, worse = (
        tuple(Entry("CMD", "", f"task{i}", "model", least + i / 10, 0.01) for i in range(7)) for least in (0, 1)
    )
    rows = (TableRow("Greedy + Bootstrapping + PNR", entries), TableRow("Greedy", worse))
    table = StudyTable("main", "caption", columns, rows).mark_best()
    console = Console(width=80, file=io.StringIO())
    console.print(*terminal(table, 80), sep="\n")
    text = console.file.getvalue()
    assert "…" not in text and all(f"0.{i}000 ±0.0100" in text and f"task{i}" in text for i in range(7))
    assert len(terminal(table, 80)) == 3 and len(terminal(table, 200)) == 1


def test_seeds_that_share_examples_share_resamples():
    """Equal curves of two seeds on the same examples: their mean is as uncertain as one of them, not less."""
    rng = np.random.default_rng(0)
    full, empty, values = rng.normal(3, 1, 20), rng.normal(0, 1, 20), rng.normal(2, 1, (3, 20))
    curve = Curve((0.1, 0.5, 1.0), (1, 5, 10), (1, 5, 10), values, full, empty)
    one, two = Repeats(CMD, "Greedy", GREEDY, (curve,), (0,)), Repeats(CMD, "Greedy", GREEDY, (curve, curve), (0, 0))
    np.testing.assert_allclose(two.resampled.draws, one.resampled.draws)
    other = Repeats(CMD, "Greedy", GREEDY, (curve, curve), (0, 1))
    assert other.resampled.draws.std() < 0.9 * one.resampled.draws.std()


@pytest.mark.parametrize("place", ["cells/mine.txt", "cells/sub/mine.txt", "mine.txt", ".gitignore"])
def test_files_of_the_user_are_never_removed(edgewise, copied, place):
    (copied / place).parent.mkdir(exist_ok=True)
    (copied / place).write_text("mine")
    line = refused(edgewise, "study", *SMALL, "--seeds", 1, "--out", copied, "--overwrite")
    assert "aren't part of it: " in line and place in line
    assert (copied / place).read_text() == "mine"


def test_a_study_of_an_earlier_version_is_refused(edgewise, copied):
    path = copied / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 5}))
    for words in (("study", *SMALL, "--seeds", 2, "--out", copied), ("report", copied), ("figures", copied)):
        assert "study.json has format 'edgewise-study' version 5" in refused(edgewise, *words)


@pytest.mark.parametrize("words", [("--model", "typo"), ("--device", "bogus"), ("--dtype", "int3"), ("--bos", "maybe"),
                                   ("--task", "typo.jsonl"), ("--task", "typo"), ("--resamples-grid", 1),
                                   ("--kappa-grid", -1), ("--examples", 0), ("--metric", "accuracy"),
                                   ("--pnr-grid", "half")])  # fmt: skip
def test_a_command_that_fails_changes_nothing(edgewise, copied, tmp_path, words):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    refused(edgewise, "study", *words, "--out", tmp_path / "study", "--overwrite")
    refused(edgewise, "study", *words, "--out", tmp_path / "new" / "er")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


def test_folders_of_others_are_not_touched(edgewise, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    assert "aren't part of it: " in refused(edgewise, "study", "--out", tmp_path, "--overwrite")
    (tmp_path / "study.json").write_text('{"title": "my clinical study"}')
    assert "aren't part of it: " in refused(edgewise, "study", "--out", tmp_path, "--overwrite")
    assert "this edgewise reads edgewise-study" in refused(edgewise, "study", "--out", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.json", "thesis.txt"]


def test_a_cell_that_contradicts_the_plan_raises(copied):
    (unit,) = (copied / "cells").glob("cell-*/unit.json")
    original = unit.read_text()
    for change, message in (
        (lambda a: a.pop("overlap"), "lacks overlap"), (lambda a: a.update(more=1), "more"),
        (lambda a: a["accuracy"].update(top="1"), "accuracy.top"), (lambda a: a["overlap"].pop("CMD"), "CMD"),
        (lambda a: a["overlap"]["CMD"].update(greedy=["a"]), "overlap"),
        (lambda a: a["overlap"]["CMD"].pop("chosen"), "chosen"), (lambda a: a.update(examples=3), "examples"),
        (lambda a: a.update(costs={"eap": 1}), "costs"),
    ):  # fmt: skip
        record = json.loads(original)
        change(record["about"])
        unit.write_text(json.dumps(record))
        with pytest.raises(InputError, match=message) as raised:
            study_tables(read_study(copied))
        assert str(unit.parent) in str(raised.value)


@pytest.mark.parametrize(
    "change, message",
    [(lambda r, p: p.pop("models"), "lacks models"), (lambda r, p: p.update(seeds="2"), "seeds"),
     (lambda r, p: p.update(seeds=True), "seeds"), (lambda r, p: p.update(models="demo"), "models"),
     (lambda r, p: p["grid"].update(tau=[5.5]), r"tau\[0\]"), (lambda r, p: p.update(own=1), "own"),
     (lambda r, p: p["grid"].update(solvers=[3]), "name of one"), (lambda r, p: p.update(learner=3), "learner"),
     (lambda r, p: p["grid"].update(tau=[5] * 9000, pnr=[0.5] * 9000), "at most 100 values"),
     (lambda r, p: p["settings"].pop("scorer"), "lacks scorer"), (lambda r, p: p.update(settings=[]), "settings"),
     (lambda r, p: p["settings"]["scorer"].update(steps="5"), "steps"), (lambda r, p: r.update(plan=3), "plan"),
     (lambda r, p: p["settings"]["bootstrap"].pop("seed"), "lacks seed"), (lambda r, p: r.update(more=1), "more"),
     (lambda r, p: p["settings"].update(fill=0), "fill"), (lambda r, p: r.update(made_from=3), "made_from"),
     (lambda r, p: p.update(scorers=[3]), "name of one"), (lambda r, p: p.update(scorers=3), "scorers")],
)  # fmt: skip
def test_a_damaged_study_file_raises(copied, change, message):
    path = copied / "study.json"
    record = json.loads(path.read_text())
    change(record, record["plan"])
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=message) as raised:
        read_study(copied)
    assert "study.json" in str(raised.value)
