"""Positions from end to end: discover() and the commands with circuits of (edge, span) pairs."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import DEMO, refused, write_tokens

from edgewise import (
    CMD,
    CPR,
    Circuit,
    EapIg,
    EdgeScores,
    Greedy,
    Ilp,
    InputError,
    Ranking,
    Recipe,
    Session,
    Settings,
    Store,
    TopKLearner,
    discover,
    learn_ranking,
    load_model,
    load_task,
    read_result,
    score_edges,
    solve,
    write_result,
)
from edgewise.graph import SpanGraph
from edgewise.learn import EdgePruning, Ensemble, UniformGradientSampling
from edgewise.score import SCORERS

SETTINGS = Settings(positions=True, sizes=(0.01, 0.05, 1.0))
RECIPES = {CMD: [Recipe(solver=Ilp())]}
FAST = TopKLearner(steps=2)


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


@pytest.fixture(scope="module")
def tasks(model):
    return [load_task("ioi", model, split, 10) for split in ("train", "test")]


@pytest.fixture(scope="module")
def discovery(model, tasks):
    return discover(model, *tasks, SETTINGS, RECIPES)


def test_a_result_folder_keeps_the_spans(discovery, tasks, tmp_path):
    graph = SpanGraph(DEMO, tasks[0].span_names)
    assert discovery.run.graph == discovery.scores.graph == graph
    write_result(discovery, tmp_path / "result")
    again = read_result(tmp_path / "result")
    assert again.run.graph == graph and again.settings == discovery.settings and again.settings.positions
    assert again.best(CMD).circuits == discovery.best(CMD).circuits
    assert Circuit.load(tmp_path / "result" / "circuits" / "cmd-0.05.npz") == discovery.best(CMD).circuit(0.05)
    assert "(edge, span) pairs" in (tmp_path / "result" / "README.md").read_text()


def test_prompts_have_the_spans_of_their_tokens(discovery, tasks, tmp_path):
    assert [prompt.spans for prompt in discovery.prompts] == [example.span_indices for example in tasks[1].examples]
    write_result(discovery, tmp_path / "result")
    assert read_result(tmp_path / "result").prompts == discovery.prompts
    path = tmp_path / "result" / "examples.json"
    record = json.loads(path.read_text())
    for spans in ([99] * len(discovery.prompts[0].clean), [0], [-1] * len(discovery.prompts[0].clean)):
        changed = [record["prompts"][0] | {"spans": spans}, *record["prompts"][1:]]
        path.write_text(json.dumps(record | {"prompts": changed}))
        with pytest.raises(InputError, match="other spans of tokens"):
            read_result(tmp_path / "result")


def test_few_pairs_are_faithful(discovery):
    """At 5 % of the pairs; the full circuit is the model."""
    curve = discovery.best(CMD).curve
    assert curve.faithfulness[1] > 0.9 and curve.faithfulness[2] == pytest.approx(1)


def test_scores_are_stored_by_their_spans(model, tasks, tmp_path):
    """A store gives the scores of pairs back, and never those of edges or of other spans."""
    task, session = tasks[0], Session(Store(tmp_path))
    plain, pairs = (score_edges(model, task, positions=p, session=session) for p in (False, True))
    names = [f"x{name}" for name in task.span_names]
    other = replace(task, examples=tuple(replace(e, span_names=tuple(names)) for e in task.examples))
    n_stored = len(list(tmp_path.iterdir()))
    again = score_edges(model, task, positions=True, session=session)
    np.testing.assert_array_equal(again.values, pairs.values)
    assert len(list(tmp_path.iterdir())) == n_stored
    score_edges(model, other, positions=True, session=session)
    assert len(list(tmp_path.iterdir())) == n_stored + 1
    np.testing.assert_allclose(
        pairs.graph.plain_score(pairs.mean()), plain.mean(), rtol=1e-4, atol=1e-6 * np.abs(plain.mean()).max()
    )


def test_positions_are_refused_where_they_cannot_be(model, tasks):
    train, test = tasks
    without = replace(train, examples=tuple(replace(e, span_names=(), span_indices=()) for e in train.examples))
    with pytest.raises(InputError, match="positions need the same spans in all splits"):
        discover(model, without, test, SETTINGS, RECIPES)
    with pytest.raises(InputError, match="but the model has"):
        learn_ranking(model, train, TopKLearner(steps=2), positions=True, start=learn_ranking(model, train, FAST))
    with pytest.raises(InputError, match="can't score positions"):
        learn_ranking(model, train, Ensemble(scorers=(SCORERS["exact"](),)), positions=True)


@pytest.mark.parametrize("learner", [FAST, EdgePruning(steps=2), UniformGradientSampling(steps=2), Ensemble()])
def test_rankings_of_pairs_can_be_learned(model, tasks, learner, tmp_path):
    """The ranking is the same in a second process of the work, and another one than with other spans."""
    if isinstance(learner, Ensemble):
        learner = Ensemble(scorers=(EapIg(2),), learners=(EdgePruning(steps=2),))
    train, session = tasks[0], Session(Store(tmp_path))
    ranking = learn_ranking(model, train, learner, positions=True, session=session)
    assert ranking.graph == SpanGraph(DEMO, train.span_names) and len(set(ranking.value.tolist())) > 100
    again = learn_ranking(model, train, learner, positions=True, session=session)
    np.testing.assert_array_equal(again.value, ranking.value)
    shifted = tuple(replace(e, span_indices=(*e.span_indices[1:], e.span_indices[0])) for e in train.examples)
    other = learn_ranking(model, replace(train, examples=shifted), learner, positions=True, session=session)
    assert not np.array_equal(other.value, ranking.value)


def test_learning_with_one_span_is_learning_of_edges(model, tasks):
    one_span = [tuple(replace(e, span_names=("all",), span_indices=(0,) * e.length) for e in t.examples) for t in tasks]
    learner = TopKLearner(steps=5, seed=1)
    plain = learn_ranking(model, tasks[0], learner, validation=tasks[1])
    train, validation = (replace(task, examples=examples) for task, examples in zip(tasks, one_span, strict=True))
    pairs = learn_ranking(model, train, learner, validation=validation, positions=True)
    np.testing.assert_allclose(pairs.value, plain.value, atol=2e-3 * np.abs(plain.value).max())


@pytest.mark.parametrize("measure", [CMD, CPR], ids=lambda measure: measure.name)
def test_learned_pairs_have_a_better_area_than_scored_ones(model, measure):
    """On examples that neither was made from."""
    splits = [load_task("greater-than", model, split, 32) for split in ("train", "test", "validation")]
    learner = TopKLearner(steps=40).for_measure(measure)
    recipes = {measure: [Recipe(Greedy()), Recipe(Greedy(), learner=learner)]}
    settings = Settings(positions=True, fill=True)
    result = discover(model, *splits[:2], settings, recipes, validation=splits[2], attention=0)
    scored, learned = result.of(measure)[:2]
    assert scored.recipe.learner is None and measure.better * (learned.area - scored.area) > 0


def test_commands_score_select_and_evaluate_pairs(edgewise, tmp_path):
    scores, circuit = tmp_path / "scores", tmp_path / "circuit.npz"
    code, out, _ = edgewise("score", "--positions", "--examples", 8, "--out", scores)
    assert code == 0 and "(edge, span) pairs" in out and "@S2" in out
    graph = EdgeScores.load(scores).graph
    code, out, _ = edgewise("select", scores, "--size", "2%", "--out", circuit)
    assert code == 0 and "(edge, span) pairs" in out and Circuit.load(circuit).graph == graph
    assert Circuit.load(circuit) == solve(EdgeScores.load(scores), 0.02).circuit
    assert edgewise("select", scores, "--size", "1%,2%", "--out", tmp_path / "circuits")[0] == 0
    assert [file.suffix for file in (tmp_path / "circuits").iterdir()] == [".npz", ".npz"]
    code, out, _ = edgewise("evaluate", circuit, tmp_path / "circuits", "full", "--examples", 8, "--json")
    rows = json.loads(out)["circuits"]
    assert code == 0 and rows[0]["metric"] == rows[2]["metric"] and rows[3]["faithfulness"] == 1
    code, out, _ = edgewise("show", circuit, "--json")
    assert code == 0 and all("@" in edge["name"] for edge in json.loads(out)["strongest"])
    # The same command again computes nothing, and says so of another kind of scores.
    assert edgewise("score", "--positions", "--examples", 8, "--out", scores)[0] == 0
    assert "made from other inputs" in refused(edgewise, "score", "--examples", 8, "--out", scores)


def test_commands_learn_pairs(edgewise, tmp_path):
    ranking, circuit = tmp_path / "ranking", tmp_path / "circuit.npz"
    learn = ("learn", "--positions", "--steps", 2, "--examples", 8, "--out", ranking)
    assert edgewise(*learn)[0] == 0 and isinstance(Ranking.load(ranking).graph, SpanGraph)
    assert edgewise(*learn)[0] == 0  # the same command again computes nothing
    assert "made from other inputs" in refused(edgewise, *(word for word in learn if word != "--positions"))
    assert edgewise("select", ranking, "--size", "2%", "--out", circuit)[0] == 0
    assert Circuit.load(circuit).graph == Ranking.load(ranking).graph
    words = ("--positions", "--learned", "--learn-steps", 2, "--examples", 12, "--out", tmp_path / "run")
    assert edgewise("run", *words)[0] == 0
    learned = [outcome for outcome in read_result(tmp_path / "run").of(CMD) if outcome.recipe.learner is not None]
    assert learned and all(isinstance(outcome.circuits[0].graph, SpanGraph) for outcome in learned)


def test_commands_refuse_in_one_line(edgewise, tmp_path):
    write_tokens(tmp_path / "task.jsonl")
    scores = tmp_path / "scores"
    words = refused(edgewise, "score", "--positions", "--task", tmp_path / "task.jsonl", "--out", scores)
    assert "has none; name spans in its file" in words
    assert "can't score positions" in refused(edgewise, "score", "--positions", "--scorer", "exact", "--out", scores)
    assert "one of --positions and --level node" in refused(
        edgewise, "learn", "--positions", "--level", "node", "--out", tmp_path / "ranking"
    )
    words = refused(edgewise, "score", "--positions", "--spans", "token", "--out", scores)
    assert "needs prompts of equal length" in words
    for command in ("run", "score", "learn", "study"):  # prompts of mcqa have equal lengths
        words = ("--task", "mcqa", "--spans", "token", "--examples", 4, "--dry-run", "--out", tmp_path / command)
        assert "--spans needs --positions" in refused(edgewise, command, *words)
    assert edgewise("score", "--positions", "--examples", 4, "--out", scores)[0] == 0
    assert "no place for (edge, span) pairs" in refused(
        edgewise, "select", scores, "--size", "2%", "--out", tmp_path / "circuit.json"
    )
    assert edgewise("select", scores, "--size", "2%", "--out", tmp_path / "circuit.npz")[0] == 0
    assert "but task 'greater-than' has" in refused(
        edgewise, "evaluate", tmp_path / "circuit.npz", "--task", "greater-than"
    )
