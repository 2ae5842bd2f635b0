"""Forecasts of the cost of a run."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import test_cli
import torch
from conftest import build, random_task

from edgewise import InputError, Local, load_model
from edgewise.evaluate import Mean
from edgewise.learn import TopKLearner
from edgewise.models import wrap_model
from edgewise.models.placement import free_bytes
from edgewise.recipes.forecast import EvaluateWork, LearnWork, ScoreWork, forecast
from edgewise.recipes.settings import Settings

edgewise = test_cli.edgewise
SETTINGS = Settings(batch_size=3)


@pytest.fixture
def model():
    return wrap_model(build("gpt2", torch.float32), name="tiny")


def test_examples_batches_passes_memory_and_disk(model):
    task, learner = random_task(7), TopKLearner(steps=5, resamples=1)
    works = [ScoreWork(task, SETTINGS), LearnWork(task, SETTINGS, learner), EvaluateWork(task, SETTINGS, 12)]
    result = forecast(model, works, exact=True)
    score, learn, evaluate = result.stages
    assert [stage.passes for stage in result.stages] == [1, 10, 12]
    assert (score.examples, score.batches, score.batch_size, score.length) == (7, math.ceil(7 / 3), 3, task.longest)
    assert learn.batch_size == 7 and evaluate.batches == 3
    assert result.disk == 7 * model.graph.n_edges * 4
    assert result.weights == sum(weight.nbytes for weight in model.module.parameters())
    assert all(0 < stage.least <= stage.need for stage in result.stages)
    assert result.seconds == pytest.approx(sum(stage.seconds for stage in result.stages)) and result.seconds > 0
    # A step of learning is one piece here, and scoring has three.
    assert (score.pieces, learn.pieces, evaluate.pieces) == (3, 1, 3)
    assert replace(result, workers=4).seconds == pytest.approx(score.seconds / 3 + learn.seconds + evaluate.seconds / 3)
    json.dumps(result.record(), allow_nan=False)


def test_repeated_work_costs_more(model):
    works = [ScoreWork(random_task(7), SETTINGS, times=times) for times in (1, 3)]
    once, thrice = forecast(model, works, exact=True).stages
    assert (once.passes, thrice.passes) == (1, 3)


def test_batches_are_only_timed_if_the_run_may_take_minutes(model, monkeypatch):
    work = ScoreWork(random_task(7), SETTINGS)
    assert forecast(model, [work]).seconds is None and not forecast(model, [work]).is_long
    monkeypatch.setattr("edgewise.recipes.forecast.SLOW_FLOPS", 1.0)
    assert forecast(model, [work]).seconds > 0


def test_more_circuits_take_longer(model, monkeypatch):
    task = random_task(30)
    means = replace(SETTINGS, ablation=Mean())
    assert forecast(model, [EvaluateWork(task, means, 1)], exact=True).seconds > 0  # means need a task of their own
    monkeypatch.setattr("edgewise.recipes.forecast._time_job", lambda *args: 2.0 + len(args[4].circuits))
    few, many = (forecast(model, [EvaluateWork(task, means, n)], exact=True).seconds for n in (1, 1000))
    assert (few, many) == (3, 1002)


def test_too_little_memory_raises_with_advice(model, monkeypatch):
    work = ScoreWork(random_task(7), SETTINGS)
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: 10_000)
    with pytest.raises(InputError, match=r"one example of \d+ tokens needs .* would fit: prompts of up to \d+ tok"):
        forecast(model, [work])
    need = SETTINGS.scorer.need(model.transformer.shape, work.task.longest).total(1)
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: need)
    forecast(model, [work])
    with pytest.raises(InputError, match="fewer workers"):
        forecast(model, [work], Local(2))
    monkeypatch.setattr("edgewise.recipes.forecast.free_bytes", lambda device: None)  # not reported
    forecast(model, [work])


def test_a_model_that_does_not_fit_raises_before_its_weights_are_read(monkeypatch):
    import transformers

    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights are read")
    )
    monkeypatch.setattr("edgewise.models.load.free_bytes", lambda device: 600_000)
    with pytest.raises(InputError, match=r"'demo' doesn't fit: .* float32.*cpu has .* left; what would fit: a smaller"):
        load_model("demo")


def test_free_memory_of_a_cpu():
    assert 10**7 < free_bytes(torch.device("cpu")) < 10**14
    assert free_bytes(torch.device("meta")) is None


@pytest.mark.parametrize(
    "words, stages",
    [
        (("run", "--no-learned"), ["score", "evaluate", "evaluate"]),
        (("run", "--learned"), ["score", "learn", "learn", "evaluate", "evaluate"]),
        (("score", "--out", "out"), ["score"]),
        (("learn", "--out", "out"), ["learn"]),
        (("evaluate", "full", "--out", "out.json"), ["evaluate"]),
        (("study", "--learned"), ["score", "learn", "learn", "evaluate", "evaluate"]),
    ],
    ids=" ".join,
)
def test_a_dry_run_shows_the_plan_and_writes_nothing(edgewise, words, stages, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = edgewise(*words, "--examples", 6, "--dry-run", "--json")
    result = json.loads(out)
    for each in result.get("forecasts", [result]):
        assert [stage["name"] for stage in each["stages"]] == stages
        assert all(stage["examples"] == 6 and stage["seconds"] > 0 for stage in each["stages"])
    code_of_text, text, _ = edgewise(*words, "--examples", 6, "--dry-run")
    assert "nothing was written" in text and "memory: " in text
    assert (code, code_of_text) == (0, 0) and not list(tmp_path.iterdir())
