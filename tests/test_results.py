"""A run's record and folder: written from Python as from the command line, and saying what was found."""

from __future__ import annotations

import copy
import json
import random
import shutil
import zipfile
from dataclasses import fields, replace

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
from edgewise.cli.report import _facts
from edgewise.io.formats import read_edge_file
from edgewise.report.comparisons import contests_of_run, pairs
from edgewise.report.tables import area_table
from edgewise.results import convert_to_submission, read_statistics

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
    read = read_statistics(tmp_path / "r")
    for name in ("mean", "low", "high", "kept", "sign_unstable", "score"):
        np.testing.assert_array_equal(getattr(read, name), getattr(found.statistics, name))


def test_circuits_in_the_folder_are_those_that_were_found(found, tmp_path):
    write_result(found, tmp_path / "r")
    write_result(found, tmp_path / "field's", eap_ig_json=True)
    circuits = read_circuits(tmp_path / "r")
    for outcome in found.outcomes:
        assert circuits[outcome.measure, outcome.recipe.name] == tuple(s.circuit for s in outcome.selections)
    for measure in (CMD, CPR):
        best = found.best(measure)
        for share, selection, ranking in zip(SIZES, best.selections, best.rankings, strict=True):
            name, inside = f"circuits/{measure.name.lower()}-{share:g}", selection.circuit.mask
            packed, full = (
                read_edge_file(tmp_path / "r" / f"{name}.npz"),
                read_edge_file(tmp_path / "field's" / f"{name}.json"),
            )
            for held in (packed, full):
                assert (
                    Circuit(held.graph, held.require_mask()) == selection.circuit and held.about["chosen_on"] == "all"
                )
            assert packed.about == full.about
            np.testing.assert_array_equal(full.score, ranking.value)
            np.testing.assert_array_equal(packed.score[inside], ranking.value[inside].astype(np.float32))
            assert np.isnan(packed.score[~inside]).all()


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
    assert [(o.measure, o.recipe.name) for o in mine.outcomes] == [(CPR, "ILP"), (CPR, "mine")]
    assert mine.exported(CPR) == mine.best(CPR)  # a name of one's own doesn't say that nobody looked at test
    known = {o.recipe.name: o.area for o in found.of(CPR)}
    assert [o.area for o in mine.outcomes] == [known["ILP"], known["Greedy"]]
    with pytest.raises(InputError, match="no recipe was tried"):
        mine.best(CMD)
    assert paper_recipes(found.settings.bootstrap)[CMD][0] == Recipe()


@pytest.mark.parametrize("wrong", [{}, [Recipe()], {CMD: Recipe()}, {CMD: []}, {CMD: ["greedy"]}, {"CMD": [Recipe()]}])
def test_what_are_no_recipes_is_refused_before_the_work(found, wrong, monkeypatch):
    monkeypatch.setattr("edgewise.recipes.curves.score_edges", lambda *_, **__: pytest.fail("the work has begun"))
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


def test_a_record_names_the_models_content_and_is_shown_in_one_line(found):
    record = RunRecord.of(found)
    assert record.weights == found.model.content != found.model.digest
    assert repr(record) == "RunRecord('tiny' on 'random', CMD, CPR, seed 5)"


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "r"
    write_result(found, folder)
    return folder


def shown(folder):
    """All that `report`, `compare` and `convert` read and print."""
    result = read_result(folder)
    json.dumps(result.run.record(), allow_nan=False)
    _facts(result.run)
    for measure in result.measures:
        area_table(result.of(measure), measure)
    json.dumps([pair.record() for pair in pairs(contests_of_run(result))], allow_nan=False)
    read_circuits(folder)
    read_statistics(folder)


def places(value, at=()):
    """Where in plain data something could be changed; of a list, its first entry."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places(one, (*at, name))


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
def test_whatever_a_record_says_it_is_shown_or_refused_in_words(written, tmp_path, name):
    """Values of any kind at any place: nothing but our own error, and no traceback when it is printed."""
    shutil.copytree(written, tmp_path / "r")
    shown(tmp_path / "r")
    path = tmp_path / "r" / name
    whole = json.loads(path.read_text())
    tries = [(at, new) for at in places(whole) if at for new in WRONG]
    refused = 0
    for at, new in random.Random(0).sample(tries, 80):
        path.write_text(json.dumps(changed(whole, at, new)))
        try:
            shown(tmp_path / "r")
        except InputError:
            refused += 1
    assert 50 < refused < 80


@pytest.mark.parametrize(
    "name, at, new, words",
    [("run.json", ("graph", "edges"), 7, "edges, but its record says"),
     ("run.json", ("areas", "CMD", "ILP"), 0.0, "areas"),
     ("run.json", ("settings", "scorer"), {"steps": 5}, "scorer must be the name"),
     ("run.json", ("seed",), True, "seed"),
     ("run.json", ("settings", "sizes"), [0.05, 1.0], "other sizes"), ("run.json", ("test", "examples"), 9, "shape"),
     ("run.json", ("test", "examples"), 10**12, "shape"),
     ("run.json", ("accuracy", "top"), "1", "accuracy.top must be"),
     ("run.json", ("portfolio",), {"CMD": {"0.1": 3}}, "portfolio.CMD.0.1 must be text"),
     ("run.json", ("more",), 1, "more"),
     ("run.json", ("seconds", "total"), "long", "seconds.total"),
     ("run.json", ("overlap", "CMD", "Greedy"), 1, "overlap"),
     ("run.json", ("circuits", "CMD", "chosen_on"), None, "chosen_on"),
     ("run.json", ("graph", "n_layers"), 10**9, "larger"),
     ("curve.json", (0, "area"), 0.123, "another interval"), ("curve.json", (0, "sizes"), [], "other sizes"),
     ("curve.json", (1,), ..., "other methods"), ("curve.json", (0, "method"), "ILP", "each once"),
     ("curve.json", (0, "sizes", 0, "metric"), 77.0, "contradicts its values"),
     ("curve.json", (0, "sizes", 0, "edges_kept"), 10**6, "can't be"),
     ("curve.json", (0, "interval", "low"), 9.0, "hold"),
     ("curve.json", (1, "against_greedy"), {}, "against_greedy"),
     ("curve.json", (0, "sizes", 0, "share"), 0.06, "sizes"),
     ("curve.json", (0, "sizes", 0, "edges_kept"), 0, "have other edges"), ("curve.json", (0, "filter"), 3, "filter")],
)  # fmt: skip
def test_a_record_that_contradicts_itself_or_its_arrays_is_refused(written, tmp_path, name, at, new, words):
    shutil.copytree(written, tmp_path / "r")
    path = tmp_path / "r" / name
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(changed(whole, at, new)))
    with pytest.raises(InputError, match=words) as refusal:
        shown(tmp_path / "r")
    assert str(tmp_path / "r") in str(refusal.value)


def test_arrays_of_a_result_that_are_not_whole_are_refused(written, tmp_path):
    shutil.copytree(written, tmp_path / "r")
    path = tmp_path / "r" / "circuits.npz"
    whole = path.read_bytes()
    arrays = dict(np.load(path))
    nan = arrays["values"].copy()
    nan[0, 0, 0] = np.nan
    for change in (
        {"values": nan}, {"full": arrays["full"][1:]}, {"masks": arrays["masks"][:, :, 1:]}, {"more": nan},
        {"masks": ~arrays["masks"]}, {"values": arrays["values"] + 1}, {"values": arrays["values"] * 1e200},
        {"empty": arrays["full"]}, {"full": arrays["full"].astype(object)},
        {"values": arrays["values"].astype(complex)},
    ):  # fmt: skip
        np.savez_compressed(path, **arrays | change)
        with pytest.raises(InputError, match="isn't a whole result folder"):
            shown(tmp_path / "r")
    for content in (b"", whole[:-9], whole[200:], b"PK"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"circuits\.npz"):
            shown(tmp_path / "r")
    path.write_bytes(whole)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    shown(tmp_path / "r")


@pytest.mark.parametrize("name", ["mean", "low", "high", "kept", "sign_unstable"])
def test_statistics_that_are_not_whole_are_refused(written, tmp_path, name):
    shutil.copytree(written, tmp_path / "r")
    path = tmp_path / "r" / "statistics.npz"
    arrays = dict(np.load(path))
    nan = np.full(arrays[name].shape, np.nan)
    wrong = [nan, np.full_like(nan, np.inf), arrays[name][1:], arrays[name].astype(int), arrays[name].astype(object)]
    for one in (*wrong, None):
        np.savez_compressed(path, **{key: value for key, value in (arrays | {name: one}).items() if value is not None})
        with pytest.raises(InputError, match="isn't a whole result folder"):
            read_statistics(tmp_path / "r")
    np.savez_compressed(path, **arrays | {"low": arrays["high"] + 1})
    with pytest.raises(InputError, match="low end"):
        read_statistics(tmp_path / "r")


def test_a_run_of_one_benchmark_has_no_circuits_for_the_other(found, tmp_path):
    mine = discover(found.model, found.train, found.test, found.settings, {CPR: [Recipe()]})
    write_result(mine, tmp_path / "r")
    with pytest.raises(InputError, match="no circuits for CMD"):
        convert_to_submission(tmp_path / "r", tmp_path / "out", "circuits", "ioi", "gpt2", measure=CMD)
