"""Learning within a time budget."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from commands import refused
from conftest import build, random_task

from edgewise import (
    CMD,
    CPR,
    Graph,
    InputError,
    Ranking,
    Settings,
    Store,
    TopKLearner,
    discover,
    learn_ranking,
    read_result,
    wrap_model,
    write_result,
)
from edgewise.learn import Calibrated
from edgewise.recipes import forecast
from edgewise.recipes.forecast import CHECK_SHARE, LEAST_STEPS, fit_budget, plan_learning
from edgewise.recipes.settings import as_published
from edgewise.results import read_start
from edgewise.runtime import Session

QUIET = Session(progress=lambda *_: None)


@pytest.mark.parametrize("learner", [TopKLearner(), TopKLearner(steps=20), TopKLearner(batch=6, resamples=2)])
def test_a_plan_fits_the_budget_or_nothing_is_learned(learner):
    for step_seconds, budget in product((0.001, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0), (30, 180, 1800)):
        check_plan(learner, step_seconds, budget)


def check_plan(learner, step_seconds, budget):
    plan = fit_budget(learner, step_seconds, budget)
    n_rankings = 2 * (1 + learner.resamples)
    least = min(LEAST_STEPS, learner.steps)
    per_step = n_rankings * step_seconds * (1 + CHECK_SHARE)
    if plan.learner is None:
        assert plan.seconds == pytest.approx(least * per_step) and plan.seconds > budget
        return
    assert plan.seconds == pytest.approx(plan.learner.steps * per_step) and plan.seconds <= budget * (1 + 1e-9)
    assert least <= plan.learner.steps <= learner.steps and plan.learner == replace(learner, steps=plan.learner.steps)


def test_a_larger_budget_never_plans_less():
    plans = [fit_budget(TopKLearner(), 0.5, budget).learner for budget in range(10, 700, 10)]
    sizes = [0 if plan is None else plan.steps for plan in plans]
    assert sizes[0] == 0 and sizes == sorted(sizes) and sizes[-1] == 300


@pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan"), "3", True])
def test_a_budget_is_a_number_of_minutes(wrong):
    model, task = wrap_model(build("gpt2", torch.float32), name="tiny"), random_task(4)
    with pytest.raises(InputError, match="number of minutes"):
        discover(model, task, task, learn_budget=wrong, session=QUIET)


def test_a_stored_plan_is_used_again_whatever_the_clock_says(tmp_path, monkeypatch):
    model, task = wrap_model(build("gpt2", torch.float32), name="tiny"), random_task(8)
    session = Session(store=Store(tmp_path / "s").open(), progress=lambda *_: None)
    monkeypatch.setattr(forecast, "_time_step", lambda *_: 0.5)
    first = plan_learning(model, task, Settings(), TopKLearner(), 3, session)
    monkeypatch.setattr(forecast, "_time_step", lambda *_: 1e9)
    assert plan_learning(model, task, Settings(), TopKLearner(), 3, session) == first
    # Another budget, and another number of steps, are other plans.
    assert plan_learning(model, task, Settings(), TopKLearner(), 4, session).learner is None
    monkeypatch.setattr(forecast, "_time_step", lambda *_: 0.0001)
    assert plan_learning(model, task, Settings(), TopKLearner(steps=7), 3, session).learner == TopKLearner(steps=7)


def test_a_model_that_is_too_large_is_not_timed(monkeypatch):
    model, task = wrap_model(build("gpt2", torch.float32), name="tiny"), random_task(8)
    monkeypatch.setattr(forecast.Timer, "time", lambda *_: pytest.fail("nothing is run"))
    monkeypatch.setattr(forecast, "FAST_CPU", 1.0)
    slow = plan_learning(model, task, Settings(), TopKLearner(), 3, QUIET)
    assert slow.learner is None and 180 < slow.seconds < float("inf")
    monkeypatch.setattr(forecast, "free_bytes", lambda device: 1)
    assert plan_learning(model, task, Settings(), TopKLearner(), 3, QUIET).seconds == float("inf")


def test_discover_learns_within_its_budget_unless_recipes_or_conditions_forbid_it(tmp_path, monkeypatch):
    model, task, test = wrap_model(build("gpt2", torch.float32), name="tiny"), random_task(16), random_task(4, seed=1)
    settings = Settings(sizes=(0.05, 0.3, 1.0))
    monkeypatch.setattr(forecast, "LEAST_STEPS", 5)
    monkeypatch.setattr(forecast, "_time_step", lambda *_: 3.0)  # 0.9 min / (2 measures x 1.75 x 3 s) = 5.1 steps

    def learned(**options):
        found = discover(model, task, test, options.pop("settings", settings), attention=0, session=QUIET, **options)
        return found if found.learned else None

    found = learned(learn_budget=0.9)
    assert set(found.learned) == {TopKLearner(measure, steps=5) for measure in (CMD, CPR)}
    assert "Learned" in {outcome.name for outcome in found.of(CMD)}
    write_result(found, tmp_path / "r")
    again = read_result(tmp_path / "r")
    record = json.loads((tmp_path / "r" / "learned.json").read_text())
    for learner, ranking in again.learned.items():
        origin, details = found.learned[learner].origin, record[learner.measure.name]
        assert ranking.origin["steps"] == origin["steps"] == details["steps"] <= 10
        np.testing.assert_allclose(ranking.origin["validation"], origin["validation"])
        assert ranking.origin["validation"][0][0] == 0 and details["validation_examples"] == 4
    assert "after 0" in (tmp_path / "r" / "viewer.html").read_text()
    short = learned(learn_budget=0.01)
    assert set(short.learned) == {Calibrated()}  # steps take too long, evaluations don't
    write_result(short, tmp_path / "short")
    (ranking,) = read_result(tmp_path / "short").learned.values()
    expected = short.learned[Calibrated()].origin["calibration"]
    assert len(expected) == 2 and [list(row) for row in ranking.origin["calibration"]] == expected
    assert learned(learn_budget=0) is None
    assert learned(settings=as_published(settings)) is None


def test_a_run_says_what_learning_would_cost_and_is_repeated_with_its_plan(edgewise, tmp_path, monkeypatch):
    words = ("run", "--examples", 16, "--stability", 0, "--out", tmp_path / "r")
    monkeypatch.setattr(forecast, "_time_step", lambda *_: 100.0)
    code, _, err = edgewise(*words, "--learn-budget", 3)
    assert code == 0 and "--learn-budget 117" in err and set(read_result(tmp_path / "r").learned) == {Calibrated()}
    words = (*words, "--learn-steps", 3, "--learn-budget", 1, "--overwrite")
    monkeypatch.setattr(forecast, "_time_step", lambda *_: 0.01)
    code, _, err = edgewise(*words)
    assert code == 0 and "resuming" not in err  # the stored plan is no work of a stopped command
    (steps,) = {learner.steps for learner in read_result(tmp_path / "r").learned}
    assert steps == 3
    monkeypatch.setattr(forecast, "_time_step", lambda *_: pytest.fail("nothing is planned again"))
    code, _, err = edgewise(*words[:-1])
    assert code == 0 and "nothing is computed again" in err
    assert "learn budget was" in refused(edgewise, *words[:-2], 2)
    assert "give one of" in refused(edgewise, "run", "--learned", "--learn-budget", 2, "--out", tmp_path / "x")
    words = ("run", "--learn-budget", 0, "--learn-steps", 2, "--out", tmp_path / "x")
    assert "this command learns nothing (--learn-budget 0); leave them out" in refused(edgewise, *words)


def test_learning_starts_from_a_given_ranking_of_the_same_graph(tmp_path):
    model, task, other = wrap_model(build("gpt2", torch.float32), name="tiny"), random_task(24), random_task(8, seed=7)
    learner = TopKLearner(steps=8, batch=4)
    first = learn_ranking(model, task, learner, validation=other, session=QUIET)
    second = learn_ranking(model, task, learner, validation=other, start=first, session=QUIET)
    plain = TopKLearner(steps=8, batch=4, warm=None)
    unsigned = learn_ranking(model, task, plain, validation=other, start=first, session=QUIET)
    # The first check evaluates the ranking that learning starts from, whatever the warm start would be.
    assert second.origin["validation"][0] == unsigned.origin["validation"][0] != first.origin["validation"][0]
    assert {name for _, name in second.origin["choices"]} <= {"warm start", "learned", "half-way", "start"}
    with pytest.raises(InputError, match="same architecture"):
        learn_ranking(model, task, learner, start=Ranking(Graph(1, 1, 4), np.arange(8.0)), session=QUIET)
    # Stored work of another start isn't used.
    session = Session(store=Store(tmp_path / "s").open(), progress=lambda *_: None)
    values = [
        learn_ranking(model, task, learner, validation=other, start=start, session=session).value
        for start in (first, None, first)
    ]
    np.testing.assert_array_equal(values[0], values[2])
    np.testing.assert_array_equal(values[0], second.value)
    np.testing.assert_array_equal(values[1], first.value)


def test_commands_start_from_runs_and_rankings(edgewise, tmp_path):
    run = ("run", "--learned", "--stability", 0, "--examples", 6, "--learn-steps", 2)
    assert edgewise(*run, "--out", tmp_path / "a")[0] == 0
    rankings = {learner.measure: ranking for learner, ranking in read_result(tmp_path / "a").learned.items()}
    for measure, ranking in read_start(tmp_path / "a").items():
        np.testing.assert_array_equal(ranking.value, rankings[measure].value)
    assert edgewise(*run, "--task", "greater-than", "--learn-from", tmp_path / "a", "--out", tmp_path / "b")[0] == 0
    learn = ("learn", "--examples", 6, "--steps", 2)
    assert edgewise(*learn, "--learn-from", tmp_path / "b", "--out", tmp_path / "c")[0] == 0
    assert list(read_start(tmp_path / "c")) == [CMD, CPR]
    assert "no effect" in refused(
        edgewise, *learn, "--learner", "ugs", "--learn-from", tmp_path / "a", "--out", tmp_path / "d"
    )
    words = ("run", "--learn-budget", 0, "--learn-from", tmp_path / "a", "--out", tmp_path / "d")
    assert "this command learns nothing (--learn-budget 0); leave it out" in refused(edgewise, *words)
    assert edgewise("run", "--no-learned", "--examples", 6, "--stability", 0, "--out", tmp_path / "e")[0] == 0
    scores = read_result(tmp_path / "e").mean_scores
    np.testing.assert_allclose(read_start(tmp_path / "e")[CPR].value, scores)
