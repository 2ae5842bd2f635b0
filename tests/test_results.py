"""A run's record and folder: written from Python as from the command line, and saying what was found."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import test_cli
from conftest import build, random_task

from edgewise import (
    CMD,
    CPR,
    Bootstrap,
    Circuit,
    Greedy,
    Ilp,
    InputError,
    NoFilter,
    Recipe,
    RunRecord,
    Settings,
    as_published,
    discover,
    load_model,
    load_task,
    paper_recipes,
    read_circuits,
    read_result,
    score_edges,
    summarise,
    wrap_model,
    write_result,
)
from edgewise.evaluate import faithfulness_intervals
from edgewise.report import figures

edgewise = test_cli.edgewise
SIZES = (0.05, 0.3, 1.0)


@pytest.fixture(scope="module")
def found():
    model, train, test = wrap_model(build("gpt2"), name="tiny"), random_task(9), random_task(8, seed=1)
    return discover(model, train, test, Settings(sizes=SIZES), stability=3, seed=5)


def test_a_folder_from_python_is_as_good_as_one_from_the_command_line(edgewise, tmp_path):
    """The same files, and the same contents but for timings."""
    words = ("run", "--examples", 12, "--seed", 3, "--out", tmp_path / "one", "--json")
    assert edgewise(*words)[0] == 0
    model = load_model("demo")
    train, test = (load_task("ioi", model, split, 12, 3) for split in ("train", "test"))
    settings = Settings(bootstrap=Bootstrap(seed=3))
    record = write_result(discover(model, train, test, settings, stability=5, seed=3), str(tmp_path / "two"))
    names = [sorted(str(p.relative_to(tmp_path / f)) for p in (tmp_path / f).rglob("*")) for f in ("one", "two")]
    assert names[0] == names[1]
    assert edgewise("report", tmp_path / "two")[0] == 0 and edgewise("compare", tmp_path / "two")[0] == 0
    runs = [json.loads((tmp_path / f / "run.json").read_text()) for f in ("one", "two")]
    assert all(run.pop("seconds")["total"] > 0 for run in runs) and runs[0] == runs[1]
    assert replace(read_result(tmp_path / "two").run, seconds={}).record() == replace(record, seconds={}).record()
    for name in ("statistics.npz", "circuits.npz"):
        one, two = (np.load(tmp_path / f / name) for f in ("one", "two"))
        assert one.files == two.files and all(np.array_equal(one[key], two[key]) for key in one.files)


def test_a_record_survives_its_file_and_says_what_it_lacks(found):
    record = RunRecord.of(found)
    plain = json.loads(json.dumps(record.record(), allow_nan=False))
    assert RunRecord.from_record(plain).record() == plain
    for field in fields(record):
        with pytest.raises(InputError, match=field.name):
            RunRecord.from_record({name: value for name, value in plain.items() if name != field.name})


def test_a_folder_without_its_record_is_refused_in_words(found, tmp_path):
    write_result(found, tmp_path / "r")
    run = json.loads((tmp_path / "r" / "run.json").read_text())
    (tmp_path / "r" / "run.json").write_text(json.dumps({k: run[k] for k in ("format", "version")}))
    with pytest.raises(InputError, match="lacks model"):
        read_result(tmp_path / "r")


def test_statistics_in_the_folder_are_those_of_the_bootstrap(found, tmp_path):
    write_result(found, tmp_path / "r")
    held = np.load(tmp_path / "r" / "statistics.npz")
    scores = np.load(tmp_path / "r" / "scores" / "scores.npy").astype(np.float64)
    drawn = np.random.default_rng(0).integers(9, size=(10, 9))
    means = np.array([scores[rows].mean(0) for rows in drawn])
    half = 1.96 * means.std(0, ddof=1) / np.sqrt(10)
    mean = means.mean(0)
    np.testing.assert_allclose(held["mean"], mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(held["low"], mean - half, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(held["high"], mean + half, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(held["kept"], np.abs(mean) > half)
    np.testing.assert_array_equal(held["sign_unstable"], (means > 0).any(0) & (means < 0).any(0))
    relevant = np.abs(mean) > 1e-6
    run = read_result(tmp_path / "r").run
    assert run.sign_instability == held["sign_unstable"][relevant].mean() and 0 < run.sign_instability < 1
    assert run.edges_kept_by_bootstrap == held["kept"].sum()


def test_circuits_in_the_folder_are_those_that_were_found(found, tmp_path):
    write_result(found, tmp_path / "r")
    circuits = read_circuits(tmp_path / "r")
    for outcome in found.outcomes:
        assert circuits[outcome.benchmark, outcome.recipe.name] == tuple(s.circuit for s in outcome.selections)
    for benchmark in (CMD, CPR):
        for share, selection in zip(SIZES, found.best(benchmark).selections, strict=True):
            path = tmp_path / "r" / "circuits" / f"{benchmark.name.lower()}-{share:g}.json"
            assert Circuit.load(path) == selection.circuit
            assert json.loads(path.read_text())["edgewise"]["chosen_on"] == "all"


def test_a_run_says_how_long_scoring_took(found):
    assert found.seconds["score"] == found.scores.provenance["seconds"] > 0
    assert {"score", "bootstrap", "select", "evaluate", "overlap", "total"} < set(found.seconds)
    assert found.seconds["total"] >= found.seconds["select"] + found.seconds["evaluate"]


def test_as_published_the_filter_sees_the_evaluated_examples(found):
    settings = as_published(found.settings)
    theirs = discover(found.model, found.train, found.test, settings)
    train, test = (score_edges(found.model, task) for task in (found.train, found.test))
    seen, unseen = (summarise(scores, settings.bootstrap) for scores in (test, train))
    assert not np.allclose(seen.score, unseen.score)
    np.testing.assert_array_equal(theirs.statistics.mean, seen.mean)
    np.testing.assert_array_equal(found.statistics.mean, unseen.mean)
    for outcome in theirs.outcomes:
        expected = seen.score if outcome.recipe.filter != NoFilter() else train.mean()
        np.testing.assert_array_equal(outcome.rankings[0].value, expected)


def test_any_recipes_can_be_tried(found):
    recipes = {CPR: [Recipe(Ilp()), Recipe(Greedy(), alias="mine")]}
    mine = discover(found.model, found.train, found.test, found.settings, recipes)
    assert [(o.benchmark, o.recipe.name) for o in mine.outcomes] == [(CPR, "ILP"), (CPR, "mine")]
    assert mine.exported(CPR) == mine.best(CPR)  # a name of one's own doesn't say that nobody looked at test
    known = {o.recipe.name: o.area for o in found.of(CPR)}
    assert [o.area for o in mine.outcomes] == [known["ILP"], known["Greedy"]]
    with pytest.raises(InputError, match="no recipe was tried"):
        mine.best(CMD)
    assert paper_recipes(found.settings.bootstrap)[CMD][0] == Recipe()


@pytest.mark.parametrize("wrong", [{}, [Recipe()], {CMD: Recipe()}, {CMD: []}, {CMD: ["greedy"]}, {"CMD": [Recipe()]}])
def test_what_are_no_recipes_is_refused_before_the_work(found, wrong, monkeypatch):
    monkeypatch.setattr("edgewise.study.remember.score_edges", lambda *_, **__: pytest.fail("the work has begun"))
    with pytest.raises(InputError, match="recipes"):
        discover(found.model, found.train, found.test, found.settings, wrong)


def test_recipes_of_one_name_are_told_apart_by_their_parameters(found, tmp_path):
    recipes = {CMD: [Recipe(filter=Bootstrap(5)), Recipe(filter=Bootstrap(20)), Recipe(Ilp())]}
    mine = discover(found.model, found.train, found.test, found.settings, recipes)
    names = ["Bootstrapping (tau 5)", "Bootstrapping (tau 20)", "ILP"]
    assert [outcome.recipe.name for outcome in mine.outcomes] == names
    assert list(write_result(mine, tmp_path / "r").areas["CMD"]) == names
    assert [name for _, name in read_circuits(tmp_path / "r")] == names
    with pytest.raises(InputError, match="give each an alias"):
        discover(
            found.model, found.train, found.test, found.settings, {CMD: [Recipe(alias="a"), Recipe(Ilp(), alias="a")]}
        )


def test_the_figure_shows_every_methods_faithfulness_and_the_bests_interval(found, tmp_path):
    write_result(found, tmp_path / "r")
    result = read_result(tmp_path / "r")
    for benchmark, best in ((CMD, min), (CPR, max)):
        rows = result.of(benchmark)
        _, axis = plt.subplots()
        figures._draw(axis, benchmark, rows)
        drawn = {line.get_label().rsplit("  ", 1)[0]: line for line in axis.lines if "  " in str(line.get_label())}
        assert set(drawn) == {row.name for row in rows}
        for row in rows:
            np.testing.assert_allclose(drawn[row.name].get_ydata(), row.curve.faithfulness)
            assert tuple(drawn[row.name].get_xdata()) == SIZES
        row = best(rows, key=lambda row: row.area)
        curve = row.curve
        ends = faithfulness_intervals(curve.values, curve.full, curve.empty)
        (band,) = axis.collections
        heights = band.get_paths()[0].vertices[:, 1]
        for end in [one.low for one in ends] + [one.high for one in ends]:
            assert np.isclose(heights, end).any()
        plt.close()
    for kind in ("png", "svg"):
        assert (tmp_path / "r" / "figures" / f"faithfulness.{kind}").stat().st_size > 5000


def test_a_record_names_the_models_content_and_is_shown_in_one_line(found):
    record = RunRecord.of(found)
    assert record.weights == found.model.content != found.model.digest
    assert repr(record) == "RunRecord('tiny' on 'random', CMD, CPR, seed 5)"
