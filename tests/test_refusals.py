"""Wrong arguments raise an InputError before any work is done; lists and names are accepted where they are clear."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import build, random_task

import edgewise
from edgewise import (
    CMD,
    Circuit,
    Eap,
    EdgeScores,
    Graph,
    Greedy,
    Ilp,
    InputError,
    Metric,
    Plan,
    PromptPair,
    Ranking,
    Recipe,
    Scorer,
    SelectionProblem,
    Settings,
    Solution,
    Solver,
    Status,
    TopN,
    discover,
    evaluate_circuits,
    jaccard,
    load_model,
    load_task,
    make_task,
    score_edges,
    solve,
    summarise,
    tune,
    wrap_model,
)
from edgewise.core.statistics import EdgeStatistics
from edgewise.evaluate import Curve, auroc
from edgewise.io.formats import EdgeFile

GRAPH = Graph(2, 2, 2)
N = GRAPH.n_edges
SCORE = np.random.default_rng(0).normal(size=N)
PROBLEM = SelectionProblem.build(GRAPH, SCORE, "absolute", 9)
TASK = random_task(8)


@pytest.fixture(scope="module")
def model():
    return wrap_model(build("gpt2"), name="tiny")


@pytest.fixture(scope="module")
def scores(model):
    return score_edges(model, TASK, Eap())


@dataclass(frozen=True)
class Wrong(Solver):
    """Returns the given mask, or None instead of a solution."""

    mask: object = None

    def solve(self, problem):
        return self.mask if self.mask is None else Solution(self.mask, Status.HEURISTIC, 1.0)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (None, "'Wrong' must return a Solution, not NoneType"),
        ([True] * N, "mask of bool .*not list"),
        (np.ones(N), "not float64"),
        (np.ones(N - 1, bool), "must give a mask"),
        (np.ones(N, bool), f"chose {N} edges, but at most 9"),
    ],
)
def test_solutions_of_custom_solvers_are_checked(mask, words):
    with pytest.raises(InputError, match=words):
        solve(PROBLEM, solver=Wrong(mask))


@dataclass(frozen=True)
class Summed(Metric):
    """One value for the whole batch."""

    def value(self, run, clean):
        return run.answer_logits.sum()


@dataclass(frozen=True)
class Unsaid(Metric):
    """Reads all logits without saying so."""

    def value(self, run, clean):
        return run.all_logits[:, 0]


@dataclass(frozen=True)
class Odd(Scorer):
    """Scores of the wrong shape, or something else altogether."""

    shape: str = ""

    def score(self, batch, metric):
        scores = Eap().score(batch, metric)
        return replace(scores, values=scores.values.T) if self.shape else scores.values


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: evaluate_circuits(model, TASK, [], Summed()), r"'Summed' must .*, \(8,\), but gave \(\)"),
        (lambda model: evaluate_circuits(model, TASK, [], Unsaid()), "set reads_all_logits = True"),
        (lambda model: score_edges(model, TASK, Eap(), Summed()), r"'Summed' must .*, \(8,\), but gave \(\)"),
        (lambda model: score_edges(model, TASK, Odd()), "'Odd' must return BatchScores, not Tensor"),
        (lambda model: score_edges(model, TASK, Odd("T")), "'Odd' gave values of"),
    ],
)
def test_custom_metrics_and_scorers_are_checked(model, call, words):
    with pytest.raises(InputError, match=words):
        call(model)


def test_tuning_is_refused_before_any_work(model, scores):
    few = TASK.head(3)
    for given, words in (
        ((few, scores), "8 rows, but task 'random' has 3"),
        ((few, replace(scores, values=scores.values[:3])), "at least 4 examples"),
        ((TASK, scores, Settings(), {CMD: []}), "at least one recipe"),
    ):
        with pytest.raises(InputError, match=words):
            tune(model, *given)
    with pytest.raises(InputError, match=r"a session must be .* Session, not 'x'"):
        tune(model, TASK, scores, session="x")


def test_tuning_compares_with_greedy_wherever_it_stands_and_names_what_else_it_compares_with(model, scores):
    settings, top, greedy = Settings(sizes=(0.1, 0.5)), Recipe(TopN()), Recipe(Greedy())
    tuning = tune(model, TASK, scores, settings, {CMD: [top, greedy]})
    assert tuning.baseline(CMD).recipe == greedy and "against_greedy" in tuning.record()["chosen"]["CMD"]
    area = {candidate.recipe: candidate.area for candidate in tuning.candidates[CMD]}
    assert tuning.lead[CMD].difference == pytest.approx(tuning.best(CMD).area - area[greedy])
    chosen = tune(model, TASK, scores, settings, {CMD: [top, Recipe(Ilp())]}).record()["chosen"]["CMD"]
    assert chosen["baseline"] == "Top-n" and "against_first" in chosen and "against_greedy" not in chosen


def test_names_in_place_of_models_tasks_and_lists_are_refused(model):
    calls = (
        lambda value: score_edges(value, TASK),
        lambda value: evaluate_circuits(value, TASK, []),
        lambda value: discover(value, TASK, TASK, learn_budget=0),
        lambda value: load_task("ioi", value),
        lambda value: make_task([PromptPair("a", "b", "c", "d")], value),
    )
    pipeline = SimpleNamespace(tokenizer=None, model=None)
    for value, name in (("demo", "'demo'"), (build("gpt2"), "a GPT2LMHeadModel"), (pipeline, "a SimpleNamespace")):
        for call in calls:
            with pytest.raises(InputError, match=rf"loaded model is needed, not {name}; .*(load|wrap)_model") as error:
                call(value)
            assert "\n" not in str(error.value)
    for call in (lambda: score_edges(model, "ioi"), lambda: evaluate_circuits(model, "ioi", [])):
        with pytest.raises(InputError, match="a task is needed, not 'ioi'"):
            call()
    with pytest.raises(InputError, match=r"in a list, even a single one: \[circuit\]"):
        evaluate_circuits(model, TASK, Circuit.full(model.graph))
    with pytest.raises(InputError, match=r"in a list, even a single PromptPair"):
        make_task(PromptPair("a", "b", "c", "d"), model)


def test_tokens_under_the_names_of_text_are_told_their_columns():
    row = {"clean": [1, 2], "corrupted": [1, 3], "correct": 4, "incorrect": 5}
    with pytest.raises(
        InputError, match="must be text; tokens go into clean_ids, corrupted_ids, correct_id, incorrect"
    ):
        make_task([row], load_model("demo"))
    assert "clean_ids" in make_task.__doc__


def test_memory_may_be_text_and_batches_hold_at_least_one(model):
    expected = evaluate_circuits(model, TASK, [])
    np.testing.assert_array_equal(evaluate_circuits(model, TASK, [], memory="1GB").full, expected.full)
    assert score_edges(model, TASK, Eap(), memory="800MB").n_examples == 8 and Settings(memory="1GB") == Settings()
    for call in (
        lambda: score_edges(model, TASK, batch_size=0),
        lambda: evaluate_circuits(model, TASK, [], batch_size=0),
        lambda: Settings(batch_size=0),
    ):
        with pytest.raises(InputError, match="batch size must be at least 1, not 0"):
            call()


@pytest.mark.parametrize("sizes", [(0.1, 2), (0.5, 0.1), (0.1, 0.1), (-0.1, 0.5), (0.5,), ()])
def test_sizes_that_make_no_curve_are_refused(sizes):
    with pytest.raises(InputError, match="two or more shares"):
        Settings(sizes=sizes)


def test_a_curve_of_one_size_has_no_area():
    curve = Curve((0.1,), (1,), (1,), np.ones((1, 2)), np.ones(2), np.zeros(2))
    with pytest.raises(InputError, match="fewer than two sizes"):
        curve.area(CMD)
    assert repr(curve) == "Curve(1 sizes x 2 examples)"


def test_problems_and_circuits_that_do_not_fit_are_refused():
    statistics = summarise(EdgeScores(GRAPH, SCORE[None]))
    with pytest.raises(InputError, match=r"not EdgeStatistics; statistics have one: \.ranking"):
        SelectionProblem.of(statistics, "signed", 3)
    with pytest.raises(InputError, match=r"whole number of edges, but 2\.5"):
        SelectionProblem.of(statistics.ranking, "signed", 2.5)
    assert type(SelectionProblem.of(statistics.ranking, "signed", np.int64(2)).budget) is int
    with pytest.raises(InputError, match="two graphs"):
        jaccard(Circuit.full(GRAPH), Circuit.full(Graph(3, 1, 2)))


def test_lists_are_as_good_as_arrays(tmp_path):
    truth = Circuit(GRAPH, SCORE > 0)
    assert auroc(SCORE.tolist(), truth) == auroc(SCORE, truth) == 1
    assert EdgeScores(GRAPH, [SCORE.tolist()]).digest == EdgeScores(GRAPH, SCORE[None]).digest
    assert (
        Ranking(GRAPH, SCORE.tolist(), kept=truth.mask.tolist()).digest == Ranking(GRAPH, SCORE, kept=truth.mask).digest
    )
    truth.save(tmp_path / "a.json", SCORE.tolist())
    truth.save(tmp_path / "b.json", SCORE)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_plan_takes_names_one_or_many(model):
    assert Plan("demo", "ioi") == Plan(("demo",), ["ioi"])
    for given in (model, [model], 3):
        with pytest.raises(InputError, match="loads its models by name"):
            Plan(given)


def test_the_callers_arrays_stay_writable_and_ours_do_not_change():
    value, kept, never = SCORE.copy(), np.ones(N, bool), np.zeros(N, bool)
    ranking = Ranking(GRAPH, value, kept=kept)
    statistics = EdgeStatistics(GRAPH, value, value, value, kept, never, value)
    problem = SelectionProblem(GRAPH, value, kept, 3)
    held = EdgeFile(Path("a"), GRAPH, value, kept, {})
    value[:], kept[:] = 0, False
    for array in (ranking.value, statistics.score, problem.value, held.score):
        np.testing.assert_array_equal(array, SCORE)
        assert not array.flags.writeable
    for array in (ranking.kept, statistics.kept, problem.is_positive, held.mask):
        assert array.all() and not array.flags.writeable


def test_lazy_names_are_completed():
    assert set(edgewise.__all__) <= set(dir(edgewise))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: edgewise.Bootstrap(10.0), "resamples must be a whole number, not 10.0"),
        (lambda: edgewise.Bootstrap("10"), "resamples must be a whole number, not '10'"),
        (lambda: edgewise.Bootstrap(seed=0.5), "seed must be a whole number, not 0.5"),
        (lambda: edgewise.Bootstrap(confidence="0.9"), "confidence must be a number, not '0.9'"),
        (lambda: edgewise.Bootstrap(threshold=None), "threshold must be a number, not None"),
        (lambda: edgewise.Shrinkage("1"), "kappa must be a number, not '1'"),
        (lambda: Ilp(time_limit="5"), "time_limit must be a number, not '5'"),
    ],
)
def test_parameters_of_another_type_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_numbers_of_numpy_are_accepted():
    assert edgewise.Bootstrap(np.int64(10)) == edgewise.Bootstrap(10)
    assert Ilp(time_limit=np.float32(5)) == Ilp(time_limit=5)


def test_prompts_in_memory_are_not_the_name_of_a_task(model):
    with pytest.raises(InputError, match="a task is a name or a path, not a list; make_task takes prompts in memory"):
        load_task([{"clean": "a"}], model)


def test_rows_of_a_generator_cannot_be_left_out(model):
    with pytest.raises(InputError, match=r"skip_bad=True is for task files.*'ioi' has no bad rows; leave it out"):
        load_task("ioi", load_model("demo"), skip_bad=True)
