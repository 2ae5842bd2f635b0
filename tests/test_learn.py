"""Rankings that are learned, gradients in weight space, and portfolios."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from commands import refused
from conftest import build, random_task

from edgewise import (
    CMD,
    CPR,
    Accuracy,
    Bootstrap,
    Eap,
    EapIg,
    EdgeScores,
    Graph,
    Greedy,
    Ilp,
    InputError,
    MaskIg,
    Ranking,
    Recipe,
    SelectionProblem,
    Settings,
    TopKLearner,
    discover,
    evaluate_circuits,
    learn_ranking,
    load_model,
    load_task,
    read_result,
    score_edges,
    solve,
    summarise,
    wrap_model,
    write_result,
)
from edgewise.evaluate import SIZES, Curve, Measure, Patching, Zero, resample_heights, size_to_edges
from edgewise.learn import Learner, LearningProblem, learner_from_record, top_k_learner, training
from edgewise.learn.refine import Calibrated, calibrate_ranking, compose_ranking, rank_by_circuit
from edgewise.learn.top_k_learner import (
    hard_top_k,
    in_both_directions,
    loss_trend,
    soft_top_k,
    split_validation,
)
from edgewise.learn.training import GradientJob, StepRunner, TrainingState
from edgewise.recipes import Outcome
from edgewise.recipes.recipe import learned_recipes, merge_recipes
from edgewise.recipes.stages import portfolio
from edgewise.results import result_summary
from edgewise.runtime import IN_PROCESS, Session
from edgewise.runtime.engine import run_batches
from edgewise.runtime.store import Unit
from edgewise.select import solve_path
from edgewise.tasks import Kl, LogitDifference

SHORT = {"steps": 12, "batch": 4}
QUIET = Session(progress=lambda *_: None)


@pytest.fixture(scope="module")
def tiny():
    return wrap_model(build("gpt2", torch.float32), name="tiny"), random_task(8)


@pytest.mark.parametrize("k", [0.5, 3.0, 17.2, 39.0])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_soft_top_k_sums_to_k_and_has_the_right_gradient(k, temperature):
    theta = torch.tensor(np.random.default_rng(0).normal(0, 3, 40), requires_grad=True)
    weights = soft_top_k(theta, k, temperature)
    assert float(weights.detach().sum()) == pytest.approx(k, abs=1e-6) and ((weights > 0) & (weights < 1)).all()
    assert (torch.argsort(weights) == torch.argsort(theta)).all()
    gradient = torch.tensor(np.random.default_rng(1).normal(size=40))
    (found,) = torch.autograd.grad(weights, theta, gradient)
    for place in range(0, 40, 7):
        step = torch.zeros(40, dtype=torch.float64)
        step[place] = 1e-4
        ends = [float((soft_top_k(theta.detach() + s, k, temperature) * gradient).sum()) for s in (step, -step)]
        assert float(found[place]) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-3, abs=1e-6)


def test_hard_top_k_selects_k_and_ties_go_to_the_first():
    assert hard_top_k(torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0]), 3).tolist() == [1, 1, 0, 1, 0]
    assert hard_top_k(torch.zeros(4), 0).sum() == 0 and hard_top_k(torch.zeros(4), 4).sum() == 4


def test_the_loss_trend_compares_the_first_third_with_the_last():
    falling = [1 - step / 120 for step in range(60)]
    assert -0.5 < loss_trend(falling) < -0.2 and loss_trend(falling[::-1]) > 0.2
    assert loss_trend([0.0] * 30 + [0.9] * 30) == 0 == loss_trend([1.0, 9.0])


@pytest.mark.parametrize("level", ["edge", "pair", "node"])
def test_parameters_of_nodes_move_all_edges_of_a_node_alike(tiny, level):
    model, task = tiny
    kind = {"positions": True} if level == "pair" else {"level": level}
    if level == "pair":
        spans = [
            {"span_names": ("a", "b"), "span_indices": (0, 1) * (e.length // 2) + (0,) * (e.length % 2)} for e in task
        ]
        task = replace(task, examples=tuple(replace(each, **named) for each, named in zip(task, spans, strict=True)))
    # Edges hardly have a rate of their own: what they move by is a number of the source plus one of the target.
    learner = TopKLearner(**SHORT, rate=1e-6, node_rate=1e5, validate=False, reverse=False)
    problem = LearningProblem(model, task, LogitDifference(), Patching(), SIZES, 2**30, **kind)
    graph = problem.graph
    start = learner.start(problem.rank_by(learner.warm, QUIET), graph)
    moved, moved_alone = (
        learn_ranking(model, task, replace(learner, node_rate=rate), **kind, session=QUIET).value - start
        for rate in (learner.node_rate, 0.0)
    )
    nodes = np.eye(graph.n_nodes)
    design = np.hstack([nodes[graph.edge_source], nodes[graph.edge_target]])
    explained = design @ np.linalg.lstsq(design, moved, rcond=None)[0]
    np.testing.assert_allclose(moved, explained, atol=1e-4)
    assert np.ptp(moved_alone) < 1e-4 and (np.ptp(moved) > 0.1 or level == "node")


def test_a_warm_start_is_the_logit_of_the_rank():
    graph = Graph(2, 2, 4)
    value = np.random.default_rng(0).normal(size=graph.n_edges)
    for goal, by in ((CMD, np.abs(value)), (CPR, value)):
        start = TopKLearner(goal).start(Ranking(graph, value), graph)
        assert (np.argsort(start) == np.argsort(by)).all()
        place = np.arange(graph.n_edges) / (graph.n_edges - 1)
        np.testing.assert_allclose(1 / (1 + np.exp(-np.sort(start))), place.clip(1e-4, 1 - 1e-4), atol=1e-6)
    assert not TopKLearner().start(None, graph).any()


def test_the_learning_rate_depends_on_measure_and_graph_and_decays_to_0():
    small, large = Graph(4, 4, 64), Graph(24, 14, 896)
    assert TopKLearner().rate_for(small) == pytest.approx(0.1) and TopKLearner().rate_for(large) == pytest.approx(0.03)
    assert TopKLearner(CPR).rate_for(large) == 0.4 and TopKLearner(rate=0.2).rate_for(small) == 0.2
    factors = [TopKLearner(CPR, steps=steps).rate_for(small) / 0.4 for steps in (1, 56, 85, 170, 500)]
    assert factors == pytest.approx([3, 3, 2, 1, 1])
    assert TopKLearner(CPR, rate=0.2, steps=1).rate_for(small) == 0.2
    assert TopKLearner(CMD, steps=1).rate_for(small) == pytest.approx(0.1)
    rates = [TopKLearner(steps=200).rate_at(step, small) for step in range(0, 201, 20)]
    assert rates[0] == pytest.approx(0.1) and rates[-1] == pytest.approx(0) and rates == sorted(rates, reverse=True)


def test_a_reversed_pair_exchanges_prompts_and_answers():
    task = load_task("ioi", load_model("demo"), "train", 4)
    for example in task:
        back = example.reversed
        assert (back.clean, back.corrupted) == (example.corrupted, example.clean)
        assert back.reversed == replace(example, text=None, span_names=(), span_indices=())
    sets = replace(task[0], also_correct=(1,), also_incorrect=(2, 3))
    assert (sets.reversed.also_correct, sets.reversed.also_incorrect) == ((2, 3), (1,))
    assert replace(task[0], incorrect=None).reversed is None
    correct, forced = task[0].correct, (task[0].correct,)
    several = replace(
        task[0], clean=task[0].clean + forced, corrupted=task[0].corrupted + forced, continuation=(correct,),
        span_names=(), span_indices=(),
    )  # fmt: skip
    assert several.reversed is None


def test_learners_use_both_directions_of_pairs_whose_reversed_task_the_model_performs():
    model = load_model("demo")
    task, validation = (load_task("ioi", model, split, 8) for split in ("train", "validation"))
    problem = LearningProblem(model, task, LogitDifference(), Patching(), SIZES, 2**30, validation)
    both = in_both_directions(problem, QUIET)
    for given, doubled in ((task, both.task), (validation, both.validation)):
        assert [example.tokens for example in doubled[::2]] == [example.tokens for example in given]
        assert [example.reversed for example in doubled[::2]] == list(doubled[1::2])
    ends = problem.evaluate([], QUIET, both.task)  # the corrupted run of a pair is the clean run of the reversed one
    np.testing.assert_allclose(ends.full[1::2], -ends.empty[::2], atol=1e-4)
    assert in_both_directions(replace(problem, validation=None), QUIET).validation is None
    # Most of these pairs have the same prompt twice, so the model does not prefer the exchanged answer.
    mixed = (*task.examples[:3], *(replace(example, corrupted=example.clean) for example in task.examples[3:]))
    unchanged = (
        replace(problem, task=replace(task, examples=mixed)),
        replace(problem, positions=True),
        replace(problem, metric=Kl()),
        replace(problem, task=replace(task, examples=(replace(task[0], incorrect=None),)), metric=Kl()),
    )
    for each in unchanged:
        assert in_both_directions(each, QUIET) is each


def test_learning_finds_paths_of_several_edges_again():
    """If a path lacks several whole edges, none of them has a gradient. So steps with hard circuits lose paths.

    Sharp weights, or parameters that the edges of a node share, find them again.
    """
    model = load_model("known/backup")
    task, test = (load_task("known/backup", model, split, 32) for split in ("train", "test"))
    counts = [size_to_edges(size, model.graph.n_edges) for size in SIZES]

    def area(**options):
        learner = TopKLearner(CPR, steps=60, validate=False, **options)
        problem = SelectionProblem.of(learn_ranking(model, task, learner, session=QUIET), "signed", 0)
        circuits = [selection.circuit for selection in solve_path(problem, counts, Greedy(), fill=True)]
        run = evaluate_circuits(model, test, circuits, session=QUIET)
        return Curve(SIZES, tuple(counts), tuple(counts), run.values, run.full, run.empty).area(CPR)

    first = area(rate=1e-9)
    assert area(forward="hard", node_rate=0.0) < first
    assert first < min(area(node_rate=0.0), area(forward="hard"), area())


@pytest.mark.parametrize("goal", [CMD, CPR])
@pytest.mark.parametrize("ablation", [Patching(), Zero()])
def test_the_gradient_of_a_batch_agrees_with_finite_differences(goal, ablation):
    model, task = wrap_model(build("llama")), random_task(5)
    found = evaluate_circuits(model, task, [], ablation=ablation)
    ends = dict(zip(task.examples, zip(found.full.tolist(), found.empty.tolist(), strict=True), strict=True))
    weights = torch.tensor(np.random.default_rng(0).uniform(size=model.graph.n_edges))
    job = GradientJob(goal, LogitDifference(), ablation, weights, ends, 1.7)
    loss, gradient = job(model, task.examples)
    assert pickle.loads(pickle.dumps(replace(job, ends={})))
    for edge in range(0, model.graph.n_edges, 29):
        step = torch.zeros_like(weights)
        step[edge] = 1e-5
        up, down = (replace(job, weights=weights + s)(model, task.examples)[0] for s in (step, -step))
        assert float(gradient[edge]) == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-5)
    halves = [part for _, part in run_batches(IN_PROCESS, model, task.examples, [[0, 1], [2, 3, 4]], job)]
    assert sum(part[0] for part in halves) == pytest.approx(loss)
    np.testing.assert_allclose(halves[0][1] + halves[1][1], gradient, rtol=1e-4, atol=1e-6)


def test_losses_are_zero_for_the_model_and_fall_towards_it():
    full, empty = torch.tensor([3.0, 5.0]), torch.tensor([-1.0, 1.0])
    for measure, of_full, of_empty in ((CMD, 0, 1), (CPR, -1, 0)):
        assert measure.loss(full, full, empty, 4.0).tolist() == [of_full] * 2
        assert measure.loss(empty, full, empty, 4.0).tolist() == [of_empty] * 2


def test_adam_agrees_with_torch():
    rng = np.random.default_rng(0)
    theta = torch.tensor(rng.normal(size=6), dtype=torch.float32)
    state = TrainingState.start(theta.clone())
    parameter = torch.nn.Parameter(theta.clone())
    theirs = torch.optim.Adam([parameter], lr=0.1, betas=top_k_learner.BETAS)
    for _ in range(5):
        gradient = torch.tensor(rng.normal(size=6), dtype=torch.float32)
        state = state.adam_step(gradient, 0.0, 0.1, 0.0, top_k_learner.BETAS)
        parameter.grad = gradient
        theirs.step()
    np.testing.assert_allclose(state.theta, parameter.detach(), rtol=1e-5)


@pytest.mark.parametrize("goal", [CMD, CPR])
def test_a_learned_ranking_beats_the_scores_it_started_from(goal):
    """On examples that learning has not seen."""
    model = load_model("known/ioi")
    train, test = (load_task("known/ioi", model, split, 32) for split in ("train", "test"))
    recipes = {goal: (Recipe(Greedy()), Recipe(Ilp()), *learned_recipes(TopKLearner(steps=40))[goal])}
    discovery = discover(model, train, test, Settings(fill=True), recipes, session=QUIET)
    areas = {outcome.recipe.name: goal.better * outcome.area for outcome in discovery.outcomes}
    assert areas["Learned"] > areas["Greedy"] and areas["ILP + Learned"] > areas["ILP"]


def test_resamples_give_every_edge_a_confidence(tiny, tmp_path):
    model, task = tiny
    ranking = learn_ranking(model, task, TopKLearner(**SHORT, resamples=3), session=QUIET)
    assert ranking.resampled.shape == (3, model.graph.n_edges)
    share = ranking.confidence(20)
    assert share.sum() == pytest.approx(20) and set(np.unique(share * 3).round(6)) <= {0, 1, 2, 3}
    best = [set(np.argsort(-row, kind="stable")[:20]) for row in ranking.resampled]
    assert all(share[edge] * 3 == pytest.approx(sum(edge in one for one in best)) for edge in range(40))
    plain = learn_ranking(model, task, TopKLearner(**SHORT), session=QUIET)
    np.testing.assert_array_equal(plain.value, ranking.value)
    with pytest.raises(InputError, match="resamples=10"):
        plain.confidence(20)
    ranking.save(tmp_path / "r")
    again = Ranking.load(str(tmp_path / "r"))
    np.testing.assert_array_equal(again.value, ranking.value)
    np.testing.assert_array_equal(again.resampled, ranking.resampled)
    assert again.origin == ranking.origin and not again.signed and again.graph == model.graph


@dataclass(frozen=True)
class EdgeOrder(Learner):
    """A custom learner: ranks edges by their order."""

    measure: Measure = CMD

    def learn(self, problem, session):
        graph = problem.model.graph
        return Ranking(graph, np.arange(graph.n_edges, dtype=float), signed=False, origin={"seconds": 0.0})

    def cost(self, problem):
        raise NotImplementedError


def test_a_custom_learner_is_used_like_any_other(tiny):
    model, task = tiny
    ranking = learn_ranking(model, task, EdgeOrder(CPR), session=QUIET)
    assert ranking.value.tolist() == list(range(model.graph.n_edges))
    assert ranking.origin["method"] == {"name": "EdgeOrder", "measure": "CPR"} and ranking.origin["task"] == task.name
    learners = {recipe.learner for recipes in learned_recipes(EdgeOrder()).values() for recipe in recipes}
    assert learners == {EdgeOrder(CMD), EdgeOrder(CPR)}
    placeholder = learner_from_record(EdgeOrder(CPR).record())
    assert placeholder.name == "EdgeOrder" and placeholder.record() == EdgeOrder(CPR).record()
    assert learner_from_record(TopKLearner(CPR, steps=7).record()) == TopKLearner(CPR, steps=7)


def test_what_a_learned_ranking_lacks_cannot_be_asked_of_it(tiny):
    model, task = tiny
    with pytest.raises(InputError, match="no gradient"):
        learn_ranking(model, task, TopKLearner(**SHORT), Accuracy(), session=QUIET)
    for more in ({"filter": Bootstrap()}, {"pnr": 0.5}):
        with pytest.raises(InputError, match="neither PNR nor a filter"):
            Recipe(learner=TopKLearner(), **more)


def test_a_loss_of_nan_is_an_error(tiny, monkeypatch):
    model, task = tiny
    monkeypatch.setattr(GradientJob, "__call__", lambda self, model, examples: (float("nan"), torch.zeros(1)))
    with pytest.raises(InputError, match="step 1"):
        learn_ranking(model, task, TopKLearner(**SHORT, warm=None), session=QUIET)


def test_mask_ig_scores_add_up_to_the_effect_of_the_prompt():
    """Gradients of weights add up in models of every family: see laws/test_weighted.py."""
    model, task = wrap_model(build("gemma2")), random_task(4)
    scores = score_edges(model, task, MaskIg(80))
    found = evaluate_circuits(model, task, [])
    effect = found.full - found.empty
    np.testing.assert_allclose(scores.values.sum(1), effect, atol=0.05 * np.abs(effect).max())
    one = score_edges(model, task, MaskIg(7), batch_size=1).values
    np.testing.assert_allclose(score_edges(model, task, MaskIg(7)).values, one, rtol=1e-4, atol=1e-5)
    assert summarise(scores, Bootstrap(5)).kept.any() and not np.allclose(one, score_edges(model, task, Eap()).values)
    with pytest.raises(InputError, match="at least 1"):
        MaskIg(0)


def outcomes(heights, noise=0.01, examples=40):
    """Outcomes of two recipes for CMD with the given faithfulness [recipe][size], plus noise by example."""
    ranking = Ranking(Graph(1, 1, 4), np.arange(8.0))
    for number, (solver, row) in enumerate(zip((Greedy(), Ilp()), heights, strict=True)):
        deviation = np.random.default_rng(number).normal(0, noise, (3, examples))
        values = np.array(row)[:, None] + deviation - deviation.mean(1, keepdims=True)
        curve = Curve((0.2, 0.5, 1.0), (1, 4, 8), (1, 4, 8), values, np.ones(examples), np.zeros(examples))
        selections = solve_path(SelectionProblem.of(ranking, "signed", 0), (1, 4, 8), solver)
        yield Outcome(CMD, Recipe(solver), selections, curve, (ranking,) * 3)


def test_a_portfolio_chooses_on_validation_and_reports_test():
    validation = list(outcomes([[0.2, 0.9, 1.0], [0.5, 0.7, 1.0]]))
    test = list(outcomes([[0.3, 0.6, 1.0], [0.1, 0.8, 1.0]]))
    mixed = portfolio(validation, test, CMD, "validation")
    assert mixed.choices == ("ILP", "Greedy", "Greedy") and mixed.chosen_on == "validation"
    np.testing.assert_allclose(mixed.curve.faithfulness, [0.1, 0.6, 1.0])
    assert mixed.selections[0] is test[1].selections[0] and mixed.selections[1] is test[0].selections[1]
    # Overshooting is as bad as undershooting for CMD: 1.4 is farther from 1 than 0.7.
    over = portfolio(list(outcomes([[1.4, 1, 1], [0.7, 0.9, 1]])), test, CMD, "validation")
    assert over.choices[0] == "ILP"


def test_a_portfolio_keeps_the_recipe_of_the_best_area_where_no_other_is_significantly_better():
    test = list(outcomes([[0.3, 0.6, 1.0], [0.1, 0.8, 1.0]]))
    heights = [[0.2, 0.9, 1.0], [0.25, 0.7, 1.0]]  # ILP is better at the first size, greedy overall
    for noise, examples, first in ((0.01, 40, "ILP"), (0.5, 40, "Greedy"), (0.01, 1, "Greedy")):
        mixed = portfolio(list(outcomes(heights, noise, examples)), test, CMD, "validation")
        assert mixed.choices == (first, "Greedy", "Greedy")


def test_a_portfolio_takes_another_recipe_than_the_learned_one_only_if_it_is_significantly_better():
    """The learned recipe is 0.03 worse on validation: with much noise, that is chance."""
    heights = [[0.9, 0.95, 1.0], [0.9, 0.92, 1.0]]  # of greedy, and of ILP on the learned ranking

    def learned(noise):
        by_scores, by_learner = outcomes(heights, noise)
        return [by_scores, replace(by_learner, recipe=replace(by_learner.recipe, learner=TopKLearner()))]

    for noise, default in ((0.5, "ILP + Learned"), (0.001, "Greedy")):
        assert set(portfolio(learned(noise), learned(noise), CMD, "validation").choices) == {default}


def test_a_portfolio_is_the_best_recipe_on_the_split_it_chose_on(tiny, tmp_path):
    model, train = tiny
    test = random_task(9, seed=3)
    recipes = merge_recipes({b: (Recipe(), Recipe(Ilp())) for b in (CMD, CPR)}, learned_recipes(TopKLearner(**SHORT)))
    settings = Settings(sizes=(0.05, 0.3, 1.0))
    discovery = discover(model, train, test, settings, recipes, validation=test, session=QUIET)
    for measure in (CMD, CPR):
        *others, mixed = discovery.of(measure)
        assert mixed.recipe.name == "Portfolio" and discovery.best(measure) is mixed
        assert all(measure.better * mixed.area >= measure.better * other.area for other in others)
    assert set(discovery.learned) == {TopKLearner(**SHORT).for_measure(measure) for measure in (CMD, CPR)}
    write_result(discovery, tmp_path / "r")
    record = result_summary(discovery)
    chosen = {"recipe": "Portfolio", "parameters": "", "chosen_on": "all"}
    assert chosen.items() <= record["circuits"]["CMD"].items()
    assert list(record["portfolio"]["CPR"]) == ["0.05", "0.3", "1"]
    rows = read_result(tmp_path / "r").of(CMD)
    assert [row.name for row in rows] == ["Greedy", "ILP", "Learned", "ILP + Learned", "Portfolio"]
    assert rows[2].recipe.learner.measure == CMD and rows[4].choices == tuple(record["portfolio"]["CMD"].values())


def test_a_learned_ranking_can_be_written_selected_from_and_evaluated(edgewise, tmp_path):
    words = ("learn", "--measure", "cpr", "--examples", 8, "--steps", 10, "--out", tmp_path / "r")
    code, out, _ = edgewise(*words)
    assert code == 0 and "loss:" in out and "for CPR" in out
    assert {path.name for path in tmp_path.iterdir()} == {"r"}
    circuits = []
    for rank in ("signed", "absolute"):
        target = tmp_path / f"{rank}.json"
        words = ("select", tmp_path / "r", "--solver", "ilp", "--size", 0.1, "--rank", rank, "--out", target, "--json")
        code, out, _ = edgewise(*words)
        assert code == 0 and json.loads(out)["edges_kept"] == 47
        circuits.append(json.loads(target.read_text())["edges"])
    assert circuits[0] == circuits[1]
    assert edgewise("evaluate", tmp_path / "signed.json", "--examples", 4)[0] == 0
    # The benchmark takes it as scores, all of them at least 0.
    assert edgewise("convert", tmp_path / "r", tmp_path / "scores.json")[0] == 0
    np.testing.assert_allclose(EdgeScores.load(tmp_path / "scores.json").values[0], Ranking.load(tmp_path / "r").value)
    assert "no examples to resample" in refused(edgewise, "select", tmp_path / "r", "--edges", 9, "--resamples", 5)
    assert "no examples to resample" in refused(edgewise, "select", tmp_path / "r", "--edges", 9, "--kappa", 1)
    assert "no signs" in refused(edgewise, "select", tmp_path / "r", "--edges", 9, "--pnr", 0.5)
    learn = ("learn", "--out", tmp_path / "new")
    assert "'cmd', 'cpr'" in refused(edgewise, *learn, "--measure", "fame")
    assert "--steps" in refused(edgewise, *learn, "--steps", 0)
    assert "no gradient" in refused(edgewise, *learn, "--metric", "accuracy", "--examples", 4)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("metric", [LogitDifference(), Kl()])
@pytest.mark.parametrize("at_once", [None, 2, 1])
def test_several_circuits_share_a_batch_and_have_their_own_losses_and_gradients(metric, at_once):
    model, task = wrap_model(build("llama")), random_task(5)
    found = evaluate_circuits(model, task, [], metric)
    ends = dict(zip(task.examples, zip(found.full.tolist(), found.empty.tolist(), strict=True), strict=True))
    weights = torch.tensor(np.random.default_rng(0).uniform(size=(3, model.graph.n_edges)))
    job = GradientJob(CMD, metric, Patching(), weights, ends, 1.7, at_once=at_once)
    losses, gradients = job(model, task.examples)
    for row, loss, gradient in zip(weights, losses, gradients, strict=True):
        alone, of_alone = replace(job, weights=row)(model, task.examples)
        assert alone == pytest.approx(loss)
        np.testing.assert_allclose(of_alone, gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("part_runs", [1, 6])
def test_a_step_in_parts_gives_the_loss_and_the_gradient_of_the_whole(monkeypatch, part_runs):
    """A step of a wide model runs in parts of examples, and if memory is short, of circuits."""
    model, task = wrap_model(build("llama")).pin(), random_task(5)
    weights = torch.tensor(np.random.default_rng(0).uniform(size=(3, model.graph.n_edges)) < 0.3).float()
    problem = LearningProblem(model, task, LogitDifference(), Patching(), SIZES, 10**9)
    loss, gradient = StepRunner(problem, IN_PROCESS, CMD, 5, 0).run(task.examples, weights)
    monkeypatch.setattr(training, "is_narrow_model", lambda _: False)
    monkeypatch.setattr(training, "PART_RUNS", part_runs)
    assert training.choose_part(problem, 3) == ((1, 1) if part_runs == 1 else (2, 3))
    in_parts, gradient_in_parts = StepRunner(problem, IN_PROCESS, CMD, 5, 0).run(task.examples, weights)
    np.testing.assert_allclose(in_parts, loss, rtol=1e-5)
    np.testing.assert_allclose(gradient_in_parts, gradient, rtol=1e-4, atol=1e-6)


def test_sizes_are_drawn_uniformly_in_the_logarithm_one_from_every_part_of_the_range(tiny):
    model, task = tiny
    problem = LearningProblem(model, task, LogitDifference(), Patching(), (0.05, 0.2, 0.5, 1.0), 10**9)
    n_edges = model.graph.n_edges
    sizes = np.array([top_k_learner._draw_sizes(TopKLearner(), problem, step)[0] for step in range(200)])
    ends = np.exp(np.linspace(np.log(int(0.05 * n_edges)), np.log(0.7 * n_edges), 5))
    assert (sizes >= np.floor(ends[:-1])).all() and (sizes <= np.ceil(ends[1:])).all()
    places = np.log(sizes / ends[:-1]) / np.log(ends[1:] / ends[:-1])
    np.testing.assert_allclose(places.mean(0), 0.5, atol=0.1)
    with pytest.raises(InputError, match="leaves a choice"):
        learn_ranking(model, task, TopKLearner(**SHORT), sizes=(0.0, 1.0), session=QUIET)


def test_validation_examples_are_held_out_only_if_there_are_none(tiny):
    model, task = tiny
    problem = LearningProblem(model, task, LogitDifference(), Patching(), (0.1, 1.0), 10**9)
    assert split_validation(problem, 0) == (task, None)  # too few
    other = random_task(3, seed=5)
    assert split_validation(replace(problem, validation=other), 0) == (task, other)
    many = random_task(40, seed=2)
    doubled = many.part(np.repeat(np.arange(40), 2))
    learn, choose = split_validation(replace(problem, task=doubled), 0)
    assert len(choose) == 20 and len(learn) == 60 and not set(learn.examples) & set(choose.examples)


def test_a_composed_ranking_is_nowhere_worse_than_the_baseline_where_it_was_chosen(tiny):
    """One candidate is the reverse of the other, so that one of them is bad at every size."""
    model, _ = tiny
    task, graph = random_task(24, seed=4), model.graph
    scores = summarise(score_edges(model, task, session=QUIET)).ranking
    sizes = (0.02, 0.05, 0.1, 0.3, 0.6, 1.0)
    problem = LearningProblem(model, task, LogitDifference(), Patching(), sizes, 10**9)
    good, bad = np.abs(scores.value), -np.abs(scores.value)
    counts = [int(size * graph.n_edges) for size in sizes[:-1]]
    for candidates in ({"a": good, "b": bad}, {"b": bad, "a": good}):
        composed, choices = compose_ranking(problem, task, candidates, CMD, QUIET)
        baseline = next(iter(candidates.values()))
        circuits = [
            [s.circuit for s in solve_path(SelectionProblem.of(Ranking(graph, v), "signed", 0), counts, Greedy(), True)]
            for v in (composed, baseline)
        ]
        found = evaluate_circuits(model, task, circuits[0] + circuits[1], session=QUIET)
        values = found.values.reshape(2, len(counts), -1)
        curves = [Curve(sizes[:-1], tuple(counts), tuple(counts), v, found.full, found.empty) for v in values]
        heights = [resample_heights(curve, CMD) for curve in curves]
        assert not any(mine.minus(theirs).is_worse for mine, theirs in zip(*heights, strict=True))
        assert list(choices) == list(sizes[:-1])
        np.testing.assert_array_equal(np.sort(composed), np.sort(candidates["a"]))


def test_greedy_selects_the_circuits_that_a_ranking_was_composed_of():
    graph = Graph(3, 4, 8)
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, graph.n_edges))
    counts = (9, 30, 80)

    def select(value, counts):
        problem = SelectionProblem.of(Ranking(graph, value), "signed", 0)
        return [selection.circuit for selection in solve_path(problem, counts, Greedy(), fill=True)]

    small = select(one, counts)[0]
    problem = SelectionProblem.of(Ranking(graph, other), "signed", 0)
    circuits = [small]
    for count in counts[1:]:
        circuits.append(solve(problem.with_budget(count, circuits[-1]), solver=Greedy(), fill=True).circuit)
    composed = rank_by_circuit(circuits, [one, other, other], other)
    assert select(composed, [circuit.n_edges for circuit in circuits]) == circuits


def test_a_calibrated_ranking_is_nearer_to_the_model_at_every_size():
    """Every fourth example stands for its three copies, so that trials measure what all examples have."""
    model, task = load_model("demo"), load_task("ioi", load_model("demo"), "train", 12)
    copies = task.part(np.repeat(np.arange(len(task)), 4))
    sizes, graph = (0.02, 0.05, 0.1, 0.3, 0.6, 1.0), model.graph
    scores = score_edges(model, task, session=QUIET).mean().astype(np.float64)
    problem = LearningProblem(model, task, LogitDifference(), Patching(), sizes, 10**9)
    value = np.where(scores < 0, 4.0, 1.0) * np.abs(scores)  # prefers edges that lower the metric
    calibrated, report = calibrate_ranking(problem, copies, value, scores, QUIET)
    np.testing.assert_array_equal(np.sort(calibrated), np.sort(value))
    counts = [size_to_edges(size, graph.n_edges) for size in sizes[:-1]]
    rankings = [SelectionProblem.of(Ranking(graph, each), "signed", 0) for each in (value, calibrated)]
    circuits = [s.circuit for each in rankings for s in solve_path(each, counts, Greedy(), fill=True)]
    evaluation = evaluate_circuits(model, task, circuits, session=QUIET)
    spans = (evaluation.values - evaluation.empty).mean(1) / (evaluation.full - evaluation.empty).mean()
    before, after = spans.reshape(2, -1)
    np.testing.assert_allclose([before, after], np.array(list(report.values())).T, atol=1e-5)
    assert list(report) == list(sizes[:-1])
    assert (np.abs(1 - after) <= np.abs(1 - before) + 1e-6).all()
    assert np.abs(1 - after)[1:].sum() < 0.5 * np.abs(1 - before)[1:].sum()  # 9 edges leave no choice
    unchanged, _ = calibrate_ranking(problem, copies, value, np.zeros_like(scores), QUIET)
    np.testing.assert_array_equal(unchanged, value)  # scores of 0 say of no edge what it does


def test_calibrated_scores_are_the_scores_calibrated_on_some_examples(tiny):
    model, _ = tiny
    task, sizes = random_task(12, seed=4), (0.1, 0.4, 1.0)
    scores = score_edges(model, task, session=QUIET).mean()
    problem = LearningProblem(model, task, LogitDifference(), Patching(), sizes, 10**9)
    learner = Calibrated(examples=5, seed=3)
    ranking = learn_ranking(model, task, learner, sizes=sizes, session=QUIET)
    rows = np.sort(np.random.default_rng(3).permutation(12)[:5])
    value, report = calibrate_ranking(problem, task.part(rows), np.abs(scores).astype(float), scores, QUIET)
    np.testing.assert_allclose(ranking.value, value - value.min())
    np.testing.assert_allclose(ranking.origin["calibration"], [[size, *both] for size, both in report.items()])
    assert learner_from_record(learner.record()) == learner
    signed = learn_ranking(model, task, learner.for_measure(CPR), sizes=sizes, session=QUIET)
    np.testing.assert_allclose(signed.value, scores - scores.min())  # more is always better, so there is no target
    plain = learn_ranking(model, task, learner, sizes=(1.0,), session=QUIET)  # the only size leaves no choice
    np.testing.assert_allclose(plain.value, np.abs(scores) - np.abs(scores).min())
    for wrong in ({"examples": 0}, {"seed": -1}, {"measure": "CMD"}, {"scorer": EapIg}):
        with pytest.raises(InputError):
            Calibrated(**wrong)


def test_training_stops_when_validation_no_longer_improves_and_keeps_the_best(monkeypatch):
    """The parameter grows by 1 in every step; the validation loss is lowest near 60."""
    monkeypatch.setattr(TrainingState, "adam_step", lambda self, gradient, loss, *_: replace(
        self, theta=self.theta + 1, average=self.theta + 1, losses=(*self.losses, loss)))  # fmt: skip
    training_ = training.Training(
        160, lambda: torch.zeros(1), lambda: lambda state: (0.0, torch.zeros(1)), lambda step: 0.1, (0.9, 0.99),
        lambda state: Unit({"value": state.best.numpy()}, {"steps": state.step, "checks": list(state.checks)}),
        check=lambda theta: abs(float(theta[0]) - 60),
    )  # fmt: skip
    unit = training_.run("", QUIET)
    assert unit.arrays["value"] == 60 and [step for step, _ in unit.about["checks"]] == [*range(0, 121, 20)]
    assert unit.about["steps"] == 120
