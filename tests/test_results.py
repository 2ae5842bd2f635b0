"""Result folders: what is written is read back, and damaged or contradictory files raise InputError."""

from __future__ import annotations

import copy
import json
import random
import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from conftest import build, random_task

from edgewise import (
    CMD,
    CPR,
    Bootstrap,
    Circuit,
    EapIg,
    Greedy,
    Ilp,
    InputError,
    NoFilter,
    Recipe,
    Settings,
    discover,
    load_model,
    load_task,
    read_result,
    score_edges,
    summarise,
    wrap_model,
    write_result,
)
from edgewise.evaluate import Faithfulness, Measure
from edgewise.io.formats import read_edge_file
from edgewise.recipes import as_published
from edgewise.report.comparisons import areas_of_run, compare_recipes
from edgewise.report.overview import run_facts
from edgewise.report.tables import area_table
from edgewise.results import convert_to_submission, result_summary, write_run_data

SIZES = (0.05, 0.3, 1.0)
SETTINGS = Settings(sizes=SIZES)
STATISTICS = ("mean", "low", "high", "kept", "sign_unstable", "score")


@pytest.fixture(scope="module")
def inputs():
    return wrap_model(build("gpt2"), name="tiny"), random_task(9), random_task(8, seed=1)


@pytest.fixture(scope="module")
def result(inputs):
    recipes = {m: [Recipe(), Recipe(Ilp())] for m in (CMD, CPR)}
    validation = random_task(6, seed=2)
    return discover(*inputs, SETTINGS, validation=validation, tune_among=recipes, learn_budget=0, stability=3, seed=5)


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "r"
    write_result(result, path)
    return path


@pytest.fixture
def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "r")


def test_a_folder_is_read_back_as_the_discovery_that_was_written(result, folder):
    read = read_result(folder)
    assert read.run == result.run and read.settings == result.settings and read.prompts == result.prompts
    assert read.tuning == result.tuning and read.overlap.keys() == result.overlap.keys()
    for measure, by_recipe in result.overlap.items():
        for name, values in by_recipe.items():
            np.testing.assert_array_equal(read.overlap[measure][name], values)
    for name in STATISTICS:
        np.testing.assert_array_equal(getattr(read.statistics, name), getattr(result.statistics, name))
    np.testing.assert_array_equal(read.scores.values, result.scores.values)
    for ours, theirs in zip(read.outcomes, result.outcomes, strict=True):
        assert (ours.measure, ours.recipe, ours.chosen_on, ours.choices) == (
            theirs.measure, theirs.recipe, theirs.chosen_on, theirs.choices)  # fmt: skip
        assert ours.circuits == theirs.circuits and ours.area == theirs.area
        assert [s.record() for s in ours.selections] == [s.record() for s in theirs.selections]
        np.testing.assert_array_equal(ours.curve.values, theirs.curve.values)
    for measure in (CMD, CPR):
        assert read.best(measure).recipe == result.best(measure).recipe
    summary = json.loads(json.dumps(result_summary(read), allow_nan=False))
    assert summary == json.loads(json.dumps(result_summary(result)))
    assert summary["areas"]["CMD"]["ILP"] == next(o.area for o in result.of(CMD) if o.name == "ILP")
    assert repr(read) == "Discovery('tiny' on 'random': CMD of 9 recipes, CPR of 5 recipes)"


def test_python_and_the_command_line_write_equal_folders(edgewise, tmp_path):
    assert edgewise("run", "--examples", 12, "--seed", 3, "--out", tmp_path / "one", "--json")[0] == 0
    model = load_model("demo")
    train, test = (load_task("ioi", model, split, 12, 3) for split in ("train", "test"))
    settings = Settings(bootstrap=Bootstrap(seed=3))
    found = discover(model, train, test, settings, learn_budget=0, stability=5, seed=3)
    write_result(found, str(tmp_path / "two"))
    names = [sorted(str(p.relative_to(tmp_path / f)) for p in (tmp_path / f).rglob("*")) for f in ("one", "two")]
    assert names[0] == names[1]
    runs = [json.loads((tmp_path / f / "run.json").read_text()) for f in ("one", "two")]
    assert bool(runs[0].pop("made_from")) > bool(runs[1].pop("made_from"))  # only a command recognises its result
    assert all(run.pop("seconds")["total"] > 0 for run in runs) and runs[0] == runs[1]
    for name in ("statistics.npz", "circuits.npz"):
        one, two = (np.load(tmp_path / f / name) for f in ("one", "two"))
        assert one.files == two.files and all(np.array_equal(one[key], two[key]) for key in one.files)


def test_exported_circuits_have_the_ranking_that_they_were_selected_from(result, tmp_path):
    write_run_data(tmp_path, result)
    for measure in (CMD, CPR):
        exported = result.best(measure)
        for share, circuit, ranking in zip(SIZES, exported.circuits, exported.rankings, strict=True):
            file = read_edge_file(tmp_path / "circuits" / f"{measure.name.lower()}-{share:g}.npz")
            assert Circuit(file.graph, file.require_mask()) == circuit and file.about["chosen_on"] == "all"
            inside = circuit.mask
            np.testing.assert_array_equal(file.score[inside], ranking.value[inside].astype(np.float32))
            assert np.isnan(file.score[~inside]).all()


def test_seconds_of_scoring_are_those_of_computing_the_scores(result):
    seconds = result.run.seconds
    assert seconds["score"] == result.scores.provenance["seconds"] > 0
    assert {"score", "rank", "select", "evaluate", "overlap", "total"} < set(seconds)
    assert seconds["total"] >= seconds["select"] + seconds["evaluate"]


def test_as_published_the_filter_uses_the_evaluated_examples(inputs, result):
    model, train, test = inputs
    settings = as_published(SETTINGS)
    published = discover(*inputs, settings)
    on_train, on_test = score_edges(model, train), score_edges(model, test)
    filtered = summarise(on_test, settings.bootstrap)
    assert not np.allclose(filtered.score, summarise(on_train, settings.bootstrap).score)
    np.testing.assert_array_equal(published.statistics.mean, filtered.mean)
    np.testing.assert_array_equal(result.statistics.mean, summarise(on_train, settings.bootstrap).mean)
    for outcome in published.outcomes:
        expected = filtered.score if outcome.recipe.filter != NoFilter() else on_train.mean()
        np.testing.assert_array_equal(outcome.rankings[0].value, expected)


def test_custom_recipes(inputs, result, tmp_path):
    custom = discover(*inputs, SETTINGS, {CPR: [Recipe(Ilp()), Recipe(Greedy(), alias="mine")]})
    assert [(o.measure, o.name) for o in custom.outcomes] == [(CPR, "ILP"), (CPR, "mine")]
    assert custom.best(CPR).area == max(outcome.area for outcome in custom.outcomes)
    areas = {o.name: o.area for o in result.of(CPR)}
    assert [o.area for o in custom.outcomes] == [areas["ILP"], areas["Greedy"]]
    with pytest.raises(InputError, match="no recipe was tried"):
        custom.best(CMD)
    (tmp_path / "r").mkdir()
    write_run_data(tmp_path / "r", custom)
    with pytest.raises(InputError, match="no circuits for CMD"):
        convert_to_submission(tmp_path / "r", tmp_path / "out", "circuits", "ioi", "gpt2", measure=CMD)


@pytest.mark.parametrize(
    "wrong", [{}, [], [Recipe()], {CMD: Recipe()}, {CMD: []}, {CMD: ["greedy"]}, {"CMD": [Recipe()]}]
)
def test_invalid_recipes_raise_before_the_work(inputs, wrong, monkeypatch):
    monkeypatch.setattr("edgewise.recipes.stages.score_edges", lambda *_, **__: pytest.fail("the work has begun"))
    with pytest.raises(InputError, match="recipes"):
        discover(*inputs, SETTINGS, wrong)


def test_recipes_of_one_name_get_their_parameters_as_part_of_it(inputs, tmp_path):
    recipes = {CMD: [Recipe(filter=Bootstrap(5)), Recipe(filter=Bootstrap(20)), Recipe(Ilp())]}
    result = discover(*inputs, SETTINGS, recipes)
    names = ["Bootstrapping (tau 5)", "Bootstrapping (tau 20)", "ILP"]
    assert [outcome.name for outcome in result.outcomes] == names
    (tmp_path / "r").mkdir()
    write_run_data(tmp_path / "r", result)
    assert [outcome.name for outcome in read_result(tmp_path / "r").outcomes] == names
    pairs_in_order = [(CPR, recipes[CMD][0]), (CMD, recipes[CMD][0]), (CPR, recipes[CMD][0])]
    listed = discover(*inputs, SETTINGS, pairs_in_order)
    assert [(outcome.measure, outcome.recipe) for outcome in listed.outcomes] == pairs_in_order
    with pytest.raises(InputError, match="give each a different alias"):
        discover(*inputs, SETTINGS, {CMD: [Recipe(alias="a"), Recipe(Ilp(), alias="a")]})


@dataclass(frozen=True)
class Doubled(Measure):
    rank: ClassVar[str] = "signed"
    better: ClassVar[int] = 1
    factor: float = 2.0

    def height(self, faithfulness):
        return self.factor * faithfulness


@dataclass(frozen=True)
class Half(Faithfulness):
    def compute(self, circuit, full, empty):
        return 0.5 * (circuit - empty) / (full - empty)


@dataclass(frozen=True)
class Rough(EapIg):
    steps: int = 1


def test_custom_methods_are_read_back_as_placeholders(inputs, tmp_path):
    settings = replace(SETTINGS, scorer=Rough(), faithfulness=Half())
    result = discover(*inputs, settings, {Doubled(): [Recipe()]})
    write_result(result, tmp_path / "r")
    read = read_result(tmp_path / "r")
    assert read.settings.record() == result.settings.record() and read.settings.scorer.name == "Rough"
    (outcome,) = read.outcomes
    assert outcome.measure.record() == {"name": "Doubled", "factor": 2.0}
    assert outcome.circuits == result.outcomes[0].circuits
    np.testing.assert_array_equal(outcome.curve.values, result.outcomes[0].curve.values)
    with pytest.raises(InputError, match="'Half' is a custom faithfulness that isn't registered here"):
        _ = outcome.area
    with pytest.raises(InputError, match="'Doubled' is a custom measure"):
        outcome.measure.height(np.ones(1))


def test_incomplete_folders_and_those_of_other_versions_are_refused(copied):
    (copied / "curve.json").unlink()
    with pytest.raises(InputError, match="isn't a complete result folder"):
        read_result(copied)
    path = copied / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    written = "version 1, written by edgewise .*; this edgewise reads edgewise-result version 4; run it again"
    with pytest.raises(InputError, match=written):
        read_result(copied)


def use_everything(folder):
    """Read and print what `report`, `compare` and `convert` use."""
    result = read_result(folder)
    json.dumps(result_summary(result), allow_nan=False)
    run_facts(result)
    for measure in result.measures:
        area_table(result.of(measure), measure)
    json.dumps(compare_recipes(areas_of_run(result)), allow_nan=False)
    for outcome in result.outcomes:
        assert outcome.circuits


def places(value, at=()):
    """Yield the places in plain data where something can be changed. Of a list, only its first entry."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, part in inner:
        yield from places(part, (*at, name))


def changed(value, at, new):
    value = copy.deepcopy(value)
    inner = value
    for name in at[:-1]:
        inner = inner[name]
    if new is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = new
    return value


WRONG = (..., None, True, 0, -1, 2.5, 1e300, 10**30, "x", [], {}, [1], {"name": 3}, {"name": "x"})


@pytest.mark.parametrize("name", ["run.json", "curve.json"])
def test_any_change_of_a_record_is_read_or_raises_input_error(copied, name):
    path = copied / name
    original = json.loads(path.read_text())
    tries = [(at, new) for at in places(original) if at for new in WRONG]
    n_raised = 0
    for at, new in random.Random(0).sample(tries, 60):
        path.write_text(json.dumps(changed(original, at, new)))
        try:
            use_everything(copied)
        except InputError:
            n_raised += 1
    assert 25 < n_raised < 60


@pytest.mark.parametrize(
    "name, at, new, message",
    [("run.json", ("settings", "scorer"), {"steps": 5}, "scorer must be the name"),
     ("run.json", ("seed",), True, "seed"), ("run.json", ("model",), ..., "lacks model"),
     ("run.json", ("settings", "sizes"), [0.05, 1.0], "shape|other sizes"),
     ("run.json", ("test", "examples"), 9, "shape"), ("run.json", ("test", "examples"), 10**12, "shape"),
     ("run.json", ("accuracy", "top"), "1", "accuracy.top"), ("run.json", ("accuracy", "top"), 1.5, "from 0 to 1"),
     ("run.json", ("more",), 1, "more"), ("run.json", ("seconds", "total"), "long", "seconds"),
     ("run.json", ("overlap", "CMD", "Greedy"), 1, "overlap"),
     ("run.json", ("overlap", "CMD", "Greedy"), [2, 0, 0], "overlap"),
     ("run.json", ("tuning", "candidates", "CMD"), [], "candidates"),
     ("run.json", ("graph", "n_layers"), 10**9, "larger"),
     ("curve.json", (0, "sizes"), [], "other sizes"), ("curve.json", (1,), ..., "shape"),
     ("curve.json", (0, "recipe"), "ILP", "each once|once"), ("curve.json", (0, "recipe"), "x", "recipe of x"),
     ("curve.json", (0, "chosen_on"), None, "chosen_on"),
     ("curve.json", (0, "sizes", 0, "edges_kept"), 10**6, "impossible"),
     ("curve.json", (0, "sizes", 0, "share"), 0.06, "sizes"),
     ("curve.json", (0, "sizes", 0, "status"), "done", "done"),
     ("curve.json", (0, "sizes", 0, "edges_kept"), 0, "edges"), ("curve.json", (0, "filter"), 3, "filter")],
)  # fmt: skip
def test_a_contradictory_record_raises(copied, name, at, new, message):
    path = copied / name
    path.write_text(json.dumps(changed(json.loads(path.read_text()), at, new)))
    with pytest.raises(InputError, match=message) as raised:
        use_everything(copied)
    assert str(copied) in str(raised.value)


def test_damaged_arrays_of_circuits_raise(copied):
    path = copied / "circuits.npz"
    content, arrays = path.read_bytes(), dict(np.load(path))
    nan = arrays["values"].copy()
    nan[0, 0, 0] = np.nan
    for change in (
        {"values": nan}, {"full": arrays["full"][1:]}, {"masks": arrays["masks"][:, :, 1:]}, {"more": nan},
        {"masks": ~arrays["masks"]}, {"values": arrays["values"] * 1e200}, {"full": arrays["full"].astype(object)},
        {"values": arrays["values"].astype(complex)},
    ):  # fmt: skip
        np.savez_compressed(path, **arrays | change)
        with pytest.raises(InputError, match="isn't a complete result folder"):
            use_everything(copied)
    for damaged in (b"", content[:-9], content[200:], b"PK"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"circuits\.npz"):
            use_everything(copied)


@pytest.mark.parametrize("name", ["mean", "low", "high", "kept", "sign_unstable"])
def test_damaged_statistics_raise(copied, name):
    path = copied / "statistics.npz"
    arrays = dict(np.load(path))
    nan = np.full(arrays[name].shape, np.nan)
    wrong = [nan, np.full_like(nan, np.inf), arrays[name][1:], arrays[name].astype(int), arrays[name].astype(object)]
    for array in (*wrong, None):
        np.savez_compressed(path, **{k: value for k, value in (arrays | {name: array}).items() if value is not None})
        with pytest.raises(InputError, match="isn't a complete result folder"):
            read_result(copied)
