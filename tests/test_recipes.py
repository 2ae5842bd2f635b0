"""Recipes, the behaviours of the paper's public script, the stability of circuits, tuning."""

from __future__ import annotations

import json

import numpy as np
import pytest
from commands import refused
from conftest import build, random_task

from edgewise import (
    CMD,
    CPR,
    Bootstrap,
    Circuit,
    EdgeScores,
    Graph,
    Greedy,
    Ilp,
    InputError,
    Recipe,
    Settings,
    Shrinkage,
    Task,
    TopN,
    jaccard,
    read_result,
    score_edges,
    summarise,
    tune,
    wrap_model,
)
from edgewise.io.formats import read_edge_file
from edgewise.recipes import as_published, overlap, select_circuits
from edgewise.recipes.settings import PUBLISHED, published_words
from edgewise.recipes.stability import recipe_overlap
from edgewise.recipes.tuning import FOLDS, tuning_recipes, tuning_task
from edgewise.runtime import Session

GRAPH = Graph(2, 2, 4)
SIZES = (0.1, 0.4, 0.8, 1.0)


def scores(n_examples=20, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    return EdgeScores(GRAPH, rng.normal(0, 1, GRAPH.n_edges) + noise * rng.normal(0, 1, (n_examples, GRAPH.n_edges)))


SOLVERS = [Greedy(), TopN(), Ilp()]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("measure", [CMD, CPR])
def test_failed_edges_are_selected_last_and_as_published_never(solver, measure):
    settings = Settings(sizes=SIZES, bootstrap=Bootstrap(10, "normal"))
    published = as_published(settings)
    result = summarise(scores(), settings.bootstrap)
    assert 0 < result.kept.sum() < 0.8 * GRAPH.n_edges
    default = select_circuits(result.ranking, Recipe(solver, settings.bootstrap), measure, settings)
    assert default[-1].circuit == Circuit.full(GRAPH)
    from_published = select_circuits(result.ranking, Recipe(solver, published.bootstrap), measure, published)
    assert [s.n_requested for s in from_published] == [0, *(s.n_requested for s in default)]
    assert from_published[0].n_kept == 0
    for selection in from_published:
        assert not selection.circuit.mask[~result.kept].any()
        assert selection.circuit == selection.circuit.prune() and selection.n_kept <= selection.n_requested
    assert from_published[-1].n_kept <= result.kept.sum()
    assert from_published[-1].circuit == from_published[-2].circuit


def test_without_a_filter_all_edges_can_be_selected():
    result = summarise(scores()).ranking
    settings = as_published(Settings(sizes=SIZES))
    assert select_circuits(result, Recipe(Ilp()), CMD, settings)[-1].circuit == Circuit.full(GRAPH)


@pytest.mark.parametrize("solver", SOLVERS)
def test_as_published_pnr_has_no_effect(solver):
    result = summarise(scores()).ranking
    settings = Settings(sizes=SIZES)
    plain, bound, from_published, published_plain = (
        [s.circuit for s in select_circuits(result, Recipe(solver, pnr=pnr), CMD, how)]
        for pnr, how in (
            (None, settings),
            (0.9, settings),
            (0.9, as_published(settings)),
            (None, as_published(settings)),
        )
    )
    assert bound != plain and from_published == published_plain and from_published[1:] == plain


def test_every_behaviour_of_the_public_script_is_a_described_setting():
    default, from_published = vars(Settings()), vars(as_published(Settings()))
    changed = {name for name in default if default[name] != from_published[name]}
    ways = [vars(one["bootstrap"]) for one in (default, from_published)]
    names = {"on_evaluated": "filter_on_test"}
    changed |= {names.get(name, name) for name in ways[0] if ways[0][name] != ways[1][name]}
    assert changed - {"bootstrap"} == set(PUBLISHED)
    assert as_published(as_published(Settings())) == as_published(Settings())


def test_a_run_as_published(edgewise, tmp_path):
    words = ("run", "--examples", 12, "--as-published", "--out", tmp_path / "out")
    code, out, _ = edgewise(*words)
    assert code == 0 and all(text in " ".join(out.split()) for text in PUBLISHED.values())
    result = read_result(tmp_path / "out")
    assert published_words(result.settings) == dict(PUBLISHED) and result.settings.sizes[0] == 0
    filtered = next(outcome for outcome in result.of(CMD) if outcome.name == "Bootstrapping")
    assert filtered.curve.n_kept[-1] <= result.statistics.kept.sum() < result.run.graph.n_edges
    assert edgewise("report", tmp_path / "out")[0] == 0


def test_overlap_of_circuits_by_hand():
    one, other = np.zeros((2, GRAPH.n_edges), bool)
    one[:4], other[2:6] = True, True
    assert jaccard(Circuit(GRAPH, one), Circuit(GRAPH, other)) == pytest.approx(2 / 6)
    assert jaccard(Circuit.empty(GRAPH), Circuit.empty(GRAPH)) == 1
    assert jaccard(Circuit.empty(GRAPH), Circuit(GRAPH, one)) == 0


def test_equal_examples_give_one_circuit_and_noisy_ones_many():
    settings = Settings(sizes=SIZES)
    for recipe in (Recipe(), Recipe(Ilp(), Bootstrap(5)), Recipe(TopN(), Shrinkage(1), 0.5)):
        np.testing.assert_array_equal(recipe_overlap(scores(noise=0), recipe, CMD, settings, 4), 1)
    noisy = recipe_overlap(scores(noise=20), Recipe(Ilp()), CMD, settings, 4)
    assert (noisy[:-1] < 1).all() and noisy[-1] == 1


def test_overlap_selects_from_resampled_rows():
    seen = []

    def select(rows):
        seen.append(rows.values)
        return [Circuit.full(GRAPH)]

    given = scores()
    assert overlap(given, select, 3, seed=5).tolist() == [1]
    known = {row.tobytes() for row in given.values}
    assert len(seen) == 3 and all(rows.shape == given.values.shape for rows in seen)
    assert all(row.tobytes() in known for rows in seen for row in rows)
    with pytest.raises(InputError, match="at least 2"):
        overlap(given, select, 1)
    with pytest.raises(InputError, match="single row"):
        overlap(scores(1), select, 3)


@pytest.fixture(scope="module")
def tuned():
    model, task = wrap_model(build("gpt2"), name="tiny"), random_task(24)
    settings = Settings(sizes=(0.05, 0.3, 1.0))
    return model, task, settings, score_edges(model, task)


def test_circuits_are_evaluated_on_examples_that_did_not_select_them(tuned, monkeypatch):
    """The circuits of a fold are selected from the scores of the other folds, and evaluated on that fold."""
    from edgewise.recipes import stages

    model, task, settings, given = tuned
    monkeypatch.setattr("edgewise.recipes.tuning.PNR", (None, 0.6))
    monkeypatch.setattr("edgewise.recipes.tuning.KAPPA", (1.0,))
    log = []
    summarised, evaluated = stages.summarise, stages.evaluate_circuits
    monkeypatch.setattr(stages, "summarise", lambda rows, way: (log.append(("rows", rows)), summarised(rows, way))[1])

    def evaluate(model, part, *rest, **more):
        log.append(("part", part))
        return evaluated(model, part, *rest, **more)

    monkeypatch.setattr(stages, "evaluate_circuits", evaluate)
    monkeypatch.setattr(stages, "CHUNK_SIZE", 10**9)  # one call per fold
    result = tune(model, task, given, settings)
    row_of = {given.values[row].tobytes(): row for row in range(len(task))}
    place = {example: row for row, example in enumerate(task.examples)}
    used, held_out = set(), []
    for kind, what in log:
        if kind == "rows":
            used = {row_of[row.tobytes()] for row in what.values}
        else:
            held = {place[example] for example in what.examples}
            held_out += sorted(held)
            assert not held & used and held | used == set(range(len(task)))
    assert sorted(held_out) == list(range(len(task)))
    for measure, better in ((CMD, min), (CPR, max)):
        areas = [one.area for one in result.candidates[measure]]
        assert result.best(measure).area == better(areas) and len(result.best(measure).folds) == FOLDS
        assert [recipe.name for recipe in result.chosen[measure]] == ["Tuned"]
        lead = result.lead[measure]
        assert lead.difference == pytest.approx(result.best(measure).area - result.candidates[measure][0].area)
        assert lead.low <= lead.high
        assert [one.recipe for one in result.candidates[measure]] == list(tuning_recipes(settings.bootstrap)[measure])
    record = json.loads(json.dumps(result.record()))
    assert record["chosen"]["CMD"]["area"] == result.best(CMD).area and record["examples"] == 24
    assert tune(model, task, given, settings) == result


def test_tuning_reports_its_folds():
    model, task, calls = wrap_model(build("gpt2")), random_task(8), []
    session = Session(progress=lambda *call: calls.append(call))
    tune(model, task, score_edges(model, task), recipes={CMD: [Recipe()]}, session=session)
    assert calls == [("tune", fold, FOLDS) for fold in range(FOLDS + 1)]


def test_tuning_does_not_use_test_examples():
    task = random_task(30)
    train, validation, test = (Task("t", "s", task.examples[a:b]) for a, b in ((0, 15), (10, 25), (22, 30)))
    assert tuning_task(train, validation, test).examples == task.examples[:22]
    with pytest.raises(InputError, match="`split` column"):
        tuning_task(task, task, task)


def test_a_tuned_run(edgewise, tmp_path, monkeypatch):
    monkeypatch.setattr("edgewise.recipes.tuning.PNR", (None, 0.6))
    monkeypatch.setattr("edgewise.recipes.tuning.KAPPA", (1.0,))
    code, out, _ = edgewise("run", "--examples", 8, "--tune", "--stability", 2, "--out", tmp_path / "out")
    assert code == 0 and "Tuned CMD" in out and "held-out examples of train + validation" in out
    result = read_result(tmp_path / "out")
    run, tuning = result.run, result.tuning
    assert (run.train.split, run.train.examples, run.test.examples) == ("train + validation", 16, 8)
    assert [len(tuning.candidates[measure]) for measure in (CMD, CPR)] == [3 * 5 * 2, 3 * 5]
    assert tuning.best(CMD).area == min(candidate.area for candidate in tuning.candidates[CMD])
    assert tuning.lead[CMD].difference <= 0
    assert set(result.overlap) == {CMD, CPR} and len(result.overlap[CMD]["Greedy"]) == 10
    # The exported circuits are those of the tuned recipe, not of the best one on test.
    tuned, about = result.best(CMD), read_edge_file(tmp_path / "out" / "circuits" / "cmd-0.05.npz").about
    assert tuned.name == "Tuned" and tuned.chosen_on == about["chosen_on"] == "train + validation"
    assert tuned.recipe.combination == tuning.best(CMD).recipe.name == about["recipe"]
    assert "give one of them" in refused(edgewise, "run", "--tune", "--as-published", "--out", tmp_path / "more")
    assert "2 to 1000" in refused(edgewise, "run", "--stability", 1, "--out", tmp_path / "more")
